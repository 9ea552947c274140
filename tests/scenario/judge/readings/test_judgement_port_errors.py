"""Error rates of the network ports: noise, a bad cable, counters that go back, a restart."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rules.judge.observation import NetworkPort
from tests.support.scenario.judgement_world import World


@pytest.fixture
def world() -> World:
    return World().start()


def looks(world: World, counts: Iterable[int | None]) -> None:
    for count in counts:
        errors = {} if count is None else {"symbol_error": count, "link_downed": 2}
        sound = NetworkPort(name="mlx5_1/1", active=True, errors={"symbol_error": 5})
        world.host(ports=(NetworkPort(name="mlx5_0/1", active=True, errors=errors), sound))
        world.advance(60)


def test_a_port_that_keeps_losing_data_is_degraded_until_it_stops(world: World) -> None:
    looks(world, [0, 50, 100])
    assert not world.incidents, "two of three is a burst"
    looks(world, [150])
    assert world.says() == "Degraded Report Investigate"
    incident = world.only()
    assert incident.row.reason == "NetworkPortErrors"
    assert incident.evidence == (
        "network port mlx5_0/1 loses data: symbol_error=+50 since the last look",
    )
    looks(world, [150, 150])
    assert world.active, "it may only pause"
    looks(world, [150])
    assert not world.active


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param([900] * 20, id="old errors"),
        pytest.param(range(0, 200, 10), id="below the rate"),
        pytest.param([0, 5000, 5000, 5000, 5000, 5000], id="one burst"),
        pytest.param([900, 600, 300, 0, 0, 0], id="adapter reset"),
        pytest.param([None] * 10, id="no counters"),
    ],
)
def test_noise_is_nothing(world: World, counts: Iterable[int | None]) -> None:
    looks(world, counts)
    assert not world.incidents


def test_an_agent_that_restarts_ends_the_finding_only_after_good_looks(world: World) -> None:
    looks(world, [0, 50, 100, 150])
    world.restart_agent()
    looks(world, [150, 150, 150])
    assert world.active
    looks(world, [150])
    assert not world.active
