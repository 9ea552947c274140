"""Ports of the adapters between nodes: in use, flapping, down, unused."""

from __future__ import annotations

import pytest

from rules.judge.observation import NetworkPort
from tests.support.scenario.judgement_world import World

UP = (NetworkPort(name="mlx5_0/1", active=True), NetworkPort(name="mlx5_1/1", active=False))
DOWN = (NetworkPort(name="mlx5_0/1", active=False), UP[1])


@pytest.fixture
def world() -> World:
    return World().start()


def looks(world: World, ports: tuple[NetworkPort, ...], minutes: int) -> None:
    for _ in range(minutes):
        world.host(ports=ports)
        world.advance(60)


def test_a_port_that_worked_and_stays_down_is_degraded_until_it_is_back(world: World) -> None:
    looks(world, UP, 2)
    looks(world, DOWN, 6)
    assert world.says() == "Degraded Report Investigate"
    assert world.only().row.reason == "NetworkPortDown"
    looks(world, UP, 2)
    assert world.active, "it may only flap"
    looks(world, UP, 1)
    assert not world.active


def test_a_flap_and_a_port_that_nobody_uses_are_nothing(world: World) -> None:
    looks(world, UP, 2)
    looks(world, DOWN, 3)
    looks(world, UP, 10)
    assert not world.incidents


def test_a_port_found_down_by_an_agent_that_starts_is_not_judged(world: World) -> None:
    looks(world, DOWN, 20)
    assert not world.incidents


def test_a_restarted_agent_keeps_the_finding_while_the_port_is_down(world: World) -> None:
    looks(world, UP, 1)
    looks(world, DOWN, 6)
    world.restart_agent()
    looks(world, DOWN, 2)
    assert world.only().row.reason == "NetworkPortDown"
    looks(world, UP, 3)
    assert not world.active
