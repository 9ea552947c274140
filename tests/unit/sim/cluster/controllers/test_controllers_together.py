"""The living cluster on the simulated API: what users of a cluster see it do."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers.kubelet import KubeletSettings
from hack.sim.cluster.controllers.pods import is_ready, is_terminating, node_of
from hack.sim.cluster.controllers.suite import ClusterControllers, Parts, utc_now
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import (
    DCGM_EXPORTER,
    Budget,
    Fleet,
    Pool,
    Serving,
    Workload,
    apply_fleet,
    pod_template,
)
from hack.sim.cluster.http.resource_calls import InProcessClient
from hack.sim.cluster.resource import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
)
from hack.sim.cluster.store.engine import Engine

LOOKS = 500
POOL = Pool(name="gpu", nodes=3)


async def until(check: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Wait for the check to give something true."""
    for _ in range(LOOKS):
        if found := await check():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"never seen: {what}")


class Cluster:
    def __init__(self, client: InProcessClient, controllers: ClusterControllers) -> None:
        self.client = client
        self.controllers = controllers

    async def pods(self, app: str, *, ready: bool = False) -> list[dict[str, Any]]:
        pods, _ = await self.client.list(PODS, label_selector=f"app={app}")
        return [pod for pod in pods if not ready or is_ready(pod)]

    async def ready_pods(self, app: str, count: int) -> list[dict[str, Any]]:
        async def enough() -> list[dict[str, Any]]:
            pods = [p for p in await self.pods(app) if not p["metadata"].get("deletionTimestamp")]
            good = [pod for pod in pods if is_ready(pod)]
            return good if len(good) == len(pods) == count else []

        found: list[dict[str, Any]] = await until(enough, f"{count} ready pods of {app}")
        return found

    async def gone(self, resource: Any, name: str, namespace: str | None = None) -> None:
        async def check() -> bool:
            try:
                await self.client.get(resource, name, namespace)
            except ApiError as error:
                return error.code == 404
            return False

        await until(check, f"{name} gone")

    async def cordon(self, node: str) -> None:
        await self.client.patch(NODES, node, {"spec": {"unschedulable": True}})


@asynccontextmanager
async def cluster_of(*workloads: Workload, pool: Pool = POOL) -> AsyncIterator[Cluster]:
    client = InProcessClient(Engine())
    async with ClusterControllers(client, Parts()) as controllers:
        await apply_fleet(client, Fleet(pools=(pool,), workloads=workloads), utc_now())
        yield Cluster(client, controllers)


async def test_a_budget_holds_evictions_until_the_replacement_is_ready() -> None:
    web = Serving(name="web", replicas=3, pool="gpu", budget=Budget(max_unavailable=1))
    async with cluster_of(web) as cluster:
        before = await cluster.ready_pods("web", 3)
        node = node_of(before[0])
        await cluster.cordon(node)

        async def allowed() -> bool:
            found = await cluster.client.get(POD_DISRUPTION_BUDGETS, "web", "serving")
            return bool(found["status"].get("disruptionsAllowed"))

        await until(allowed, "one disruption")
        await cluster.client.evict("serving", before[0]["metadata"]["name"])
        with pytest.raises(ApiError) as refused:
            await cluster.client.evict("serving", before[1]["metadata"]["name"])
        assert refused.value.code == 429

        async def replaced() -> bool:
            names = {pod["metadata"]["name"] for pod in await cluster.pods("web")}
            return before[0]["metadata"]["name"] not in names

        await until(replaced, "the evicted pod gone")
        after = await cluster.ready_pods("web", 3)
        assert node not in {node_of(pod) for pod in after} - {node_of(pod) for pod in before[1:]}
        await until(allowed, "allowed again")
        await cluster.client.evict("serving", before[1]["metadata"]["name"])


async def test_daemon_pods_come_to_cordoned_but_not_to_tainted_nodes() -> None:
    async with cluster_of(DCGM_EXPORTER) as cluster:
        pods = await cluster.ready_pods(DCGM_EXPORTER.name, 3)
        await cluster.cordon("gpu-0000")
        patch = {"spec": {"taints": [{"key": "gpuward.io/quarantine", "effect": "NoSchedule"}]}}
        await cluster.client.patch(NODES, "gpu-0001", patch)
        for pod in pods:
            await cluster.client.delete(
                PODS, pod["metadata"]["name"], pod["metadata"]["namespace"]
            )
        uids = {pod["metadata"]["uid"] for pod in pods}

        async def only_new() -> bool:
            return not uids & {
                p["metadata"]["uid"] for p in await cluster.pods(DCGM_EXPORTER.name)
            }

        await until(only_new, "old pods gone")
        after = await cluster.ready_pods(DCGM_EXPORTER.name, 2)
        assert sorted(node_of(pod) for pod in after) == ["gpu-0000", "gpu-0002"]


async def test_deleting_a_deployment_takes_its_pods_along() -> None:
    async with cluster_of(Serving(name="web", replicas=2, pool="gpu")) as cluster:
        await cluster.ready_pods("web", 2)
        await cluster.client.delete(DEPLOYMENTS, "web", "serving")

        async def none_left() -> bool:
            sets, _ = await cluster.client.list(REPLICA_SETS)
            return not sets and not await cluster.pods("web")

        await until(none_left, "everything gone")


async def test_a_reboot_changes_the_boot_and_restarts_containers() -> None:
    async with cluster_of(Serving(name="web", replicas=3, pool="gpu")) as cluster:
        pods = await cluster.ready_pods("web", 3)
        name = node_of(pods[0])
        before = await cluster.client.get(NODES, name)
        await cluster.controllers.kubelets.reboot(name)
        rebooted = await cluster.client.get(NODES, name)
        assert rebooted["metadata"]["uid"] == before["metadata"]["uid"]
        info = rebooted["status"]["nodeInfo"]
        assert info["bootID"] != before["status"]["nodeInfo"]["bootID"]

        async def restarted() -> bool:
            pod = await cluster.client.get(PODS, pods[0]["metadata"]["name"], "serving")
            return bool(pod["status"]["containerStatuses"][0]["restartCount"] == 1)

        await until(restarted, "containers restarted")


async def test_a_job_runs_to_its_end() -> None:
    async with cluster_of() as cluster:
        template = pod_template("short", annotations={"sim.gpuward.io/finish-after": "0.01"})
        template["spec"]["restartPolicy"] = "Never"
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "short", "namespace": "default"},
            "spec": {"completions": 3, "parallelism": 2, "template": template},
        }
        await cluster.client.create(JOBS, job, "default")

        async def complete() -> Any:
            status = (await cluster.client.get(JOBS, "short", "default")).get("status") or {}
            kinds = {entry["type"] for entry in status.get("conditions") or []}
            return status if "Complete" in kinds else None

        status = await until(complete, "the Job complete")
        assert (status["succeeded"], status.get("active")) == (3, None)


REPLICAS, EVICTIONS = 8, 60


@pytest.mark.parametrize(
    ("budget", "least"),
    [
        pytest.param(Budget(max_unavailable=2), 6, id="maximum"),
        pytest.param(Budget(min_available="60%"), 5, id="percentage"),
    ],
)
async def test_the_budget_holds_at_every_moment(budget: Budget, least: int) -> None:
    client = InProcessClient(Engine())
    web = Serving(name="web", replicas=REPLICAS, pool="gpu", budget=budget)
    lowest, evicted = REPLICAS, 0
    parts = Parts(kubelet=KubeletSettings(start_s=0.005, stop_s=0.005))
    async with ClusterControllers(client, parts) as controllers:
        await apply_fleet(client, Fleet(pools=(POOL,), workloads=(web,)), utc_now())
        await Cluster(client, controllers).ready_pods("web", REPLICAS)

        def count(old: Object | None, new: Object | None) -> None:
            nonlocal lowest
            pods = controllers.caches[PODS].in_namespace("serving")
            healthy = sum(is_ready(pod) and not is_terminating(pod) for pod in pods)
            lowest = min(lowest, healthy)

        controllers.caches[PODS].subscribe(count)

        async def evict_for_ever(seed: int) -> None:
            nonlocal evicted
            rng = random.Random(seed)
            while evicted < EVICTIONS:
                pods, _ = await client.list(PODS, "serving")
                chosen = rng.choice(pods)["metadata"]
                try:
                    await client.evict("serving", chosen["name"], uid=chosen["uid"])
                    evicted += 1
                except ApiError as error:
                    if error.code not in (404, 409, 429):
                        raise
                await asyncio.sleep(0.001)

        async with asyncio.timeout(30), asyncio.TaskGroup() as evictors:
            for seed in range(4):
                evictors.create_task(evict_for_ever(seed))
    assert evicted >= EVICTIONS
    assert least <= lowest < REPLICAS
