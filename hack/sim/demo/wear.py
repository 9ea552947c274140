"""Acts that take their time: heat, memory and a link that grow worse, and what a person does."""

from __future__ import annotations

import asyncio

from hack.sim.demo.ledger import until
from hack.sim.demo.outcome import DWELL_S, PATIENCE_S, STEP_S, Outcome, active, phase, reasons
from hack.sim.demo.stage import Stage


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
    seen = await until(lambda: ledger.degraded(node) == "True", within_s=PATIENCE_S)
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
    seen = await until(
        lambda: active(stage, node, "EccUncorrectableVolatile"), within_s=PATIENCE_S
    )
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
        lambda: active(stage, node, "NVLinkDown") and ledger.marked(node), within_s=PATIENCE_S
    )
    stay = bool(ledger.running_on(node, "serving"))
    return Outcome(
        true=seen and stay,
        text=f"{reasons(stage, node)}, {phase(stage, node)}, pods {'stay' if stay else 'GONE'}",
        path="NVML poll",
    )


async def by_hand(stage: Stage) -> Outcome:
    """A person cordons a node with the plugin, asks why, and gives it back."""
    node = stage.cast.by_hand
    ledger = stage.ledger
    reason = ("--reason", "fan noise", "--yes")
    code, _ = await stage.plugin("quarantine", node, "--level", "Cordon", *reason)
    taken = code == 0 and await until(lambda: ledger.marked(node), within_s=PATIENCE_S)
    _, why = await stage.plugin("why", node)
    code, _ = await stage.plugin("release", node, *reason)
    back = code == 0 and await until(lambda: ledger.clean(node), within_s=PATIENCE_S)
    return Outcome(
        true=taken and back and "fan noise" in why,
        text=f"{'taken' if taken else 'NOT taken'}, {'given back' if back else 'NOT given back'}",
        path="kubectl gpuward",
    )
