"""Whose drain begins: places, and the bad nodes of one gang together or one by one."""

from typing import Any

import pytest

from rules.api import writes as d
from rules.fleet.turns import judge_fleet
from tests.support.scenario.fleets import fleet, gang_pod, ours, phases, share
from tests.support.scenario.session_world import World


def validating(count: int, **sections: Any) -> tuple[World, list[str]]:
    """A fleet whose first nodes were drained and are healthy again."""
    world = fleet(12, limits={"nodesDraining": 2}, **sections)
    names = [f"n{index}" for index in range(count)]
    for name in names:
        world.incident(name)
    world.run(90)
    assert set(phases(world, names)) == {"Quarantined"}
    for name in names:
        world.close_all(name)
    world.run(3)
    assert set(phases(world, names)) == {"Validating"}
    for name in names:
        world.add_pod(f"back-{name}", name, grace=60)
    return world, names


def most_draining(world: World, names: list[str], seconds: int) -> int:
    most = 0
    for _ in range(seconds):
        world.run(1)
        most = max(most, phases(world, names).count("Draining"))
    return most


@pytest.mark.parametrize("how", ["cause", "reboot"])
def test_causes_that_come_back_keep_to_the_limit_of_nodes(how: str) -> None:
    world, names = validating(10)
    for name in names:
        world.incident(name)
        if how == "reboot":
            world.reboot(name)
    assert most_draining(world, names, 60) == 2
    world.run(400, step=5)
    assert set(phases(world, names)) == {"Quarantined"}


def test_our_own_node_hands_over_whatever_way_it_came() -> None:
    world, _ = validating(1)
    world.own_node = "n0"
    world.incident("n0")
    world.run(20)
    assert world.phase("n0") == "Marked"
    assert world.condition("n0", "Blocked") == "OwnNodeHandOver"
    assert world.hand_overs


def test_our_own_node_does_not_wait_behind_a_block_that_never_ends() -> None:
    world = fleet(6)
    world.own_node, world.no_other_replica = "n0", True
    world.add_pod("kept", "n1")
    world.add_pdb("keep", minAvailable=1)
    world.add_pod("mine", "n0", labels={"app": "mine"})
    world.incident("n1")
    world.run(10)
    world.fail_until("n0", "Quarantined", limit=120)
    assert world.phase("n1") == "Draining"
    assert world.condition("n1", "NeedsHuman") == "BudgetNeverAllows"


def test_our_own_node_does_not_wait_for_a_node_that_cannot_drain() -> None:
    world = fleet(6)
    world.own_node, world.no_other_replica = "n0", True
    world.add_pod("slow", "n1", grace=600)
    world.incident("n1")
    world.run(10)
    world.set_ready("n1", "Unknown")
    world.fail_until("n0", "Quarantined", limit=120)


def test_under_a_pause_nobody_holds_a_permit_that_outlives_it() -> None:
    world = fleet(12, limits={"nodesDraining": 2})
    names = [f"n{index}" for index in range(10)]
    for name in names:
        world.incident(name, level="Cordon")
    world.run(5)
    world.pause()
    for name in names:
        item = world.quarantines[world.session(name).name]
        item["spec"]["level"] = "Drain"
        world.healths[name]["status"]["incidents"][0]["level"] = "Drain"
        world.touch(item)
        world.add_pod(f"p-{name}", name, grace=60)
    world.run(5)
    held = judge_fleet(world.snapshot()).permits
    assert not any(permit.drain for permit in held.values()), "judged in the pause, used after it"
    world.pauses.clear()
    assert most_draining(world, names, 60) == 2


def test_nodes_that_come_back_to_their_drains_find_only_the_places_there_are() -> None:
    world = fleet(12, limits={"nodesDraining": 2})
    names = [f"n{index}" for index in range(4)]
    for name in names:
        world.add_pod(f"p-{name}", name, grace=300)
    for name in names[:2]:
        world.incident(name)
    world.run(5)
    assert phases(world, names[:2]) == ["Draining", "Draining"]
    for name in names[:2]:
        world.set_ready(name, "Unknown")
    for name in names[2:]:
        world.incident(name)
    world.run(10)
    assert phases(world, names[2:]) == ["Draining", "Draining"], (
        "a node that is silent holds no place"
    )
    for name in names[:2]:
        world.set_ready(name, "True")
    world.run(3)
    assert phases(world, names).count("Draining") == 2
    asked = {w.node for w in world.writes(d.EvictPod)}
    assert asked == set(names)
    world.run(900, step=10)
    assert set(phases(world, names)) == {"Quarantined"}


TOPOLOGY = {"kueue.x-k8s.io/podset-required-topology": "rack"}
MATES = ("n0", "n1", "n2")


def evicted_at(world: World) -> dict[str, float]:
    return {w.node: at for at, w, _, _ in world.sent if isinstance(w, d.EvictPod)}


def kueue_waits() -> World:
    """One node of a workload was drained, the other waits until Kueue has replaced it."""
    world = fleet(10)
    for name in ("n0", "n1"):
        gang_pod(world, name, **TOPOLOGY)
        world.incident(name)
    world.kueue_unhealthy = {"JobSet team-a/llm": ("n0",)}
    world.run_until("n0", "Quarantined", limit=60)
    world.run(120)
    assert world.condition("n1", "Blocked") == "KueueReplacing"
    return world


def window_open() -> World:
    """One node of a gang is quarantined, its window to collect others is half over."""
    world = fleet(10)
    for name in ("n0", "n1"):
        gang_pod(world, name)
    world.incident("n0")
    world.run(12)
    assert world.condition("n0", "Blocked") == "GangWindow"
    return world


class TestChangeOfLeader:
    def test_kueues_next_node_waits_on(self) -> None:
        world = kueue_waits()
        world.unread = {"n0", "n1"}
        world.change_leader()
        world.run(8)
        assert world.phase("n1") == "Marked"
        world.unread.clear()
        world.run(120)
        assert world.phase("n1") == "Marked"
        assert world.condition("n1", "Blocked") == "KueueReplacing"
        world.kueue_unhealthy = {}
        world.run_until("n1", "Quarantined", limit=30)

    def test_a_gangs_window_goes_on(self) -> None:
        world = window_open()
        world.unread = {"n0", "n1"}
        world.change_leader()
        world.run(1)
        world.unread.clear()
        world.incident("n1")
        world.run(60)
        times = evicted_at(world)
        assert set(times) == {"n0", "n1"}
        assert abs(times["n0"] - times["n1"]) <= 2, "one restart, not two"

    def test_gangs_that_cannot_be_read_hold_nothing_for_ever(self) -> None:
        world = window_open()
        world.unread = {"n0", "n1"}
        world.change_leader()
        took_over_at = world.now
        world.run_until("n0", "Draining", limit=60)
        assert 10 <= world.now - took_over_at <= 12

    def test_a_known_window_is_not_made_longer(self) -> None:
        world = window_open()
        tainted_at = world.sent[0][0]
        world.change_leader()
        world.run_until("n0", "Draining", limit=60)
        assert world.now - tainted_at <= 33


def test_mates_that_failed_while_nobody_ran_are_collected() -> None:
    world = window_open()
    world.sleep(600)
    world.incident("n1")
    world.restart()
    world.run(5)
    assert world.condition("n0", "Blocked") == "GangWindow"
    world.run(60)
    times = evicted_at(world)
    assert set(times) == {"n0", "n1"}
    assert abs(times["n0"] - times["n1"]) <= 2


class TestBeforeTheTaint:
    def test_a_degraded_gang_that_does_not_fit_waits_as_a_unit(self) -> None:
        """Nothing of the gangs is known when the first node is judged, as in the real program."""
        world = fleet(10, budget=share(10))
        world.unread = set(MATES)
        for name in MATES:
            gang_pod(world, name)
            world.incident(name, severity="Degraded")
        world.run(3)
        assert ours(world) == []
        world.unread.clear()
        world.run(120)
        assert ours(world) == []
        assert {world.condition(name, "Blocked") for name in MATES} == {"GangBudget"}

    def test_a_mate_that_was_not_read_yet_counts(self) -> None:
        world = fleet(10, budget=share(10))
        world.unread = {"n1"}
        world.pause()
        for name in ("n0", "n1"):
            gang_pod(world, name)
            world.incident(name, severity="Degraded")
        world.run(1)
        world.pauses.clear()
        world.run(3)
        assert ours(world) == []
        world.unread.clear()
        world.run(60)
        assert ours(world) == []

    @pytest.mark.parametrize("level", ["Drain", "Cordon"])
    def test_a_fatal_node_and_a_mere_cordon_wait_for_nobody(self, level: str) -> None:
        world = fleet(10, budget=share(10))
        world.unread = {"n0"}
        gang_pod(world, "n0")
        world.incident("n0", severity="Fatal" if level == "Drain" else "Degraded", level=level)
        world.run(1)
        assert ours(world) == ["n0"]

    def test_unreadable_gangs_delay_a_taint_for_ten_seconds_at_most(
        self,
    ) -> None:
        world = fleet(10)
        world.unread = {"n0", "n1"}
        world.incident("n0", severity="Degraded")
        world.run(9)
        assert ours(world) == []
        world.run(3)
        assert ours(world) == ["n0"]

    def test_a_gang_that_fits_is_taken(self) -> None:
        world = fleet(10, budget=share(40))
        for name in MATES:
            gang_pod(world, name)
            world.incident(name, severity="Degraded")
        world.run(3)
        assert ours(world) == sorted(MATES)
