"""A fleet: what it costs to watch it, and how soon each of many sick nodes is quarantined.

`storm`: many nodes fail at once; the baseline is raw patches.
`ten_thousand`: nodes as the GPU operator and node feature discovery label them, each with a Ready
agent pod and a healthy health status; then the page, a command, and a tenth of the nodes sick at
once. The budgets are lifted.
"""

import asyncio
import statistics
import sys
import time
from collections import Counter
from typing import Any

from hack.bench.browser import CHROMIUM, Browser
from hack.bench.remediator_floor import floor_of
from hack.bench.remediator_replica import Replica, assessments_of, bench_cluster
from hack.sim.cluster.controllers.pods import stamp
from hack.sim.cluster.controllers.suite import utc_now
from hack.sim.cluster.fleet.fleet import Fleet, Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import NODES, PODS, Resource
from hack.sim.control_plane import ControlPlane
from rules.api.health import PublisherPod

AGENT = {"gpuward.io/gpus": "8"}
QUARANTINES = Resource("gpuward.io", "v1alpha1", "gpuquarantines", False, "GPUQuarantine")
Figures = dict[str, Any]


async def storm(nodes: int = 1500, sick: int = 750) -> Figures:
    """From the first sick health status to the last node unschedulable; raw patches of the
    others.
    """
    fleet = Fleet(pools=(Pool(name="gpu", nodes=nodes, labels=AGENT),))
    async with bench_cluster(fleet, living=False) as plane:
        names = fleet.node_names()[:sick]
        assessments = await assessments_of(plane, names)
        watcher = asyncio.create_task(taints_of(plane, set(names)))
        with Replica(plane) as replica:
            await replica.leads(plane)
            cpu, began = replica.cpu_s(), time.time()
            await assessments.all_fail(names, XID_79)
            published_s = time.time() - began
            async with asyncio.timeout(300):
                quarantined = await watcher
            taints_cpu_s = replica.cpu_s() - cpu
            await _recorded(plane, sick)
            at = sorted(quarantined.values())
            figures = {
                "nodes": nodes,
                "sick": sick,
                "health statuses published after s": published_s,
                "first unschedulable s": at[0] - began,
                "half unschedulable s": at[len(at) // 2] - began,
                "all unschedulable s": at[-1] - began,
                "first to last quarantine s": at[-1] - at[0],
                "remediator CPU to the last quarantine s": taints_cpu_s,
                "all recorded s": time.time() - began,
                "remediator CPU to the last record s": replica.cpu_s() - cpu,
                "API calls": replica.calls(await replica.page()),
            }
        others = fleet.node_names()[sick : 2 * sick]
        if len(others) == sick:
            raw_s = await floor_of(plane.straight_kubeconfig, "taints", others)
            figures["floor: raw patches, first to last s"] = raw_s
            figures["taints and cordons by the floor"] = (at[-1] - at[0]) / raw_s
        return figures


async def taints_of(plane: ControlPlane, wanted: set[str]) -> dict[str, float]:
    """When each of those nodes became unschedulable, by a watch; when all of them are."""
    quarantined: dict[str, float] = {}
    async for kind, node in plane.client.watch(NODES):
        name = node["metadata"].get("name", "")  # a bookmark has none
        if kind != "DELETED" and name in wanted and node["spec"].get("unschedulable"):
            quarantined.setdefault(name, time.time())
            if len(quarantined) == len(wanted):
                break
    return quarantined


async def phases(plane: ControlPlane) -> Counter[str]:
    """How many sessions are in each phase."""
    sessions, _ = await plane.client.list(QUARANTINES)
    return Counter(session.get("status", {}).get("phase", "") for session in sessions)


async def _recorded(plane: ControlPlane, count: int) -> None:
    """Wait until every session is Quarantined."""
    async with asyncio.timeout(120):
        while True:
            found = await phases(plane)
            if found.total() - found[""] - found["Pending"] >= count:
                return
            await asyncio.sleep(0.3)


NODE_LABELS = {
    **AGENT,
    "gpuward.io/health": "healthy",
    "gpuward.io/gpus-healthy": "8",
    "gpuward.io/interconnect": "nvswitch",
    "gpuward.io/driver": "580.95.05",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{n:02}": "true" for n in range(50)},
}
"""As many as such nodes carry: a cache that keeps them all must not grow by them."""
_AT_ONCE = 64
_LOOKS = 5


async def _quiet(
    plane: ControlPlane, replica: Replica, began: float, seconds: float
) -> dict[str, Any]:
    await replica.ready()
    ready_s = time.time() - began
    await replica.leads(plane)
    await asyncio.sleep(3)
    before, cpu = replica.calls(await replica.page()), replica.cpu_s()
    await asyncio.sleep(seconds)
    after = replica.calls(await replica.page())
    lease = {key for key in after if "lease" in key}
    reads = {key for key in after if key.startswith("GET") or key in lease}
    return {
        "start to ready s": ready_s,
        "proportional set MiB": replica.memory_mib(),
        "CPU % of a core": 100 * (replica.cpu_s() - cpu) / seconds,
        "lease writes": sum(after[k] - before.get(k, 0) for k in lease if not k.startswith("GET")),
        "other writes": sum(after[key] - before.get(key, 0) for key in after if key not in reads),
    }


async def ten_thousand(nodes: int = 10_000, seconds: float = 60.0) -> Figures:
    """The same with agents; page and command; then a tenth of the nodes fall sick."""
    fleet = Fleet(pools=(Pool(name="gpu", nodes=nodes, labels=NODE_LABELS),))
    async with bench_cluster(fleet, living=False) as plane:
        names = fleet.node_names()
        assessments = await assessments_of(plane, names, await agent_pods(plane, names))
        began = time.time()
        with Replica(plane) as replica:
            figures = {"nodes": nodes, **await _quiet(plane, replica, began, seconds)}
            figures["page, first paint s"] = await first_paint(replica.page_url())
            figures["kubectl gpuward fleet s"] = await _command(plane, "fleet")
            sick = names[: nodes // 10]
            taints = asyncio.create_task(taints_of(plane, set(sick)))
            cpu, began = replica.cpu_s(), time.time()
            await assessments.all_fail(sick, XID_79)
            figures["sick"] = len(sick)
            figures["health statuses published after s"] = time.time() - began
            async with asyncio.timeout(300):
                at = sorted((await taints).values())
            figures["first unschedulable s"] = at[0] - began
            figures["all unschedulable s"] = at[-1] - began
            figures["remediator CPU to the last quarantine s"] = replica.cpu_s() - cpu
            figures["page in the storm, first paint s"] = await first_paint(replica.page_url())
            figures["proportional set after it MiB"] = replica.memory_mib()
            return figures


async def agent_pods(plane: ControlPlane, names: list[str]) -> dict[str, PublisherPod]:
    """A Ready agent pod on each node, as the DaemonSet makes them."""
    gate = asyncio.Semaphore(_AT_ONCE)
    now = stamp(utc_now())

    async def one(name: str) -> tuple[str, PublisherPod]:
        async with gate:
            pod = await plane.client.create(PODS, _agent_pod(name), "gpuward")
            pod["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            }
            await plane.client.update_status(PODS, pod, "gpuward")
            await asyncio.sleep(0)
        metadata = pod["metadata"]
        return name, PublisherPod(pod=f"gpuward/{metadata['name']}", pod_uid=metadata["uid"])

    return dict(await asyncio.gather(*map(one, names)))


def _agent_pod(node: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "gpuward",
        "app.kubernetes.io/component": "agent",
        "controller-revision-hash": "5d8f7c9b6f",
        "pod-template-generation": "1",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"gpuward-agent-{node}", "namespace": "gpuward", "labels": labels},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "agent", "image": "ghcr.io/example/gpuward-agent:1"}],
        },
    }


async def first_paint(url: str) -> float | str:
    """Seconds from asking for the page to its first content on a screen, median of some looks."""
    if CHROMIUM is None:
        return "chromium is not installed"
    paints = []
    for _ in range(_LOOKS):
        async with Browser() as browser:
            await browser.go(url)
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            await browser.until(f"{paint} > 0")
            paints.append(float(await browser.js(paint)) / 1000)
    return statistics.median(paints)


async def _command(plane: ControlPlane, *arguments: str) -> float:
    began = time.time()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "remediator.kubectl.cli", *arguments),
        f"--kubeconfig={plane.straight_kubeconfig}",
        stdout=asyncio.subprocess.DEVNULL,
    )
    if await process.wait() != 0:
        raise RuntimeError(
            f"kubectl gpuward {' '.join(arguments)} ended with {process.returncode}"
        )
    return time.time() - began
