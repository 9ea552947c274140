"""Acts in which a node is mended: by a reset, by a reboot, by another machine, and tested then.

Each climbs the ladder of repairs as far as it has to, and ends in a release or without the node.
"""

import asyncio

from hack.sim.cluster.fleet.fleet_health import Fault
from hack.sim.demo.ledger import until
from hack.sim.demo.outcome import DWELL_S, TIMEOUT_S, Outcome, phase
from hack.sim.demo.stage import Stage
from rules.api.names import CONDITION_NEEDS_RESTART
from rules.api.quarantine import Phase
from rules.catalog.reason import Action

NEEDS_RESET = Fault(
    reason="Xid95UncontainedMemoryError", xids=(95,), action=Action.RESET_GPU, closes_on="Reset"
)


async def repair(stage: Stage) -> Outcome:
    """A restart of the lost GPU's node is asked for, once it is empty; its new boot proves it."""
    node = stage.cast.training
    ledger = stage.ledger
    if not await until(lambda: ledger.asks(node, CONDITION_NEEDS_RESTART), within_s=TIMEOUT_S):
        text = f"no restart was asked for: {phase(stage, node)}"
        return Outcome(true=False, text=text, path="reboot")
    await stage.reboot(node, repaired={"gpus": {3: {"lost": False}}})
    released = await until(lambda: _released(stage, node), within_s=TIMEOUT_S)
    return Outcome(
        true=released
        and ledger.healthy(node) == "True"
        and _steps(stage, node) == ["RestartNode"],
        text=f"{_ladder(stage, node)}, GPUHealthy={ledger.healthy(node) or '-'}",
        path="reboot",
    )


async def reset_heals(stage: Stage) -> Outcome:
    """A GPU needs a reset, gets it once the node is empty, and the node comes back."""
    node = stage.cast.reset
    ledger = stage.ledger
    await stage.health.fail(node, NEEDS_RESET)
    asked = await until(lambda: ledger.resets(node), within_s=TIMEOUT_S)
    empty = not ledger.running_on(node, "serving")
    await asyncio.sleep(DWELL_S / 3)
    await stage.health.healthy(node)
    released = await until(lambda: _released(stage, node), within_s=TIMEOUT_S)
    return Outcome(
        true=asked and empty and released and _steps(stage, node) == ["ResetGPU"],
        text=f"{_ladder(stage, node)}, {'node empty' if empty else 'PODS LEFT'} at the reset",
        path="Job",
    )


async def reset_does_not_heal(stage: Stage) -> Outcome:
    """The reset does not heal: the ladder climbs to a reboot, each step once."""
    node = stage.cast.climbs
    ledger = stage.ledger
    await stage.health.fail(node, NEEDS_RESET)
    await until(lambda: ledger.quarantined(node), within_s=TIMEOUT_S)
    await stage.health.keep_evidence(node)
    asked = await until(lambda: ledger.asks(node, CONDITION_NEEDS_RESTART), within_s=2 * TIMEOUT_S)
    if asked:
        await stage.reboot_scripted(node)
    released = await until(lambda: _released(stage, node), within_s=TIMEOUT_S)
    return Outcome(
        true=asked and released and _steps(stage, node) == ["ResetGPU", "RestartNode"],
        text=_ladder(stage, node),
        path="Node condition",
    )


async def load_finds_more(stage: Stage) -> Outcome:
    """A reset heals what was seen, the test under load finds more: a reboot, and a test again."""
    node = stage.cast.tested
    ledger = stage.ledger
    stage.bench.bad.add(node)
    await stage.health.fail(node, NEEDS_RESET)
    await until(lambda: ledger.quarantined(node), within_s=TIMEOUT_S)
    await stage.health.keep_evidence(node)
    await until(lambda: ledger.resets(node), within_s=2 * TIMEOUT_S)
    await stage.health.healthy(node)
    asked = await until(lambda: ledger.asks(node, CONDITION_NEEDS_RESTART), within_s=TIMEOUT_S)
    if asked:
        await stage.reboot_scripted(node)
    released = await until(lambda: _released(stage, node), within_s=TIMEOUT_S)
    tests = [test["state"] for test in ledger.status(node).get("validation") or ()]
    ladder = _steps(stage, node) == ["ResetGPU", "RestartNode"]
    return Outcome(
        true=asked and released and ladder and tests == ["Failed", "Passed"],
        text=f"{_ladder(stage, node)}, tests {', '.join(tests) or 'none'}",
        path="Job",
    )


MICROCONTROLLER_HALT = "NVRM: Xid (PCI:0000:9d:00): 62, pid=2763, 0c83(1870) 00000000 00000000"
_HALTED = 4
"""Index of the GPU at that address."""


async def one_gpu_reset(stage: Stage) -> Outcome:
    """One GPU of a DRA node fails: its pod leaves, the others run on while it is reset."""
    node, device = stage.cast.dra, f"gpu-{_HALTED}"
    agent, devices, ledger = stage.agents[node], stage.devices, stage.ledger
    before = devices.holders()
    agent.edit({"gpus": {_HALTED: {"recovery_action": 1}}})
    agent.kernel_line(MICROCONTROLLER_HALT)
    isolated = await until(lambda: devices.tainted == {device}, within_s=TIMEOUT_S)
    asked = await until(lambda: ledger.resets(node), within_s=TIMEOUT_S)
    agent.edit({"gpus": {_HALTED: {"recovery_action": 0}}})
    released = await until(lambda: _released(stage, node), within_s=TIMEOUT_S)
    offered = await until(
        lambda: not devices.tainted and device in devices.holders().values(), within_s=TIMEOUT_S
    )
    after = devices.holders()
    left = sorted(gpu for uid, gpu in before.items() if uid not in after)
    untouched = node not in ledger.unschedulable_at
    return Outcome(
        true=isolated
        and asked
        and released
        and offered
        and untouched
        and left == [device]
        and _steps(stage, node) == ["ResetGPU"],
        text=(
            f"{len(before) - len(left)} pods stayed, the pod of {', '.join(left) or 'no GPU'} "
            f"left, {_ladder(stage, node)}, {device} "
            f"{'offered again' if offered else 'NOT offered'}"
        ),
        path="kernel line",
    )


async def machine_replaced(stage: Stage) -> Outcome:
    """No reset mends the memory: its Machine is quarantined, goes with the node, and a spare
    joins.
    """
    node = stage.cast.memory
    ledger = stage.ledger
    quarantined = False

    async def look() -> None:
        nonlocal quarantined
        quarantined = await stage.machines.is_quarantined(node)

    if not await until(lambda: quarantined, within_s=2 * TIMEOUT_S, step=look):
        text = f"its Machine was not quarantined: {phase(stage, node)}"
        return Outcome(true=False, text=text, path="Machine")
    await asyncio.sleep(DWELL_S / 3)
    spare = await stage.replace(node)
    gone = await until(lambda: phase(stage, node) == Phase.NODE_GONE, within_s=TIMEOUT_S)
    joined = await until(lambda: ledger.healthy(spare) == "True", within_s=TIMEOUT_S)
    return Outcome(
        true=gone and joined and _ladder(stage, node) == "ReplaceNode Proven > NodeGone",
        text=f"{_ladder(stage, node)}, {spare} {'joined' if joined else 'did NOT join'}",
        path="Machine",
    )


def _released(stage: Stage, node: str) -> bool:
    ledger = stage.ledger
    return ledger.phases.get(node, [""])[-1] == Phase.RELEASED and ledger.clean(node)


def _steps(stage: Stage, node: str) -> list[str]:
    return [attempt["step"] for attempt in stage.ledger.status(node).get("repair") or ()]


def _ladder(stage: Stage, node: str) -> str:
    """`ResetGPU Failed > RestartNode Proven > Released`."""
    tried = stage.ledger.status(node).get("repair") or ()
    steps = [f"{attempt['step']} {attempt['state']}" for attempt in tried]
    return " > ".join([*steps, phase(stage, node)])
