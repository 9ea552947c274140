"""Device taints when the leader dies at a write, or slices and rules change meanwhile."""

from collections.abc import Callable

import pytest

from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from tests.support.scenario.device_world import NODE, DeviceWorld
from tests.support.scenario.session_world import kill_points


def life(world: DeviceWorld) -> None:
    world.run_until(NODE, "Quarantined", 300)
    world.run(90, step=5)
    world.heal_until_released(NODE, 900, step=5)


def at_rest(world: DeviceWorld) -> None:
    """Nothing of the session is left."""
    assert not world.rules()
    assert not world.is_quarantined(NODE)
    assert not world.unschedulable(NODE)
    assert len(world.sessions(NODE)) == 1


def test_a_leader_that_dies_at_any_write_leaves_the_same_end() -> None:
    world = DeviceWorld()
    world.fault(3)
    died = kill_points(world, lambda: life(world))
    at_rest(world)
    kinds = {type(write) for write, _ in died}
    assert {TaintDevice, UntaintDevice, d.TaintAndCordon, d.RemoveTaint} <= kinds
    for write, left in died:
        left.run(60, step=5)
        sick = any(i["active"] for i in left.healths[NODE]["status"]["incidents"])
        if sick:
            assert left.rules().keys() == {"gpu-3"}, write
        left.close_all(NODE)
        left.run_until(NODE, "Released", 1500, step=5)
        at_rest(left)


@pytest.mark.parametrize("writes", [d.TaintAndCordon, TaintDevice, d.WriteSessionStatus])
def test_a_slice_that_is_republished_before_a_write_moves_the_taint(writes: type) -> None:
    world = DeviceWorld()
    world.fault(3)

    def republish(write: d.Write) -> None:
        if isinstance(write, writes):
            world.meddler = None
            world.publish(NODE, 3, 0, 1, 2, 4, 5, 6, 7)

    world.meddler = republish
    world.run_until(NODE, "Quarantined", 300)
    world.run(120, step=5)
    assert world.rules().keys() == {"gpu-0"}
    world.heal_until_released(NODE, 900, step=5)
    at_rest(world)


def test_a_slice_that_is_incomplete_for_a_moment_is_read_again() -> None:
    world = DeviceWorld()
    (pool,) = (
        o["spec"]["pool"] for o in world.held("resourceslices") if o["spec"]["nodeName"] == NODE
    )
    pool["resourceSliceCount"] = 2
    world.fault(3)
    world.run(8)
    assert world.phase(NODE) in {"", "Pending"}
    pool["resourceSliceCount"] = 1
    world.run_until(NODE, "Quarantined", 120)
    assert world.rules().keys() == {"gpu-3"}


def test_slices_that_stay_incomplete_isolate_the_node() -> None:
    world = DeviceWorld()
    for each in world.held("resourceslices"):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    world.fault(3)
    world.run_until(NODE, "Quarantined", 120)
    assert not world.rules()
    assert world.unschedulable(NODE)


def _pause(world: DeviceWorld) -> None:
    world.pause()


def _opt_out(world: DeviceWorld) -> None:
    world.label(NODE, gpuward_io__opt_out="true")


def _shadow(world: DeviceWorld) -> None:
    world.policy = DeviceWorld(mode="Shadow").policy


@pytest.mark.parametrize("stop", [_pause, _shadow])
def test_no_device_is_tainted_once_disruption_is_stopped(
    stop: Callable[[DeviceWorld], None],
) -> None:
    world = DeviceWorld()
    world.fault(3)

    def between(write: d.Write) -> None:
        if isinstance(write, d.WriteSessionStatus) and write.status.devices:
            stop(world)
            world.meddler = None

    world.meddler = between
    world.run(120, step=5)
    assert not world.rules()


def test_a_new_leader_takes_over_the_rules() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    (uid,) = (rule["metadata"]["uid"] for rule in world.rules().values())
    world.change_leader()
    world.run(120, step=5)
    assert [rule["metadata"]["uid"] for rule in world.rules().values()] == [uid]
    world.heal_until_released(NODE, 900, step=5)
    at_rest(world)


def test_a_lost_session_isolates_its_device_again() -> None:
    """The definition of GPUQuarantine was deleted: the garbage collector deletes the rules."""
    world = DeviceWorld()
    for node in ("n0", "n1"):
        world.fault(3, node)
    world.run_until("n1", "Quarantined", 300)
    world.run_until(NODE, "Quarantined", 300)
    world.quarantines.clear()
    world.run(180, step=5)
    assert world.rules().keys() == {"gpu-3"}
    assert len(world.held("devicetaintrules")) == 2
