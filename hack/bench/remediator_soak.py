"""Hours of faults and repairs in minutes: what a cycle costs while history grows.

Every cycle the same nodes fall sick, are marked, heal and are released; windows that last minutes
or days in a cluster last seconds here, and of each node 20 sessions are kept: pruning has to
keep up. Printed per cycle: CPU of the remediator, its memory, and
the sessions that are kept. Cost that depends on history shows as a rise.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from hack.bench.remediator_replica import Replica, bench_cluster, verdicts_of
from hack.bench.remediator_storm import AGENT, Figures, phases
from hack.sim.cluster.fleet.fleet import Fleet, Pool
from hack.sim.control_plane import ControlPlane

SOAKED = """
mode: Enforce
budget:
  maxUnavailable: {percent: 100, atMost: 100000}
  maxNew: {count: 100000, window: 20s}
  perReason: {count: 100000, window: 20s}
  cooldown: 1s
drain: {settle: 1s, gangWindow: 1s}
release: {healthyFor: 1s, cancelExpiry: 1s, replaceAfter: 100000}
limits: {nodesDraining: 100}
"""
_TAIL = 10
"""Cycles that are compared: the second ten with the last ten."""


async def soak(
    nodes: int = 500, sick: int = 100, cycles: int = 50, policy: str = SOAKED
) -> Figures:
    """So many cycles of `sick` nodes falling sick and healthy again."""
    fleet = Fleet(pools=(Pool(name="gpu", nodes=nodes, labels=AGENT),))
    async with bench_cluster(fleet, living=False) as plane:
        names = fleet.node_names()[:sick]
        verdicts = await verdicts_of(plane, names)
        with Replica(plane, policy) as replica:
            await replica.leads(plane)
            cpu_s: list[float] = []
            memory: list[float] = []
            kept = 0
            for cycle in range(1, cycles + 1):
                before, began = replica.cpu_s(), time.time()
                await verdicts.sicken()
                await _sessions(plane, "Quarantined", sick)
                await verdicts.heal()
                kept = await _sessions(plane, "", 0)
                cpu_s.append(replica.cpu_s() - before)
                memory.append(replica.memory_mib())
                print(
                    f"  cycle {cycle}: {cpu_s[-1]:.2f} s of CPU, {memory[-1]:.1f} MiB, "
                    f"{kept} sessions kept, {time.time() - began:.1f} s",
                    flush=True,
                )
            return _figures(cpu_s, memory, kept)


def _figures(cpu_s: list[float], memory: list[float], kept: int) -> Figures:
    tail = min(_TAIL, max(1, len(cpu_s) // 3))
    early, late = slice(tail, 2 * tail), slice(-tail, None)
    found: dict[str, Any] = {
        "cycles": len(cpu_s),
        "sessions kept": kept,
        "CPU per cycle, early s": statistics.mean(cpu_s[early]),
        "CPU per cycle, late s": statistics.mean(cpu_s[late]),
        "memory, early MiB": statistics.mean(memory[early]),
        "memory, late MiB": statistics.mean(memory[late]),
    }
    found["CPU, late by early"] = found["CPU per cycle, late s"] / found["CPU per cycle, early s"]
    found["memory, late by early"] = found["memory, late MiB"] / found["memory, early MiB"]
    return found


async def _sessions(plane: ControlPlane, phase: str, count: int) -> int:
    """Wait until so many open sessions are there, all in that phase; how many are kept."""
    async with asyncio.timeout(300):
        while True:
            found = await phases(plane)
            ended = sum(found[name] for name in ("Released", "Cancelled", "NodeGone"))
            if found.total() - ended == count and found[phase] == count:
                return found.total()
            await asyncio.sleep(0.2)
