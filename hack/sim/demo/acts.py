"""The demo's faults: how each one arrives, what must come of it, and what did.

An act breaks something the way it breaks in the field (a kernel line, a counter in the driver, a
health status) and then only watches the API server. What it returns is what happened, never what
was hoped for.
"""

import asyncio

from hack.sim.cluster.controllers.pods import is_ready
from hack.sim.cluster.fleet.fleet_health import Fault
from hack.sim.demo.ledger import until
from hack.sim.demo.outcome import (
    DWELL_S,
    STEP_S,
    TIMEOUT_S,
    Act,
    Outcome,
    Stopwatch,
    active,
    phase,
    reasons,
)
from hack.sim.demo.repairs import (
    load_finds_more,
    machine_replaced,
    one_gpu_reset,
    repair,
    reset_does_not_heal,
    reset_heals,
)
from hack.sim.demo.stage import SOLO, Stage
from rules.api.quarantine import Phase
from rules.catalog.xid import reason_for_xid


async def thermal_slowdown(stage: Stage) -> Outcome:
    """A GPU throttles: Degraded and reported, the node keeps working."""
    node = stage.cast.hot
    ledger = stage.ledger
    for degrees in (58, 67, 76):
        stage.agents[node].edit(
            {"gpus": {2: {"temperature": {"gpu": degrees, "margin": 87 - degrees}}}}
        )
        await asyncio.sleep(STEP_S)
    stage.agents[node].edit({"gpus": {2: {"clock_events": ["hw_slowdown", "hw_thermal"]}}})
    seen = await until(lambda: ledger.degraded(node) == "True", within_s=TIMEOUT_S)
    await asyncio.sleep(DWELL_S)
    untouched = node not in ledger.unschedulable_at
    return Outcome(
        true=seen and untouched and ledger.healthy(node) == "True",
        text=(
            f"GPUDegraded={ledger.degraded(node) or '-'}, "
            f"GPUHealthy={ledger.healthy(node) or '-'}, node "
            f"{'untouched' if untouched else 'TAKEN'}"
        ),
        path="NVML poll",
    )


async def memory_wears(stage: Stage) -> Outcome:
    """Uncorrectable memory errors add up on one GPU: Degraded and reported, the node works on."""
    node = stage.cast.worn
    ledger = stage.ledger
    for errors in (1, 2, 3):
        counts = {"dram_uncorrected": errors}
        stage.agents[node].edit({"gpus": {6: {"ecc": {"volatile": counts, "aggregate": counts}}}})
        await asyncio.sleep(STEP_S)
    seen = await until(lambda: active(stage, node, "EccUncorrectableVolatile"), within_s=TIMEOUT_S)
    untouched = node not in ledger.unschedulable_at
    return Outcome(
        true=seen and untouched and ledger.healthy(node) == "True",
        text=f"{reasons(stage, node)}, node {'untouched' if untouched else 'TAKEN'}",
        path="NVML poll",
    )


async def link_fails(stage: Stage) -> Outcome:
    """An NVLink counts errors, then goes down: no new work there, running pods stay."""
    node = stage.cast.linked
    ledger = stage.ledger
    for errors in (40, 400):
        stage.agents[node].edit({"gpus": {1: {"nvlink": {"crc": {7: errors}}}}})
        await asyncio.sleep(STEP_S)
    stage.agents[node].edit({"gpus": {1: {"nvlink": {"down": [7]}}}})
    seen = await until(
        lambda: active(stage, node, "NVLinkDown") and ledger.quarantined(node), within_s=TIMEOUT_S
    )
    stay = bool(ledger.running_on(node, "serving"))
    return Outcome(
        true=seen and stay,
        text=f"{reasons(stage, node)}, {phase(stage, node)}, pods {'stay' if stay else 'GONE'}",
        path="NVML poll",
    )


async def by_hand(stage: Stage) -> Outcome:
    """An operator cordons a node with the plugin, asks why, and gives it back."""
    node = stage.cast.by_hand
    ledger = stage.ledger
    reason = ("--reason", "fan noise", "--yes")
    code, _ = await stage.plugin("quarantine", node, "--level", "Cordon", *reason)
    taken = code == 0 and await until(lambda: ledger.quarantined(node), within_s=TIMEOUT_S)
    _, why = await stage.plugin("why", node)
    code, _ = await stage.plugin("release", node, *reason)
    back = code == 0 and await until(lambda: ledger.clean(node), within_s=TIMEOUT_S)
    return Outcome(
        true=taken and back and "fan noise" in why,
        text=f"{'taken' if taken else 'NOT taken'}, {'returned' if back else 'NOT returned'}",
        path="kubectl gpuward",
    )


GANG, GANG_PODS = "llm-0", 2

XID_79 = (
    "NVRM: Xid (PCI:0000:61:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
XID_31 = (
    "NVRM: Xid (PCI:0000:43:00): 31, pid=41210, name=python3, Ch 00000008, intr 00000000. MMU "
    "Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2c_5a000000. Fault is of type FAULT_PDE "
    "ACCESS_TYPE_VIRT_READ"
)
XID_95 = "NVRM: Xid (PCI:0000:9d:00): 95, pid=7731, name=tritonserver, Uncontained ECC error"


async def fallen_off_the_bus(stage: Stage) -> Outcome:
    """Xid 79 on a training node: quarantined within a second, drained, quarantined."""
    node = stage.cast.training
    watch = Stopwatch.start(stage, node)
    stage.agents[node].kernel_line(XID_79)
    stage.agents[node].edit({"gpus": {3: {"lost": True}}})
    ledger = stage.ledger
    latency = await watch.unschedulable()
    done = await until(
        lambda: Phase.QUARANTINED in ledger.phases.get(node, ()), within_s=TIMEOUT_S
    )
    left = ledger.running_on(node, "training")
    evicted = (ledger.status(node).get("drain") or {}).get("evicted", 0)
    quick = latency is not None and latency.quick
    return Outcome(
        true=done and quick and not left and ledger.healthy(node) == "False",
        text=f"{phase(stage, node)}, {evicted} evicted, {_gang(stage)}",
        path="kernel line",
        latency=latency,
    )


def _gang(stage: Stage) -> str:
    """How the training gang of the lost node continues: it needs all its pods."""
    pods = [pod for (_, name), pod in stage.ledger.pods.items() if name.startswith(f"{GANG}-")]
    ready = sum(is_ready(pod) for pod in pods)
    return f"its gang runs with {ready} of {GANG_PODS} pods"


async def program_fault(stage: Stage) -> Outcome:
    """Xid 31 from a program: written down, and nothing else happens to the node."""
    node = stage.cast.program
    ledger = stage.ledger
    stage.agents[node].kernel_line(XID_31)
    seen = await until(
        lambda: any(31 in i.get("xids", ()) for i in ledger.incidents(node)), within_s=TIMEOUT_S
    )
    await asyncio.sleep(DWELL_S)
    untouched = node not in ledger.unschedulable_at and ledger.session(node) is None
    return Outcome(
        true=seen and untouched and ledger.healthy(node) == "True",
        text=f"{'recorded' if seen else 'missing'}, node {'untouched' if untouched else 'TAKEN'}",
        path="kernel line",
    )


async def row_remap_failure(stage: Stage) -> Outcome:
    """The driver could not remap a row: found by polling, confirmed once, drained."""
    node = stage.cast.memory
    ledger = stage.ledger
    stage.agents[node].edit({"gpus": {5: {"remap": {"uncorrectable": 9, "failure": True}}}})
    done = await until(
        lambda: Phase.QUARANTINED in ledger.phases.get(node, ()), within_s=TIMEOUT_S
    )
    reasons = {i["reason"] for i in ledger.incidents(node) if i.get("active")}
    return Outcome(
        true=done and "RowRemapFailure" in reasons,
        text=f"{phase(stage, node)}, reason {', '.join(sorted(reasons)) or '-'}",
        path="NVML poll",
    )


async def protected_pod(stage: Stage) -> Outcome:
    """The node's only pod is protected for good: quarantined at once, named, never forced."""
    node = stage.cast.protected
    ledger = stage.ledger
    watch = Stopwatch.start(stage, node)
    stage.agents[node].kernel_line(XID_95)

    def named() -> bool:
        drain = ledger.status(node).get("drain") or {}
        return any(
            b.get("permanent") and SOLO in b.get("pdb", "") for b in drain.get("blocked", ())
        )

    latency = await watch.unschedulable()
    blocked = await until(
        lambda: named() and ledger.session_condition(node, "Blocked") is not None,
        within_s=TIMEOUT_S,
    )
    await asyncio.sleep(DWELL_S)
    alive = bool(ledger.running_on(node, "serving"))
    quick = latency is not None and latency.quick
    return Outcome(
        true=blocked and alive and quick,
        text=(
            f"{phase(stage, node)}, {'PDB named' if blocked else 'PDB not named'}, "
            f"pod {'still runs' if alive else 'GONE'}"
        ),
        path="kernel line",
        latency=latency,
    )


async def storm(stage: Stage) -> Outcome:
    """One rack cries at once: the breaker opens and the rack keeps working; the alarm passes."""
    nodes = stage.cast.rack
    ledger = stage.ledger
    await asyncio.gather(
        *(
            stage.health.fail(node, Fault(reason=reason_for_xid(119).reason, xids=(119,)))
            for node in nodes
        )
    )

    def waiting() -> int:
        return sum(ledger.session_condition(node, "Storm") is not None for node in nodes)

    opened = await until(lambda: waiting() > 0, within_s=TIMEOUT_S)
    most = waiting()
    await asyncio.sleep(DWELL_S / 2)
    most = max(most, waiting())
    taken = [node for node in nodes if node in ledger.unschedulable_at]
    await asyncio.gather(*(stage.health.healthy(node) for node in nodes))
    ended = {Phase.CANCELLED, Phase.RELEASED}
    over = await until(
        lambda: all(ledger.status(n).get("phase", Phase.CANCELLED) in ended for n in nodes),
        within_s=TIMEOUT_S,
    )
    allowed = stage.policy.budget.max_new.count
    return Outcome(
        true=opened and over and len(taken) <= allowed and most >= len(nodes) - allowed,
        text=f"{len(taken)} of {len(nodes)} quarantined, {most} delayed, "
        f"{'alarm over' if over else 'NOT over'}",
        path="scripted health statuses",
    )


ACTS = (
    Act(
        name="xid79",
        title="Xid 79 on a training node",
        expected="unschedulable in 1 s, its gang moves together, Quarantined",
        at_s=0.0,
        play=fallen_off_the_bus,
    ),
    Act(
        name="xid31",
        title="Xid 31 from a program",
        expected="recorded, node untouched",
        at_s=1.0,
        play=program_fault,
    ),
    Act(
        name="row-remap",
        title="row remapping fails",
        expected="drained, Quarantined, its Machine is to be replaced",
        at_s=2.0,
        play=row_remap_failure,
    ),
    Act(
        name="thermal",
        title="a GPU grows hot and slows down",
        expected="Degraded, reported, node untouched",
        at_s=3.0,
        play=thermal_slowdown,
    ),
    Act(
        name="ecc",
        title="memory errors add up",
        expected="Degraded, reported, node untouched",
        at_s=12.0,
        play=memory_wears,
    ),
    Act(
        name="nvlink",
        title="an NVLink counts errors, then goes down",
        expected="cordoned, running pods stay",
        at_s=1.0,
        play=link_fails,
    ),
    Act(
        name="by-hand",
        title="an operator takes a node out and gives it back",
        expected="cordoned, released, as it was",
        at_s=14.0,
        play=by_hand,
    ),
    Act(
        name="pdb",
        title="Xid 95 where a PDB protects the only pod",
        expected="unschedulable in 1 s, Blocked by name, pod still runs",
        at_s=4.0,
        play=protected_pod,
    ),
    Act(
        name="storm",
        title="an entire rack reports Xid 119",
        expected="breaker holds the rack back, alarm passes",
        at_s=10.0,
        play=storm,
    ),
    Act(
        name="repair",
        title="the Xid 79 node is restarted on request",
        expected="RestartNode proven by its new boot, tested, Released",
        at_s=8.0,
        play=repair,
    ),
    Act(
        name="reset",
        title="Xid 95 asks for a reset, which heals",
        expected="drained, ResetGPU proven, tested, Released",
        at_s=45.0,
        play=reset_heals,
    ),
    Act(
        name="climb",
        title="Xid 95 asks for a reset, which does not heal",
        expected="ResetGPU fails, RestartNode proven, Released",
        at_s=47.0,
        play=reset_does_not_heal,
    ),
    Act(
        name="device",
        title="Xid 62 on one GPU of a node with DRA",
        expected="device taint, its pod leaves, 7 run on, ResetGPU, Released",
        at_s=38.0,
        play=one_gpu_reset,
    ),
    Act(
        name="test",
        title="a reset heals, the test under load fails",
        expected="test fails, RestartNode proven, test passes, Released",
        at_s=51.0,
        play=load_finds_more,
    ),
    Act(
        name="replace",
        title="the row-remap node's Machine is replaced",
        expected="ReplaceNode proven, NodeGone, a spare joins",
        at_s=16.0,
        play=machine_replaced,
    ),
)

NEEDS = {"repair": ("xid79",), "replace": ("row-remap",)}
"""Acts that another one has to prepare."""
