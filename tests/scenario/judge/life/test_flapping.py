"""What comes and goes is one incident that stays open, not thirty; a loss again and again is no
record.
"""

from rules.catalog.signals import Signal
from rules.judge.judge import next_deadline
from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World

HOUR_S, DAY_S = 3600, 86_400


def flap(world: World, times: int, **bad: object) -> None:
    """Be bad for a minute and good for a minute, several times."""
    good = {name: world.values[0].get(Signal[name.upper()]) for name in bad}
    for _ in range(times):
        world.will_read(0, **bad)  # type: ignore[arg-type]
        world.advance(60, polling=True)
        world.will_read(0, **good)
        world.advance(60, polling=True)


def flapping_link(world: World, times: int) -> None:
    world.values[0][Signal.NVLINK_STATES] = (1,) * 18
    flap(world, times, nvlink_states=(1,) * 17 + (0,))


def test_a_link_that_flaps_is_one_incident_with_a_count(world: World) -> None:
    flapping_link(world, 30)
    found = [i for i in world.incidents if i.row.reason == "NVLinkDown"]
    assert [i.active for i in found] == [False, False, True]
    assert found[-1].count == 28
    assert "open until it is good for 1 h" in found[-1].evidence[-1]
    world.advance(50 * 60, polling=True)
    assert world.active
    world.advance(15 * 60, polling=True)
    assert not world.active
    assert found[-1].id in {i.id for i in world.incidents if i.closed_by == "State"}


def test_twice_in_an_hour_is_not_flapping(world: World) -> None:
    for _ in range(6):
        flapping_link(world, 1)
        world.advance(31 * 60)
    assert not world.active


def test_a_flap_is_kept_open_over_a_restart(world: World) -> None:
    flapping_link(world, 2)
    world.restart_agent().start()
    flapping_link(world, 1)
    held = world.only()
    since = world.published().status.incidents[0].held_since
    assert since
    for _ in range(3):
        world.restart_agent().start()
        world.advance(120, polling=True)
        assert world.only().id == held.id
        assert world.published().status.incidents[0].held_since == since
    world.advance(HOUR_S, polling=True)
    assert not world.active


def test_a_repair_report_closes_an_incident_that_is_kept_open(world: World) -> None:
    flapping_link(world, 4)
    assert world.active
    world.report_repaired()
    world.advance(5)
    assert not world.active
    flapping_link(world, 2)
    assert not world.active, "counted again"


def test_what_is_kept_open_ends_by_time_alone(world: World) -> None:
    flapping_link(world, 3)
    world.source(SourceName.NVML, SourceState.RELEASED, "Pause")
    due = next_deadline(world.state)
    assert due is not None
    assert HOUR_S - 120 <= due - world.now <= HOUR_S
    world.advance(HOUR_S)
    assert not world.active


def test_a_gpu_that_is_lost_and_back_ten_times_is_no_record() -> None:
    world = World().start()
    for _ in range(10):
        for presence in ("lost", "lost", "present", "present", "present", "present"):
            world.will_read(0, presence=presence)
            world.poll()
            world.poll_pci()
            world.advance(15)
    assert {str(i.row.severity) for i in world.active} == {"Degraded"}
    (held,) = [i for i in world.active if i.row.reason == "GPUCountMismatch"]
    assert held.count >= 7


def test_an_unconfirmed_loss_is_kept_open_too(world: World) -> None:
    for _ in range(10):
        world.labels["nvidia.com/gpu.deploy.driver"] = "paused-for-driver-upgrade"
        world.node()
        world.xid(79, 0)
        world.advance(60)
        del world.labels["nvidia.com/gpu.deploy.driver"]
        world.node()
        world.advance(60, polling=True)
    (held,) = world.active
    assert (held.row.severity, held.row.level) == ("Degraded", "Report")
    world.restart_agent().start()
    world.advance(60, polling=True)
    assert (world.only().id, world.only().row.severity) == (held.id, "Degraded")
    world.advance(HOUR_S + 60, polling=True)
    assert not world.active
