"""A reset is for the GPUs that a cause accuses: with none it is passed over (issue 13)."""

from __future__ import annotations

import pytest

from rules.session.repair.ladder import NOBODY_ACCUSED, must_name, rungs
from tests.support.repair.job_world import JobWorld
from tests.support.scenario.provider_world import ProviderWorld
from tests.support.scenario.repair_world import NODE

REST = {"RestartNode": {"adapter": "NodeConditions", "timeout": "30m"}}
NAMING = ["Resets", "ResetGPUJob"]


def world_of(name: str, *, gpus: list[str], accused: list[str]) -> ProviderWorld:
    """A fault that asks for a reset, on a node whose driver lists these GPUs."""
    kind = JobWorld if name == "ResetGPUJob" else ProviderWorld
    reset = {"adapter": name, "timeout": "30m"}
    world = kind(name, "ResetGPU", steps={"ResetGPU": reset, **REST})
    world.fault()
    status = world.healths[NODE]["status"]
    status["gpus"] = [{"uuid": gpu, "index": at, "serial": ""} for at, gpu in enumerate(gpus)]
    status["incidents"][0]["gpus"] = accused
    world.touch(world.healths[NODE])
    return world


def test_a_reset_that_names_its_gpus_is_held_to_it() -> None:
    for name in NAMING:
        action = world_of(name, gpus=[], accused=[]).action
        assert action is not None
        assert must_name("ResetGPU", action)
        assert not must_name("RestartNode", action)


@pytest.mark.parametrize("name", NAMING)
@pytest.mark.parametrize(
    ("gpus", "accused"),
    [(["GPU-a", "GPU-b"], []), (["GPU-a", "GPU-b"], ["GPU-gone"])],
    ids=["nobody", "one that is not there"],
)
def test_with_nobody_to_name_no_gpu_is_reset(
    name: str, gpus: list[str], accused: list[str]
) -> None:
    world = world_of(name, gpus=gpus, accused=accused)
    world.run_until(NODE, "Repairing", step=5)
    session = world.session(NODE)
    health = world.snapshot().healths[NODE]
    shown = rungs(session, (), session.spec.causes, health, world.policy, world.now)
    said = {rung.step: rung.said for rung in shown if rung.state == "Passed"}
    assert said["ResetGPU"] == NOBODY_ACCUSED
    world.run(200, step=5)
    assert world.steps_of()[0][0] == "RestartNode"
    assert world.held("jobs") == []
    assert world.held("gpuresets") == []
