"""Sessions whose objects vanish without an operator's request, and nodes whose clocks differ."""

import copy

import pytest

from rules.api.timestamps import format_time
from tests.support.scenario.fleets import fleet
from tests.support.scenario.session_world import ROOMY, World, policy_of

TWO = ("n0", "n1")


def quarantined(*nodes: str) -> World:
    world = fleet(6)
    for node in nodes:
        world.incident(node)
    for node in nodes:
        world.run_until(node, "Quarantined", limit=120)
    world.run(5)
    return world


def test_sessions_that_vanish_together_are_opened_again_and_no_node_is_freed() -> None:
    world = quarantined(*TWO)
    names = {world.session(node).name for node in TWO}
    for name in names:
        del world.quarantines[name]
    for _ in range(20):
        world.run(1)
        assert all(world.is_quarantined(node) and world.unschedulable(node) for node in TWO)
    assert {world.session(node).name for node in TWO} == names
    for node in TWO:
        assert world.phase(node) in {"Marked", "Draining", "Quarantined"}
        assert not world.session(node).spec.release
    lost = [e["message"] for e in world.events.values() if e["reason"] == "QuarantineSessionLost"]
    assert len(lost) == 2
    assert "the sessions of 2 nodes vanished within 2 s" in lost[0]
    assert "kubectl gpuward release n" in lost[0]


def test_one_session_that_is_deleted_ends_its_quarantine() -> None:
    world = quarantined(*TWO)
    del world.quarantines[world.session("n0").name]
    world.run(10)
    assert not world.is_quarantined("n0")
    assert world.is_quarantined("n1")
    world.run(30)
    assert not world.is_quarantined("n0"), "the fault stays covered by the request"


@pytest.mark.parametrize("apart_s", [10, 60])
def test_sessions_that_are_deleted_one_after_the_other_end_their_quarantines(apart_s: int) -> None:
    world = quarantined(*TWO)
    for node in TWO:
        del world.quarantines[world.session(node).name]
        world.run(apart_s)
    world.run(10)
    assert not any(world.is_quarantined(node) for node in TWO)


def test_a_recreated_session_is_released_as_any_other() -> None:
    world = quarantined(*TWO)
    for node in TWO:
        del world.quarantines[world.session(node).name]
    world.run(20)
    world.quarantines[world.session("n0").name]["spec"]["release"] = {"by": "ada", "reason": "ok"}
    world.run(10)
    assert not world.is_quarantined("n0")
    assert world.is_quarantined("n1")


def test_a_session_lost_without_a_leader_is_opened_again() -> None:
    world = quarantined(*TWO)
    name = world.session("n0").name
    del world.quarantines[name]
    world.restart()
    for _ in range(20):
        world.run(1)
        assert world.is_quarantined("n0")
    assert world.session("n0").name == name
    assert not world.session("n0").spec.release
    lost = [e["message"] for e in world.events.values() if e["reason"] == "QuarantineSessionLost"]
    assert len(lost) == 1
    assert "deleted while gpuward-remediator had no leader" in lost[0]


@pytest.mark.parametrize("away_s", [5, 200])
def test_a_session_that_went_with_its_definition_is_opened_again(away_s: int) -> None:
    world = quarantined("n0")
    name = world.session("n0").name
    world.undefine("gpuquarantines")
    for _ in range(away_s):
        world.run(1)
        assert world.is_quarantined("n0")
    world.undefined.clear()
    for _ in range(120):
        world.run(1)
        assert world.is_quarantined("n0")
    assert world.session("n0").name == name
    assert not world.session("n0").spec.release


def test_an_operators_quarantine_that_went_with_its_definition_is_opened_again() -> None:
    world = fleet(6)
    world.open_by_operator("n0")
    world.run_until("n0", "Quarantined", limit=120)
    world.undefine("gpuquarantines")
    for _ in range(200):
        world.run(1)
        assert world.is_quarantined("n0")
    world.undefined.clear()
    for _ in range(60):
        world.run(1)
        assert world.is_quarantined("n0")
    assert world.session("n0").spec.causes[0].source == "Human"


def reinstalled(world: World) -> None:
    """All definitions are deleted and created again, and a new leader starts."""
    world.undefine("gpuquarantines", "gpunodehealths", "gpuwardpauses")
    world.restart()
    world.run(20)
    world.undefined.clear()


def test_a_new_leader_waits_for_the_agents_before_it_frees_a_node_without_a_session() -> None:
    world = quarantined("n0")
    name, healths = world.session("n0").name, copy.deepcopy(world.healths)
    reinstalled(world)
    for _ in range(60):
        world.run(1)
        assert world.is_quarantined("n0")
    world.healths.update(healths)
    for _ in range(60):
        world.run(1)
        assert world.is_quarantined("n0")
    assert world.session("n0").name == name


def test_a_node_without_a_session_is_freed_once_its_agent_reports_no_fault() -> None:
    world = quarantined("n0")
    healths = copy.deepcopy(world.healths)
    reinstalled(world)
    world.run(60)
    assert world.is_quarantined("n0")
    world.healths.update(healths)
    world.close_all("n0")
    world.run(30)
    assert not world.is_quarantined("n0")


def test_an_orphaned_node_without_an_agent_is_released() -> None:
    world = quarantined("n0")
    reinstalled(world)
    world.run(240)
    assert world.is_quarantined("n0")
    world.run(120)
    assert not world.is_quarantined("n0")


def test_without_health_objects_nothing_is_released_and_nothing_is_drained() -> None:
    world = quarantined("n0")
    world.add_pod("work", "n1")
    world.undefine("gpunodehealths")
    before = len(world.sent)
    world.run(1800)
    assert world.is_quarantined("n0")
    assert world.phase("n0") == "Quarantined"
    assert not world.sessions("n1")
    assert world.pods_on("n1")
    disruptive = [
        write for _, write, _, _ in world.sent[before:] if getattr(write, "disruptive", False)
    ]
    assert disruptive == []


def returned(how: str) -> World:
    """A node whose fault is active and whose session an operator ended."""
    world = quarantined("n0")
    session = world.session("n0")
    if how == "uncordoned":
        world.cordon("n0", on=False)
    elif how == "released":
        world.quarantines[session.name]["spec"]["release"] = {"by": "ada", "reason": "ok"}
    else:
        del world.quarantines[session.name]
    world.run(30)
    assert not world.is_quarantined("n0")
    world.add_pod("work", "n0")
    return world


@pytest.mark.parametrize("away_s", [5, 200])
@pytest.mark.parametrize("how", ["uncordoned", "released", "deleted"])
def test_a_manual_request_outlives_the_crd(how: str, away_s: int) -> None:
    world = returned(how)
    name = world.session("n0").name
    world.undefine("gpuquarantines")
    world.run(away_s)
    world.undefined.clear()
    for _ in range(120):
        world.run(1)
        assert not world.is_quarantined("n0")
    assert world.pods_on("n0")
    assert world.session("n0").name == name
    assert world.phase("n0") == ("Cancelled" if how == "deleted" else "Released")
    lost = [e["message"] for e in world.events.values() if e["reason"] == "QuarantineSessionLost"]
    assert len(lost) == 1
    assert "which an operator ended" in lost[0]
    world.restart()
    world.run(60)
    assert not world.is_quarantined("n0"), "a new leader reads it"


def test_a_manual_request_outlives_the_deletion_of_all_sessions() -> None:
    world = quarantined("n0", "n1", "n2")
    world.cordon("n0", on=False)
    world.run(30)
    world.quarantines.clear()
    for _ in range(60):
        world.run(1)
        assert [world.is_quarantined(node) for node in ("n0", "n1", "n2")] == [False, True, True]


def test_who_deletes_an_ended_session_takes_the_request_back() -> None:
    world = returned("released")
    del world.quarantines[world.session("n0").name]
    world.run(60)
    assert world.is_quarantined("n0")


def paused() -> World:
    """A node with a fault and a pod, and a pause of everything that keeps both there."""
    world = fleet(6)
    world.pause("stop", all=True)
    world.add_pod("work", "n0")
    world.run(5)
    world.incident("n0")
    world.run(60)
    assert world.pods_on("n0")
    return world


def lost(world: World, kind: str) -> float:
    """How many objects of the kind count as lost; all scenarios share the counter."""
    labels = {"kind": kind}
    return (
        world.replica.metrics.registry.get_sample_value("gpuward_objects_lost_total", labels)
        or 0.0
    )


def stays_out_of_it(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.run(1)
        assert not world.is_quarantined("n0")
        assert world.pods_on("n0")


@pytest.mark.parametrize("away_s", [5, 200])
def test_a_pause_that_went_with_its_definition_stays_in_force(away_s: int) -> None:
    world = paused()
    before = lost(world, "GPUWardPause")
    world.undefine("gpuwardpauses")
    stays_out_of_it(world, away_s)
    world.undefined.clear()
    stays_out_of_it(world, 600)
    assert lost(world, "GPUWardPause") == before + 1


def test_a_lost_pause_ends_once_a_pause_is_seen_again() -> None:
    world = paused()
    world.undefine("gpuwardpauses")
    world.run(5)
    world.undefined.clear()
    stays_out_of_it(world, 120)
    world.pause("another", nodes=["n5"])
    world.run(60)
    assert world.is_quarantined("n0")


def test_a_lost_pause_ends_at_its_own_time() -> None:
    world = paused()
    world.pauses["stop"]["spec"]["until"] = format_time(world.now + 300)
    world.run(2)
    world.undefine("gpuwardpauses")
    world.run(5)
    world.undefined.clear()
    stays_out_of_it(world, 240)
    world.run(120)
    assert world.is_quarantined("n0")


def test_pauses_that_all_vanish_at_once_stay_in_force() -> None:
    world = paused()
    world.pause("also", nodes=["n0"])
    world.run(5)
    world.pauses.clear()
    stays_out_of_it(world, 600)


@pytest.mark.parametrize("others", [0, 1])
def test_a_pause_that_is_deleted_ends_within_seconds(others: int) -> None:
    world = paused()
    before = lost(world, "GPUWardPause")
    for number in range(others):
        world.pause(f"other-{number}", nodes=["n5"])
    world.run(5)
    del world.pauses["stop"]
    world.run(10)
    assert world.is_quarantined("n0")
    assert lost(world, "GPUWardPause") == before


def test_deleted_pauses_end_while_another_one_stays() -> None:
    world = paused()
    world.pause("also", nodes=["n0"])
    world.pause("other", nodes=["n5"])
    world.run(5)
    del world.pauses["stop"], world.pauses["also"]
    world.run(10)
    assert world.is_quarantined("n0")


def test_sessions_that_are_opened_again_are_counted() -> None:
    world = quarantined(*TWO)
    before = lost(world, "GPUQuarantine")
    world.undefine("gpuquarantines")
    world.run(20)
    world.undefined.clear()
    world.run(60)
    assert lost(world, "GPUQuarantine") == before + 2


NODE = "n0"


@pytest.mark.parametrize("behind_s", [0.0, 2400.0, -2400.0])
def test_a_fault_is_acted_on_whatever_the_clocks_of_the_nodes_say(behind_s: float) -> None:
    world = World(policy_of(budget=ROOMY))
    world.nodes_behind_s = behind_s
    world.add_nodes(5)
    world.run(600, step=10)
    world.incident(NODE)
    world.run(60, step=5)
    assert world.is_quarantined(NODE)
    assert world.phase(NODE) == "Quarantined"


@pytest.mark.parametrize("behind_s", [0.0, 2400.0, -2400.0])
def test_an_agent_that_stops_writing_is_silent_after_as_long(behind_s: float) -> None:
    world = World(policy_of(budget=ROOMY))
    world.nodes_behind_s = behind_s
    world.add_nodes(5)
    world.run(600, step=10)
    world.silence(NODE)
    world.run(780, step=10)
    world.incident(NODE)
    world.run(60, step=5)
    assert not world.quarantines
