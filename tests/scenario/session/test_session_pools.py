"""Two pools with different policies, and nodes that move between them amid a session."""

import functools
from typing import Any

import pytest

from rules.api import writes as d
from rules.policy.policy import Policy
from rules.policy.pools import load_policies
from tests.support.scenario.fleets import NO_ROOM, NODE, drain_of, evictions_after, phases
from tests.support.scenario.session_world import ROOMY, World, kill_points

TRIAL = {"team": "trial"}
MOVED_S = 900


def pooled(*, fleet: Any = None, **trial: Any) -> Policy:
    """A fleet in Enforce with a pool `trial` in Shadow."""
    own = {"metadata": {"name": "trial"}, "nodeSelector": "team=trial", "mode": "Shadow", **trial}
    found = load_policies([{"mode": "Enforce", "budget": ROOMY, **(fleet or {})}, own])
    assert isinstance(found, Policy), found
    return found


def two_pools(**sections: Any) -> World:
    """Six nodes, of which `n3` to `n5` are in the pool `trial`."""
    world = World(pooled(**sections))
    for i in range(6):
        world.add_node(f"n{i}", labels=TRIAL if i > 2 else {})
    return world


def modes(world: World, node: str) -> list[tuple[str, str]]:
    return [(one.status.mode, one.status.phase) for one in world.sessions(node)]


class TestTwoPools:
    def test_one_is_in_shadow_while_the_other_enforces(self) -> None:
        world = two_pools()
        world.add_pod("web", "n3")
        for node in ("n0", "n3"):
            world.incident(node)
        world.run(60)
        assert modes(world, "n0") == [("Enforce", "Quarantined")]
        assert modes(world, "n3") == [("Shadow", "Marked")]
        assert not world.is_quarantined("n3")
        assert all(w.dry_run for w in world.writes(d.EvictPod))

    def test_a_pool_enforces_in_a_fleet_in_shadow(self) -> None:
        world = two_pools(fleet={"mode": "Shadow"}, mode="Enforce")
        for node in ("n0", "n3"):
            world.incident(node)
        world.run(60)
        assert modes(world, "n0") == [("Shadow", "Marked")]
        assert modes(world, "n3") == [("Enforce", "Quarantined")]

    def test_the_budget_of_the_fleet_is_above_all_pools(self) -> None:
        budget = {**ROOMY, "maxUnavailable": {"percent": 100, "atMost": 2}}
        world = two_pools(fleet={"budget": budget}, mode="Enforce")
        for node in ("n0", "n1", "n3", "n4"):
            world.incident(node)
        world.run(60)
        assert sorted(phases(world, ["n0", "n1", "n3", "n4"])) == [
            "Pending", "Pending", "Quarantined", "Quarantined",
        ]  # fmt: skip

    def test_faults_of_a_pool_in_shadow_take_no_place_and_open_no_breaker(self) -> None:
        budget = {
            "maxUnavailable": {"percent": 100, "atMost": 1},
            "maxNew": {"count": 2, "window": "10m"},
        }
        world = two_pools(fleet={"budget": budget})
        for node in ("n3", "n4", "n5"):
            world.incident(node)
        world.run(30)
        world.incident("n0")
        world.run(60)
        assert world.phase("n0") == "Quarantined"
        assert not world.replica.fleet.assessment.breaker.open

    def test_each_node_has_the_levels_and_the_drain_of_its_pool(self) -> None:
        world = two_pools(
            mode="Enforce",
            reasons={"Xid79GPUFallenOffBus": {"level": "Cordon"}},
            external=[{"match": "condition Lost=True", "reason": "LostDisk"}],
        )
        for node in ("n0", "n3"):
            world.incident(node)
        world.run(60)
        assert phases(world, ["n0", "n3"]) == ["Quarantined", "Marked"]

    def test_two_pools_that_select_one_node_change_nothing_there(self) -> None:
        other = {"metadata": {"name": "zone"}, "nodeSelector": "zone=z", "mode": "Enforce"}
        trial = {"metadata": {"name": "trial"}, "nodeSelector": "team=trial", "mode": "Enforce"}
        policy = load_policies([{"mode": "Enforce", "budget": ROOMY}, other, trial])
        assert isinstance(policy, Policy)
        world = World(policy)
        world.add_nodes(3)
        world.add_node("n9", labels={**TRIAL, "zone": "z"})
        world.incident("n9")
        world.run(60)
        assert (world.phase("n9"), world.condition("n9", "Blocked")) == (
            "Pending",
            "PolicyOverlap",
        )
        assert "Pools trial and zone" in world.message("n9")
        world.label("n9", zone=None)
        world.run_until("n9", "Quarantined", limit=30)


def into_shadow() -> World:
    """A node of the fleet with a drain that a budget blocks."""
    world = two_pools()
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run_until(NODE, "Draining", limit=60)
    world.run(5)
    return world


class TestMoves:
    def test_a_draining_node_that_moves_to_shadow_keeps_its_taint_and_its_pods(self) -> None:
        world = into_shadow()
        world.label(NODE, **TRIAL)
        world.run(2)
        moved = world.now
        world.add_pdb("keep", minAvailable=0)
        world.run(60)
        assert evictions_after(world, moved) == 0
        assert world.is_quarantined(NODE)
        assert world.condition(NODE, "Paused") == "PolicyIsShadow"
        assert drain_of(world).evicted == 0
        world.label(NODE, team=None)
        world.run_until(NODE, "Quarantined", limit=60)
        assert len(world.sessions(NODE)) == 1

    def test_a_quarantined_node_that_moves_to_shadow_is_released_when_it_is_healthy(self) -> None:
        world = two_pools()
        world.fail_until(NODE, "Quarantined")
        world.label(NODE, **TRIAL)
        world.close_all(NODE)
        world.run_until(NODE, "Released", limit=700, step=5)
        assert not world.is_quarantined(NODE)

    def test_a_waiting_session_of_a_node_that_moves_to_shadow_is_played(self) -> None:
        world = _waiting_into_shadow()
        world.run(10)
        assert modes(world, NODE)[0] == ("Enforce", "Cancelled")
        assert modes(world, NODE)[-1][0] == "Shadow"

    def test_a_node_that_leaves_shadow_is_quarantined(self) -> None:
        world = two_pools()
        world.incident("n3")
        world.run(10)
        world.label("n3", team=None)
        world.run(60)
        assert modes(world, "n3") == [("Shadow", "Cancelled"), ("Enforce", "Quarantined")]

    def test_a_drain_that_moves_to_a_pool_of_level_cordon_stops(self) -> None:
        world = two_pools(mode="Enforce", reasons={"Xid79GPUFallenOffBus": {"level": "Cordon"}})
        world.add_pod("kept", NODE)
        world.add_pdb("keep", minAvailable=1)
        world.incident(NODE)
        world.run_until(NODE, "Draining", limit=60)
        world.label(NODE, **TRIAL)
        world.run(5)
        moved = world.now
        world.run(30)
        assert evictions_after(world, moved) == 0
        assert world.is_quarantined(NODE)


def _out_of_shadow() -> World:
    world = two_pools()
    world.add_pod("web", "n3")
    world.incident("n3")
    world.run(10)
    world.label("n3", team=None)
    return world


def _into_shadow() -> World:
    world = into_shadow()
    world.label(NODE, **TRIAL)
    world.close_all(NODE)
    return world


def _waiting_into_shadow() -> World:
    world = two_pools(fleet={"budget": NO_ROOM})
    world.incident(NODE)
    world.run(10)
    world.label(NODE, **TRIAL)
    return world


MOVES = {
    "out of Shadow": (_out_of_shadow, "n3"),
    "into Shadow": (_into_shadow, NODE),
    "into Shadow while it waits": (_waiting_into_shadow, NODE),
}


@functools.cache
def points(move: str) -> tuple[World, ...]:
    """The cluster before each write of the move, as a leader leaves it that dies there."""
    made, _ = MOVES[move]
    world = made()
    return tuple(left for _, left in kill_points(world, lambda: world.run(MOVED_S, step=5)))


@pytest.mark.parametrize("move", MOVES)
def test_a_leader_that_dies_at_any_write_of_a_move_changes_nothing(move: str) -> None:
    made, node = MOVES[move]
    plain = made()
    plain.run(MOVED_S, step=5)
    expected = modes(plain, node), plain.is_quarantined(node), sorted(plain.pods)
    assert len(points(move)) >= 3
    for point, world in enumerate(points(move)):
        world.run(MOVED_S, step=5)
        assert (modes(world, node), world.is_quarantined(node), sorted(world.pods)) == expected, (
            point
        )
