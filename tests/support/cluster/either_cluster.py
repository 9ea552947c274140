"""A cluster for end-to-end tests: simulated, or real where KUBEBUILDER_ASSETS reports it.

Tests that use `cluster` run unchanged on both. They may use what a real cluster has, and the proxy
before it (`plane.requests`, `plane.faults`), and nothing of the simulator.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers.kubelet import PREFIX
from hack.sim.cluster.controllers.nodes import node_object
from hack.sim.cluster.controllers.pods import is_ready, is_terminating, node_of
from hack.sim.cluster.controllers.suite import utc_now
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Fleet, Pool, Workload, apply_fleet, create_node
from hack.sim.cluster.fleet.fleet_health import FleetHealth
from hack.sim.cluster.resource import NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS, Resource
from hack.sim.control_plane import ControlPlane, Setup, control_plane
from tests.support.cluster.made import made

REPOSITORY = Path(__file__).parents[3]
DEFINITIONS = REPOSITORY / "daemonset" / "crds"
LOOKS = 1200
LOOK_EVERY_S = 0.05


async def until(check: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Look until the check gives something true."""
    for _ in range(LOOKS):
        if found := await check():
            return found
        await asyncio.sleep(LOOK_EVERY_S)
    raise AssertionError(f"never seen: {what}")


@dataclass(slots=True)
class Cluster:
    """A control plane with what end-to-end tests do to it."""

    plane: ControlPlane
    health: FleetHealth

    @property
    def client(self) -> Any:
        return self.plane.client

    async def add_nodes(self, *names: str, gpus: int = 8, **labels: str) -> None:
        for name in names:
            await create_node(
                self.client, node_object(name, now=utc_now(), gpus=gpus, labels=labels)
            )

    async def add(self, *workloads: Workload, pool: Pool | None = None) -> None:
        """Nodes of a pool, and workloads whose pods the cluster's controllers make."""
        pools = () if pool is None else (pool,)
        await apply_fleet(self.client, Fleet(pools=pools, workloads=workloads), utc_now())

    async def add_pod(
        self, name: str, node: str, namespace: str = "default", **spec: Any
    ) -> Object:
        """A pod without a controller, put on a node."""
        containers = [{"name": "main", "image": "registry.example/workload:1"}]
        spec = {"nodeName": node, "containers": containers, **spec}
        meta = {"labels": {"app": name}}
        return await made(self.client, PODS, name, namespace, meta=meta, spec=spec)

    async def add_budget(self, name: str, namespace: str = "default", **limits: Any) -> None:
        spec = {"selector": {"matchLabels": {"app": name}}, **limits}
        await made(self.client, POD_DISRUPTION_BUDGETS, name, namespace, spec=spec)

    async def add_namespace(self, name: str) -> None:
        await made(self.client, NAMESPACES, name)

    async def programs_end(self, namespace: str, job: str) -> None:
        """The programs in the pods of a Job end now, as the annotations of the pods say."""

        async def made() -> list[Object]:
            found, _ = await self.client.list(PODS, namespace, label_selector=f"job-name={job}")
            return list(found)

        now = {"metadata": {"annotations": {f"{PREFIX}finish-after": "0"}}}
        for pod in await self.until(made, f"a pod of Job {job}"):
            await self.client.patch(PODS, pod["metadata"]["name"], now, namespace)

    async def pods(self, app: str, *, node: str | None = None) -> list[Object]:
        """The pods of an app, terminating ones too."""
        pods, _ = await self.client.list(PODS, label_selector=f"app={app}")
        return [pod for pod in pods if node is None or node_of(pod) == node]

    async def ready_pods(self, app: str, count: int) -> list[Object]:
        """Wait until an app has exactly `count` pods that are ready and staying."""

        async def enough() -> list[Object]:
            staying = [pod for pod in await self.pods(app) if not is_terminating(pod)]
            good = [pod for pod in staying if is_ready(pod)]
            return good if len(good) == len(staying) == count else []

        found: list[Object] = await self.until(enough, f"{count} ready pods of {app}")
        return found

    async def budget_allows(self, name: str, namespace: str) -> int:
        """Wait until a budget's status is computed and allows a disruption; how many."""

        async def allowed() -> int:
            budget = await self.client.get(POD_DISRUPTION_BUDGETS, name, namespace)
            status = budget.get("status") or {}
            return int(status.get("disruptionsAllowed") or 0)

        found: int = await self.until(allowed, f"a disruption allowed by {name}")
        return found

    async def node(self, name: str) -> Object:
        found: Object = await self.client.get(NODES, name)
        return found

    async def settled(self, *names: str) -> None:
        """Wait until Kubernetes itself has no more to say of fresh nodes: they are Ready."""

        async def ready() -> bool:
            taints = [
                taint["key"]
                for name in names
                for taint in (await self.node(name))["spec"].get("taints", ())
            ]
            return "node.kubernetes.io/not-ready" not in taints

        await self.until(ready, "nodes without the taint of those that are not Ready")

    async def gone(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        async def absent() -> bool:
            try:
                await self.client.get(resource, name, namespace)
            except ApiError as error:
                return error.code == 404
            return False

        await self.until(absent, f"{resource.plural} {name} gone")

    async def until(self, check: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Look until the check gives something true."""
        return await until(check, what)

    async def kubectl(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output and errors of kubectl as administrator; skips where it is
        missing.
        """
        program = shutil.which("kubectl")
        if program is None:
            pytest.skip("kubectl is not installed")
        process = await asyncio.create_subprocess_exec(
            program,
            f"--kubeconfig={self.plane.kubeconfig}",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(self.plane.folder)},
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def a_cluster(
    *, secure: bool, users: Mapping[str, tuple[str, ...]] | None = None
) -> AsyncIterator[Cluster]:
    setup = Setup(manifests=(DEFINITIONS,), secure=secure, users=users or {})
    async with control_plane(setup) as plane:
        yield Cluster(plane, FleetHealth(plane.client, utc_now))
