"""A policy that changes its mind amid a fence is heeded up to the taint (s23, issue 13)."""

from __future__ import annotations

from typing import Any

import pytest

from rules.api.repair.writes import WriteRepairObject
from tests.scenario.repair.test_repair_fencing import POINTS, live, silent, taints, until
from tests.support.scenario.fence_world import FenceWorld
from tests.support.scenario.provider_world import steps_for
from tests.support.scenario.repair_world import NODE, repair_policy
from tests.support.scenario.session_world import CrashError


@pytest.mark.parametrize(
    "change",
    [{"mode": "Off"}, {"fence": None}, {"fence": {"after": "10m", "outOfService": False}}],
    ids=["repair off", "no fence", "no taint"],
)
@pytest.mark.parametrize("point", ["asked", "off", "decided"])
def test_s23_a_policy_that_ends_no_pod_any_more_is_heeded_up_to_the_taint(
    point: str, change: dict[str, Any]
) -> None:
    world = _decided() if point == "decided" else silent()
    if point in POINTS:
        until(world, lambda: POINTS[point](world))
    assert taints(world) == []
    wanted: dict[str, Any] = {"fence": {"after": "10m", "outOfService": True}} | change
    world.policy = repair_policy(steps=steps_for("Metal3", "PowerCycle"), attempts=1, **wanted)
    live(world, 3600)
    assert taints(world) == []
    assert not world.held_off


def _decided() -> FenceWorld:
    """The taint is decided on, and the leader dies before it is set."""
    plain = silent()
    until(plain, lambda: bool(taints(plain)))
    world = FenceWorld()
    world.crash_after = next(
        index
        for index, (_, write, _, _) in enumerate(plain.sent)
        if isinstance(write, WriteRepairObject) and write.ends_pods
    )
    world.fall_silent()
    with pytest.raises(CrashError):
        world.run(3600, step=10)
    world.restart()
    record = world.session(NODE).status.repair[0].fence
    assert record is not None
    assert record.taint_at
    return world
