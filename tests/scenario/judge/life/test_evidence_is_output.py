"""Evidence is output only: a restarted agent never reads it back."""

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from rules.api.health import HealthStatus
from rules.catalog.reasons import NO_ACTION
from rules.judge.messages import incident_sentence
from rules.judge.observation import NetworkPort
from rules.judge.restore import restore
from rules.judge.state import NodeState
from tests.support.scenario.judgement_world import World


def port_down(world: World) -> None:
    port = NetworkPort(name="mlx5_0/1", active=True)
    for active, minutes in ((True, 2), (False, 6)):
        for _ in range(minutes):
            world.host(ports=(replace(port, active=active),))
            world.advance(60)


def repairs_that_did_not_last(world: World) -> None:
    for asked in (1, 0, 1, 0, 1):
        if asked:
            world.xid(95, 0)
            world.action_line(1)
        else:
            world.action_line(0, before=1)
        world.will_read(0, recovery_action=asked)
        world.advance(60, polling=True)


def driver_asks_for_nothing(world: World) -> None:
    world.xid(109)
    world.advance(31, polling=True)


def restarted_without_evidence(world: World) -> NodeState:
    published = world.published().status
    silent = replace(
        published,
        incidents=tuple(replace(i, evidence=("other text",)) for i in published.incidents),
    )
    read = msgspec.json.decode(msgspec.json.encode(silent), type=HealthStatus)
    return restore(read, world.now, boot_id=world.boot, node_name="n1")


@pytest.mark.parametrize("play", [port_down, repairs_that_did_not_last, driver_asks_for_nothing])
def test_an_agent_that_restarts_reads_no_sentence_back(play: Callable[[World], None]) -> None:
    world = World().start()
    play(world)
    state = restarted_without_evidence(world)
    before = {i.id: i for i in world.active}
    assert before
    for incident in (i for i in state.incidents if i.active):
        was = before[incident.id]
        kept = (was.answer == NO_ACTION, was.floor, was.ports)
        assert any(kept)
        assert (incident.answer == NO_ACTION, incident.floor, incident.ports) == kept
        assert incident_sentence(state, incident, 0) == incident_sentence(world.state, was, 0)
