"""How fast the remediator acts and what it costs idle, measured on a real process.

    python -m hack.bench.remediator [storm|standing|evictions|drain|idle|fleet ...]

storm: half of 1,500 nodes fail at once, until all are unschedulable, then raw patches of the other
half; standing: the same with the leader starting last. evictions: per second over twelve PDBs and
within one, beside raw evictions of as many pods. drain: one node, beside `kubectl drain` of its
neighbour. idle: memory, CPU and writes with 5,000 healthy nodes. fleet: the same with 10,000 that
have agents, then page, command and a storm of a tenth. The API server is the simulated one (in
this process), or a real one where KUBEBUILDER_ASSETS names its programs: compare columns of one
run, not runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from hack.bench.remediator_fleet import AGENT, Figures, idle, standing_storm, storm, ten_thousand
from hack.bench.remediator_floor import floor_of
from hack.bench.remediator_replica import LIFTED, PROFILE, Replica, bench_cluster, verdicts_of
from hack.sim.cluster.controllers.pods import is_ready, is_terminating, node_of
from hack.sim.cluster.fleet.fleet import Budget, Fleet, Pool, Serving
from hack.sim.cluster.resource import PODS
from hack.sim.control_plane import ControlPlane

_SILENCE_S = 15.0


async def evictions(budgets: int = 12, nodes: int = 8, pods: int = 20) -> Figures:
    """Evictions per second while several nodes drain at once."""
    # Whoever is evicted finds a place: a third of it is free on each of the other nodes.
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
        verdicts = await verdicts_of(plane, names)
        with Replica(plane) as replica:
            await replica.leads(plane)
            wanted = [pod for pod in await _pods(plane) if node_of(pod) in names]
            await verdicts.sicken()
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
        raw_s = await floor_of(plane.straight_kubeconfig, "evictions", [*map(_line, others)])
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


async def drain(pods: int = 15) -> Figures:
    """One node by verdict and its neighbour by kubectl, in one run."""
    web = Serving(name="web", replicas=pods * 4, pool="gpu", budget=Budget(max_unavailable="10%"))
    fleet = Fleet(
        pools=(Pool(name="gpu", nodes=6, gpus=pods + 5, labels=AGENT),), workloads=(web,)
    )
    async with bench_cluster(fleet) as plane:
        await _until(lambda: _all_ready(plane, pods * 4))
        by_node: dict[str, int] = {}
        for pod in await _pods(plane):
            by_node[node_of(pod)] = by_node.get(node_of(pod), 0) + 1
        first, second = sorted(by_node, key=lambda name: -by_node[name])[:2]
        verdicts = await verdicts_of(plane, [first])
        with Replica(plane) as replica:
            await replica.leads(plane)
            began = time.time()
            await verdicts.sicken()
            await _until(lambda: _empty(plane, first))
            ours = time.time() - began
        await _until(lambda: _all_ready(plane, pods * 4))
        on_second = sum(1 for pod in await _pods(plane) if node_of(pod) == second)
        theirs = await _kubectl_drain(plane, second)
        figures: Figures = {
            "pods, ours": by_node[first],
            "verdict to last pod gone s": ours,
            "pods, kubectl": on_second,
            "kubectl drain s": theirs if theirs is not None else "kubectl is not installed",
        }
        if theirs is not None:
            figures["ours by kubectl's"] = ours / theirs
        return figures


async def _all_ready(plane: ControlPlane, count: int) -> bool:
    staying = [pod for pod in await _pods(plane) if not is_terminating(pod)]
    return sum(1 for pod in staying if is_ready(pod)) == count == len(staying)


async def _empty(plane: ControlPlane, node: str) -> bool:
    return not any(node_of(pod) == node for pod in await _pods(plane))


async def _until(check: Callable[[], Awaitable[bool]], patience_s: float = 300) -> None:
    async with asyncio.timeout(patience_s):
        while not await check():  # noqa: ASYNC110 - the API server has no event to wait for
            await asyncio.sleep(0.05)


async def _kubectl_drain(plane: ControlPlane, node: str) -> float | None:
    program = shutil.which("kubectl")
    if program is None:
        return None
    began = time.time()
    process = await asyncio.create_subprocess_exec(
        program,
        f"--kubeconfig={plane.kubeconfig}",
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOME": tempfile.gettempdir()},
    )
    status = await process.wait()
    if status != 0:
        raise RuntimeError(f"kubectl drain ended with {status}")
    return time.time() - began


async def one_budget() -> Figures:
    """The same within a single PDB."""
    return await evictions(budgets=1, nodes=4)


BENCHES: dict[str, list[tuple[str, Callable[[], Coroutine[Any, Any, Figures]]]]] = {
    "storm": [("storm", storm)],
    "standing": [("storm before the leader", standing_storm)],
    "evictions": [("evictions over 12 PDBs", evictions), ("evictions within one PDB", one_budget)],
    "drain": [("drain of one node", drain)],
    "idle": [("idle", idle)],
    "fleet": [("10,000 nodes with agents", ten_thousand)],
}


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
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("which", nargs="*", choices=[*BENCHES, []])
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
    for which in arguments.which or BENCHES:
        for title, bench in BENCHES[which]:
            runs: list[Figures] = [asyncio.run(bench()) for _ in range(arguments.repeat)]
            for run in runs:
                show(title, run)
            results[title] = runs
            if len(runs) > 1:
                results[f"{title}, median"] = medians(runs)
                show(f"{title}, median of {len(runs)}", results[f"{title}, median"])
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
