"""Lines that the driver prints while the agent restarts repeatedly before it publishes.

Such a line is older than the agent that reads it, so current data must confirm it.
"""

import pytest

from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.observation import SourceName, SourceState
from rules.judge.state import NodeState
from tests.support.scenario.judgement_world import World

LIVES = 5
PRINTED_AFTER_S = 20.0


@pytest.fixture
def world() -> World:
    """A healthy node that has published its status."""
    made = World().start()
    made.advance(60, polling=True)
    return made


def next_life(world: World, published: NodeState) -> None:
    """Restart the agent from an older status, without anything that it assessed since."""
    world.advance(30)
    world.state = published
    world.restart_agent()


def printed(world: World) -> float:
    """Print a line while no agent runs; return its time."""
    world.advance(PRINTED_AFTER_S)
    world.sequence += 1
    return world.now


def read_again(world: World, xid: int, at: float) -> None:
    """Read the same record after the published cursor."""
    world.sequence -= 1
    world.xid(xid, lookback=True, at=at)


def short_lives(world: World, xid: int) -> None:
    published = world.state
    at = printed(world)
    for _ in range(LIVES):
        next_life(world, published)
        read_again(world, xid, at)
    next_life(world, published)
    read_again(world, xid, at)


@pytest.mark.parametrize("xid", [79, 95, 119, 48])
def test_a_good_gpu_after_several_restarts_opens_nothing(world: World, xid: int) -> None:
    short_lives(world, xid)
    world.start()
    world.advance(600, polling=True)

    assert not world.active
    assert world.assessment().health is Health.HEALTHY
    published = [(i.xids, i.closed_by) for i in world.published().status.incidents]
    assert published == [((xid,), "BeforeStart")], "it is on record"


@pytest.mark.parametrize(
    ("xid", "lives", "live", "gone"),
    [
        pytest.param(95, 1, False, False, id="in the first life that looks"),
        pytest.param(95, LIVES + 1, False, False, id="after many lives"),
        pytest.param(95, 1, True, False, id="seen live and not published"),
        pytest.param(79, LIVES + 1, False, True, id="gone from the bus"),
    ],
)
def test_a_bad_gpu_is_reported_by_any_later_agent(
    world: World, xid: int, lives: int, live: bool, gone: bool
) -> None:
    published = world.state
    if live:
        world.xid(xid)
        assert world.outcome() == "Fatal Drain ResetGPU"
    at = world.now if live else printed(world)
    if gone:
        world.pull(0)
    else:
        world.will_read(0, recovery_action=1)
    for _ in range(lives):
        next_life(world, published)
        read_again(world, xid, at)
    world.start()
    world.advance(30, polling=True)

    assert "Fatal" in {i.row.severity for i in world.active if xid in i.xids}
    assert world.assessment().health is Health.UNHEALTHY


def test_without_gpu_data_the_fault_is_kept_and_drains_nothing(world: World) -> None:
    short_lives(world, 79)
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    world.advance(600)

    assert world.outcome() == "Degraded Report RestartNode"


def test_a_published_fault_survives_every_restart(world: World) -> None:
    world.xid(79)
    published = world.state
    for _ in range(LIVES):
        next_life(world, published)
    world.start()

    assert world.outcome() == "Fatal Drain RestartNode"
    assert world.values[0][Signal.PRESENCE] == "present"
