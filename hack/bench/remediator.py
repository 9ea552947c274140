"""How fast the remediator evicts pods within PodDisruptionBudgets, measured on a real process.

    python -m hack.bench.remediator

Evictions per second over twelve PDBs, and raw evictions of as many pods. The API server is the
simulated one (in this process), or a real one where KUBEBUILDER_ASSETS names its programs:
compare columns of one run, not runs. `hack.bench.fleet` measures everything else.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hack.bench.remediator_floor import floor_of
from hack.bench.remediator_replica import LIFTED, PROFILE, Replica, assessments_of, bench_cluster
from hack.sim.cluster.controllers.pods import is_ready, is_terminating, node_of
from hack.sim.cluster.fleet.fleet import Budget, Fleet, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import PODS
from hack.sim.control_plane import ControlPlane

Figures = dict[str, Any]
AGENT = {"gpuward.io/gpus": "8"}
TITLE = "evictions over 12 PDBs"
_SILENCE_S = 15.0


async def evictions(budgets: int = 12, nodes: int = 8, pods: int = 20) -> Figures:
    """Evictions per second while several nodes drain at once."""
    # Evicted pods fit elsewhere: a third of each other node is free.
    pools = (Pool(name="gpu", nodes=nodes * 4, gpus=pods + (pods + 2) // 3, labels=AGENT),)
    each = nodes * 4 * pods // budgets
    served = tuple(
        Serving(
            name=f"api-{number:02d}",
            replicas=each,
            pool="gpu",
            budget=Budget(max_unavailable="60%"),
        )
        for number in range(budgets)
    )
    async with bench_cluster(Fleet(pools=pools, workloads=served)) as plane:
        names = Fleet(pools=pools).node_names()[:nodes]
        await _until(lambda: _all_ready(plane, each * budgets))
        assessments = await assessments_of(plane, names)
        with Replica(plane.straight_kubeconfig) as replica:
            await replica.leads(plane)
            wanted = [pod for pod in await _pods(plane) if node_of(pod) in names]
            await assessments.all_fail(names, XID_79)
            cpu = replica.cpu_s()
            times = await _evicted(plane, {pod["metadata"]["uid"] for pod in wanted})
            span = max(0.001, times[-1] - times[0])
            figures = {
                "PDBs": budgets,
                "nodes": nodes,
                "evicted": len(times),
                "seconds": span,
                "evictions per second": len(times) / span,
                "remediator CPU s": replica.cpu_s() - cpu,
                "API calls": replica.calls(await replica.page()),
            }
        await _until(lambda: _all_ready(plane, each * budgets))
        others = [pod for pod in await _pods(plane) if node_of(pod) not in names][: len(times)]
        raw_s = await floor_of(plane.straight_kubeconfig, [*map(_line, others)])
        figures["floor: raw evictions per second"] = len(others) / raw_s
        figures["of the floor"] = len(times) / span / (len(others) / raw_s)
        return figures


def _line(pod: Any) -> str:
    """A pod for the floor: its budget is called as its app."""
    metadata = pod["metadata"]
    return f"{metadata['namespace']} {metadata['name']} {metadata['labels'].get('app', '')}"


async def _evicted(plane: ControlPlane, wanted: set[str]) -> list[float]:
    """Times at which those pods (by UID) began to leave, by a watch, until all of them did or none
    more for 15 s.
    """
    seen: dict[str, float] = {}
    changes = plane.client.watch(PODS)
    with contextlib.suppress(TimeoutError):
        while len(seen) < len(wanted):
            async with asyncio.timeout(_SILENCE_S):
                kind, pod = await anext(changes)
            uid = pod["metadata"].get("uid", "")  # a bookmark has none
            conditions = pod.get("status", {}).get("conditions", [])
            leaves = kind == "DELETED" or any(c["type"] == "DisruptionTarget" for c in conditions)
            if leaves and uid in wanted:
                seen.setdefault(uid, time.time())
    return sorted(seen.values())


async def _pods(plane: ControlPlane) -> list[Any]:
    pods, _ = await plane.client.list(PODS)
    return pods


async def _all_ready(plane: ControlPlane, count: int) -> bool:
    staying = [pod for pod in await _pods(plane) if not is_terminating(pod)]
    return sum(1 for pod in staying if is_ready(pod)) == count == len(staying)


async def _until(check: Callable[[], Awaitable[bool]], timeout_s: float = 300) -> None:
    async with asyncio.timeout(timeout_s):
        while not await check():  # noqa: ASYNC110 - the API server has no event to wait for
            await asyncio.sleep(0.05)


def medians(runs: list[Figures]) -> Figures:
    """Of every figure that is a number in all runs."""
    return {
        name: statistics.median(run[name] for run in runs)
        for name in runs[0]
        if all(isinstance(run.get(name), int | float) for run in runs)
    }


def show(title: str, figures: Figures) -> None:
    """One table."""
    print(f"\n{title}", flush=True)
    for name, value in figures.items():
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        print(f"  {name:<34}{text}", flush=True)


def main() -> int:
    """Run the benchmark as often as asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each (default: 1)")
    parser.add_argument(
        "--profile", metavar="FILE", help="where the remediator's profile goes (pstats; slower)"
    )
    arguments = parser.parse_args()
    if arguments.profile:
        os.environ[PROFILE] = arguments.profile
    real = bool(os.environ.get("KUBEBUILDER_ASSETS"))
    results: dict[str, Any] = {"control plane": "real" if real else "simulated"}
    print(f"control plane: {results['control plane']}, limits lifted: {' '.join(LIFTED.split())}")
    runs: list[Figures] = [asyncio.run(evictions()) for _ in range(arguments.repeat)]
    for run in runs:
        show(TITLE, run)
    results[TITLE] = runs
    if len(runs) > 1:
        results[f"{TITLE}, median"] = medians(runs)
        show(f"{TITLE}, median of {len(runs)}", results[f"{TITLE}, median"])
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
