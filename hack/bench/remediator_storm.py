"""Many nodes fall sick at once: how soon each is marked, what it costs, and the floor beside
it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from hack.bench.remediator_floor import floor_of
from hack.bench.remediator_replica import Replica, bench_cluster, verdicts_of
from hack.sim.cluster.fleet.fleet import Fleet, Pool
from hack.sim.cluster.resource import NODES, Resource
from hack.sim.control_plane import ControlPlane

AGENT = {"gpuward.io/gpus": "8"}
QUARANTINES = Resource("gpuward.io", "v1alpha1", "gpuquarantines", False, "GPUQuarantine")
Figures = dict[str, Any]


async def storm(nodes: int = 1500, sick: int = 750, *, standing: bool = False) -> Figures:
    """From the first sick verdict to the last node unschedulable, and raw patches of the others.

    `standing`: they are sick already when the leader starts.
    """
    fleet = Fleet(pools=(Pool(name="gpu", nodes=nodes, labels=AGENT),))
    async with bench_cluster(fleet, living=False) as plane:
        names = fleet.node_names()[:sick]
        verdicts = await verdicts_of(plane, names)
        watcher = asyncio.create_task(marks_of(plane, set(names)))
        if standing:
            await verdicts.sicken()
        with Replica(plane) as replica:
            await replica.leads(plane)
            cpu, began = replica.cpu_s(), time.time()
            if not standing:
                await verdicts.sicken()
            published_s = time.time() - began
            async with asyncio.timeout(300):
                marked = await watcher
            marks_cpu_s = replica.cpu_s() - cpu
            await _recorded(plane, sick)
            at = sorted(marked.values())
            figures = {
                "nodes": nodes,
                "sick": sick,
                "verdicts published after s": published_s,
                "first unschedulable s": at[0] - began,
                "half unschedulable s": at[len(at) // 2] - began,
                "all unschedulable s": at[-1] - began,
                "first to last mark s": at[-1] - at[0],
                "remediator CPU to the last mark s": marks_cpu_s,
                "all recorded s": time.time() - began,
                "remediator CPU to the last record s": replica.cpu_s() - cpu,
                "API calls": replica.calls(await replica.page()),
            }
        others = fleet.node_names()[sick : 2 * sick]
        if len(others) == sick:
            raw_s = await floor_of(plane.straight_kubeconfig, "marks", others)
            figures["floor: raw patches, first to last s"] = raw_s
            figures["marks by the floor"] = (at[-1] - at[0]) / raw_s
        return figures


async def standing_storm() -> Figures:
    """The same with the verdicts there before the leader."""
    return await storm(standing=True)


async def marks_of(plane: ControlPlane, wanted: set[str]) -> dict[str, float]:
    """When each of those nodes became unschedulable, by a watch; when all of them are."""
    marked: dict[str, float] = {}
    async for kind, node in plane.client.watch(NODES):
        name = node["metadata"].get("name", "")  # a bookmark has none
        if kind != "DELETED" and name in wanted and node["spec"].get("unschedulable"):
            marked.setdefault(name, time.time())
            if len(marked) == len(wanted):
                break
    return marked


async def phases(plane: ControlPlane) -> Counter[str]:
    """How many sessions are in each phase."""
    sessions, _ = await plane.client.list(QUARANTINES)
    return Counter(session.get("status", {}).get("phase", "") for session in sessions)


async def _recorded(plane: ControlPlane, count: int) -> None:
    """Wait until every session says that its node is marked."""
    async with asyncio.timeout(120):
        while True:
            found = await phases(plane)
            if found.total() - found[""] - found["Pending"] >= count:
                return
            await asyncio.sleep(0.3)
