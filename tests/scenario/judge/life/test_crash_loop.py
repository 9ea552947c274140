"""An agent that ends again and again before it has published: what the driver printed meanwhile.

Such a line is of the past for the life that reads it, as the specification says (JUDGEMENT, part
5): the present accuses or acquits, however many lives it takes and whoever read it before.
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
    """Sound, and published."""
    made = World().start()
    made.advance(60, polling=True)
    return made


def next_life(world: World, published: NodeState) -> None:
    """The agent ends, and of what it judged since that health status nothing is left."""
    world.advance(30)
    world.state = published
    world.restart_agent()


def printed(world: World) -> float:
    """The driver reports it while no agent lives; when it was."""
    world.advance(PRINTED_AFTER_S)
    world.sequence += 1
    return world.now


def read_again(world: World, xid: int, at: float) -> None:
    """A life finds the same record behind the cursor that was published."""
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
def test_a_gpu_that_looks_sound_after_all_lives_is_not_accused(world: World, xid: int) -> None:
    short_lives(world, xid)
    world.start()
    world.advance(600, polling=True)

    assert not world.active
    assert world.assessment().health is Health.HEALTHY
    told = [(i.xids, i.closed_by) for i in world.published().status.incidents]
    assert told == [((xid,), "BeforeStart")], "it is on record"


@pytest.mark.parametrize(
    ("xid", "lives", "live", "gone"),
    [
        pytest.param(95, 1, False, False, id="in the first life that looks"),
        pytest.param(95, LIVES + 1, False, False, id="after many lives"),
        pytest.param(95, 1, True, False, id="seen live and not published"),
        pytest.param(79, LIVES + 1, False, True, id="gone from the bus"),
    ],
)
def test_a_gpu_that_is_not_sound_is_accused_whoever_read_the_line(
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


def test_nobody_sees_the_gpu_so_the_fault_is_kept_and_drains_nothing(world: World) -> None:
    short_lives(world, 79)
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    world.advance(600)

    assert world.outcome() == "Degraded Report RestartNode"


def test_a_fault_that_was_published_outlives_every_life(world: World) -> None:
    world.xid(79)
    published = world.state
    for _ in range(LIVES):
        next_life(world, published)
    world.start()

    assert world.outcome() == "Fatal Drain RestartNode"
    assert world.values[0][Signal.PRESENCE] == "present"
