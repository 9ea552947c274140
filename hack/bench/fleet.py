"""Measure a fleet end to end on a real API server: from detection to back in service.

    KUBEBUILDER_ASSETS=DIR python -m hack.bench.fleet --nodes 10000 --faults 200 --pods 4

It starts etcd and kube-apiserver, installs gpuward from `daemonset`, creates nodes without
machines, and runs gpuward-remediator with its own service account. Then nodes report Xid 79. Their
pods end within 1 s of their eviction, and an empty, quarantined node reboots in 5 s.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hack.bench import audit
from hack.bench.hollow_fleet import HollowFleet
from hack.bench.remediator_replica import LIFTED, ROOT, Replica
from hack.sim.cluster.controllers.suite import Parts
from hack.sim.control_plane import ASSETS, ControlPlane, Setup, control_plane
from hack.sim.manifests import post_manifests, read_manifests
from hack.sim.real_control_plane import ControlPlaneError

Figures = dict[str, Any]
ACCOUNT = ("gpuward", "gpuward-remediator")
LISTS_FROM_ETCD = ("--emulated-version=1.33", "--feature-gates=ConsistentListFromCache=false")
"""The gate is locked from Kubernetes 1.34 on."""
_SETTLE_S = 5.0
_RECORDS_S, _RECORDS_PER_S = 30.0, 5.0
"""The longest time until GPURecords of changed nodes are written, and how many then are."""
_OF_RECORDS = {"gpurecords", "gpurecords/status", "gpunodehealths"}
_FAILOVER_NODES = 20
_FAILOVER_S = 120.0


def percentiles(seconds: Iterable[float]) -> Figures:
    """Return P50, P99 and the maximum by nearest rank, and the number of values."""
    found = sorted(seconds)
    if not found:
        return {"nodes": 0}
    last = len(found) - 1
    ranks = {"p50": len(found) // 2, "p99": min(last, int(len(found) * 0.99)), "max": last}
    return {**{name: found[at] for name, at in ranks.items()}, "nodes": len(found)}


async def measure(options: argparse.Namespace, assets: Path) -> Figures:
    """Run the benchmark with these options."""
    with tempfile.TemporaryDirectory(prefix="gpuward-bench-") as temporary:
        folder = Path(temporary)
        setup = Setup(
            parts=Parts(controllers=False, scheduler=False, kubelets=False),
            assets=assets,
            flags=(
                *audit.server_flags(folder, "system:serviceaccount:" + ":".join(ACCOUNT)),
                *(LISTS_FROM_ETCD if options.lists_from_etcd else ()),
            ),
        )
        async with control_plane(setup) as plane:
            installed = read_manifests(ROOT / "daemonset")
            await post_manifests(plane.client, installed, namespace=ACCOUNT[0])
            fleet = HollowFleet(plane.client, options.nodes)
            await fleet.create()
            sick = fleet.names[:: max(1, options.nodes // max(1, options.faults))]
            sick = sick[: options.faults]
            await fleet.add_workload(sick, options.pods)
            _progress(f"{options.nodes} nodes are up")
            kubeconfig = folder / "remediator.kubeconfig"
            kubeconfig.write_text(await _kubeconfig(plane))
            async with fleet.alive():
                return await _phases(options, plane, fleet, sick, kubeconfig)


async def _phases(
    options: argparse.Namespace,
    plane: ControlPlane,
    fleet: HollowFleet,
    sick: list[str],
    kubeconfig: Path,
) -> Figures:
    policy = options.policy.read_text() if options.policy else LIFTED
    version = (await plane.client.request("GET", "/version"))["gitVersion"]
    figures: Figures = {"Kubernetes": version, "nodes": options.nodes, "pods a node": options.pods}
    with contextlib.ExitStack() as replicas:
        began = time.time()
        leader = replicas.enter_context(Replica(kubeconfig, policy))
        await leader.leads(plane)
        figures["start to leading s"] = time.time() - began
        await leader.ready()
        await asyncio.sleep(_SETTLE_S)
        if options.idle:
            cpu = leader.cpu_s()
            await asyncio.sleep(options.idle)
            figures["idle CPU % of a core"] = 100 * (leader.cpu_s() - cpu) / options.idle
            figures["idle memory MiB"] = leader.memory_mib()
            _progress("idle fleet measured")
        if sick:
            audit_log = audit.log_of(kubeconfig.parent)
            figures |= await _faults(options, fleet, sick, leader, audit_log)
        if options.failover:
            standby = replicas.enter_context(Replica(kubeconfig, policy, identity="standby"))
            await standby.ready()
            await asyncio.sleep(_SETTLE_S)
            figures |= await _failover(fleet, leader)
    return figures


async def _faults(
    options: argparse.Namespace,
    fleet: HollowFleet,
    sick: list[str],
    leader: Replica,
    audit_log: Path,
) -> Figures:
    """Let the nodes fail and wait until all are back in service."""
    cpu, began = leader.cpu_s(), time.time()
    lasts_s = len(sick) / options.rate if options.rate else 0.0
    quarters, _ = await asyncio.gather(_quarters(leader, lasts_s), fleet.fail(sick, options.rate))
    _progress(f"{len(sick)} faults are reported")
    if not await fleet.until(lambda: len(fleet.released) == len(sick), options.timeout):
        _progress(f"not all nodes are back in service after {options.timeout:.0f} s more")
    await asyncio.sleep(_SETTLE_S)
    stages = {
        "taint and cordon": fleet.quarantined,
        "pods gone": fleet.empty,
        "back in service": fleet.released,
    }
    calls, ended = _calls(audit_log, began), time.time()
    figures = {
        "faults": len(sick),
        "faults per second": options.rate or "all at once",
        "remediator CPU s": leader.cpu_s() - cpu,
        "remediator memory MiB": leader.memory_mib(),
        **quarters,
        "API calls per session": sum(each.number for each in calls) / len(sick),
    }
    await asyncio.sleep(_RECORDS_S + (0.0 if options.rate else len(sick) / _RECORDS_PER_S))
    later = [one for one in _calls(audit_log, ended) if one.resource in _OF_RECORDS]
    return {
        **figures,
        "API calls per session, GPU records later": sum(one.number for one in later) / len(sick),
        "stages": {name: _since_detection(fleet, at) for name, at in stages.items()},
        "calls": [each._asdict() for each in calls],
    }


def _calls(audit_log: Path, since: float) -> list[audit.Calls]:
    with audit_log.open(encoding="utf-8") as log:
        return audit.calls(log, since)


async def _quarters(leader: Replica, lasts_s: float) -> Figures:
    """Return CPU and memory of each quarter of the time in which nodes fail one by one."""
    if not lasts_s:
        return {}
    cpu_percent, memory_mib = [], []
    for _ in range(4):
        cpu, began = leader.cpu_s(), time.time()
        await asyncio.sleep(lasts_s / 4)
        cpu_percent.append(round(100 * (leader.cpu_s() - cpu) / (time.time() - began), 2))
        memory_mib.append(round(leader.memory_mib(), 1))
    return {
        "CPU % of a core, by quarter": cpu_percent,
        "memory MiB, by quarter": memory_mib,
    }


def _since_detection(fleet: HollowFleet, at: Mapping[str, float]) -> Figures:
    return percentiles(when - fleet.detected[node] for node, when in at.items())


async def _failover(fleet: HollowFleet, leader: Replica) -> Figures:
    """Kill the leader while further nodes fail. Return when the other replica acts."""
    nodes = [name for name in fleet.names if name not in fleet.detected][:_FAILOVER_NODES]
    leader.kill()
    killed = time.time()
    await fleet.fail(nodes)
    if not await fleet.until(lambda: fleet.quarantined.keys() >= set(nodes), _FAILOVER_S):
        raise TimeoutError(f"no taint and cordon within {_FAILOVER_S:.0f} s of the failover")
    at = sorted(fleet.quarantined[node] - killed for node in nodes)
    return {
        "leader killed to first taint and cordon s": at[0],
        f"the same, all {len(nodes)} nodes s": at[-1],
    }


async def _kubeconfig(plane: ControlPlane) -> str:
    """The kubeconfig of the remediator's service account, straight to the API server."""
    config = yaml.safe_load(plane.straight_kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": await plane.service_account_token(*ACCOUNT)}
    return yaml.safe_dump(config)


_STARTED = time.time()


def _progress(text: str) -> None:
    print(f"[{time.time() - _STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


def table(figures: Figures) -> str:
    """Return the figures as text: values, latency of each stage, calls per session."""
    lines = [
        f"{name:<44}{f'{value:.2f}' if isinstance(value, float) else value}"
        for name, value in figures.items()
        if name not in {"stages", "calls"}
    ]
    if "stages" in figures:
        lines += ["", f"{'seconds after detection':<28}{'P50':>9}{'P99':>9}{'max':>9}{'nodes':>8}"]
        for name, stage in figures["stages"].items():
            times = "".join(
                f"{stage[key]:>9.2f}" if key in stage else f"{'-':>9}"
                for key in ("p50", "p99", "max")
            )
            lines.append(f"{name:<28}{times}{stage['nodes']:>8}")
        lines += [
            "",
            f"{'API calls':<52}{'number':>7}{'a session':>11}{'mean ms':>9}{'refused':>9}",
        ]
        for one in (audit.Calls(**fields) for fields in figures["calls"]):
            call = f"{one.verb} {one.resource}"
            a_session = one.number / figures["faults"]
            lines.append(
                f"{call:<52}{one.number:>7}{a_session:>11.2f}{one.mean_ms:>9.1f}{one.refused:>9}"
            )
    return "\n".join(lines)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m hack.bench.fleet", description=(__doc__ or "").split("\n", 1)[0]
    )
    add = parser.add_argument
    add("--nodes", type=int, default=1000, help="nodes (default: 1000)")
    add("--faults", type=int, default=100, help="nodes that fail (default: 100; 0: none)")
    add("--pods", type=int, default=4, help="workload pods on a faulty node (default: 4)")
    add("--rate", type=float, default=0.0, help="faults per second (default: all at once)")
    add("--idle", type=float, default=0.0, metavar="S", help="first measure S s without faults")
    add("--failover", action="store_true", help="at the end kill the leader of two replicas")
    add("--policy", type=Path, metavar="FILE", help="policy (default: no limits, short waits)")
    add(
        "--lists-from-etcd",
        action="store_true",
        help="turn off ConsistentListFromCache in the API server (emulates Kubernetes 1.33)",
    )
    add(
        "--timeout",
        type=float,
        default=400.0,
        metavar="S",
        help="end S s after the last fault (default: 400)",
    )
    add("-o", "--output", choices=("table", "json"), default="table", help="output format")
    options = parser.parse_args(arguments)
    if not 0 <= options.faults <= options.nodes:
        parser.error("--faults must be between 0 and --nodes")
    if options.failover and options.faults == options.nodes:
        parser.error("--failover needs nodes without a fault: raise --nodes")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and print its figures; 1 if not all nodes came back, 2 for bad input."""
    options = parse(arguments)
    if not (assets := os.environ.get(ASSETS)):
        print(
            f"{ASSETS} is not set: point it at a folder with etcd and kube-apiserver",
            file=sys.stderr,
        )
        return 2
    try:
        figures = asyncio.run(measure(options, Path(assets)))
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(figures) if options.output == "json" else table(figures))
    back = figures["stages"]["back in service"]["nodes"] if "stages" in figures else 0
    return int(back < options.faults)


if __name__ == "__main__":
    sys.exit(main())
