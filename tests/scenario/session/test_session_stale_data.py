"""The main path; views that are too old; objects that strangers wrote."""

import json

import pytest

from rules.api import writes as d
from rules.api.names import ANNOTATION_SESSION
from rules.session.causes import MAX_CAUSES
from rules.session.recheck import recheck
from tests.support.scenario.fleets import NODE, at, drain_of, evictions_after, fleet
from tests.support.scenario.session_world import ROOMY, World, policy_of


def test_a_fatal_fault_goes_through_all_phases() -> None:
    world = fleet(10)
    world.add_pod("web-1", "n3")
    incident = world.incident("n3")

    world.run_until("n3", "Quarantined", limit=30)
    assert world.unschedulable("n3")
    assert ("team-a", "web-1") not in world.pods
    assert world.session("n3").status.drain is not None
    drain = drain_of(world, "n3")
    assert drain.evicted == 1

    world.run(600)
    assert world.phase("n3") == "Quarantined"
    world.close("n3", incident)
    world.run_until("n3", "Released", limit=700)
    assert not world.is_quarantined("n3")
    assert not world.unschedulable("n3")
    assert world.phases("n3") == ["Marked", "Draining", "Quarantined", "Validating", "Released"]


def test_the_same_input_gives_the_same_decisions_and_messages() -> None:
    runs = []
    for _ in range(2):
        world = fleet(5)
        for index in range(6):
            world.add_pod(f"web-{index}", f"n{index % 3}", grace=3)
        world.add_pdb("keep", minAvailable=4)
        for name in ("n2", "n0", "n1"):
            world.incident(name)
        world.run(120, step=2)
        runs.append((world.status_changes, [(at, wire, code) for at, _, wire, code in world.sent]))
    assert runs[0] == runs[1]


def test_a_node_that_no_kubelet_reported_is_drained_and_released_too() -> None:
    world = fleet(10)
    bare = world.nodes["n3"]
    bare["status"].pop("conditions", None)
    bare["status"].pop("nodeInfo", None)
    incident = world.incident("n3")
    world.run_until("n3", "Quarantined", limit=30)
    world.close("n3", incident)
    world.run_until("n3", "Released", limit=700)
    assert not world.is_quarantined("n3")


DOUBT = "what is known of gpuwardpauses is too old to act on: Listing gpuwardpauses failed: 500"


@pytest.mark.parametrize("phase", ["Pending", "Marked", "Draining", "Quarantined", "Validating"])
def test_no_disruption_while_the_view_is_unreliable(phase: str) -> None:
    world = at(phase)
    world.doubt = DOUBT
    world.policy = policy_of(budget=ROOMY)
    world.pdbs.clear()
    before, sent = world.now, len(world.sent)
    world.run(900, step=20)
    assert world.phase(NODE) == phase
    assert not [w for _, w, _, _ in world.sent[sent:] if w.disruptive]
    assert evictions_after(world, before) == 0
    assert world.condition(NODE, "Paused") == "ViewTooOld"
    blocked = next(c for c in world.session(NODE).status.conditions if c.type == "Paused")
    assert "gpuwardpauses" in blocked.message


@pytest.mark.parametrize(
    ("phase", "then"),
    [("Pending", "Quarantined"), ("Draining", "Quarantined"), ("Validating", "Released")],
)
def test_it_goes_on_by_itself_when_the_view_is_fresh(phase: str, then: str) -> None:
    world = at(phase)
    world.doubt = DOUBT
    world.policy = policy_of(budget=ROOMY)
    world.pdbs.clear()
    world.run(60, step=5)
    assert world.phase(NODE) == phase
    world.doubt = ""
    world.run_until(NODE, then, limit=700)


def test_the_recheck_stops_an_eviction_that_was_decided_before() -> None:
    world = at("Draining")
    node = world.node(NODE)
    eviction = d.EvictPod(node=NODE, namespace="team-a", name="kept", uid="u")
    assert recheck(eviction, node, world.snapshot()) == ""
    world.doubt = DOUBT
    assert recheck(eviction, node, world.snapshot()) == DOUBT


def test_doubt_costs_a_drain_no_time() -> None:
    world = at("Draining")
    world.doubt = DOUBT
    world.run(7200, step=20)
    world.doubt = ""
    world.run(5)
    drain = drain_of(world)
    assert drain.suspended_seconds >= 7100
    assert world.condition(NODE, "NeedsHuman") != "DrainTimeout"


def test_a_removed_part_is_assessed_when_owners_are_known_again() -> None:
    world = at("Quarantined")
    world.doubt = "what is known of other operators' maintenance leases is too old to act on"
    world.cordon(NODE, on=False)
    world.run(30)
    assert world.phase(NODE) == "Quarantined"
    assert not world.unschedulable(NODE)
    world.doubt = ""
    world.run(5)
    assert world.phase(NODE) == "Cancelled"


def world_of(*names: str) -> World:
    world = World()
    for name in names or ("n0", "n1", "n2", "n3"):
        world.add_node(name)
    return world


def test_a_node_with_too_many_incidents_is_quarantined_and_settles() -> None:
    world = world_of()
    for number in range(MAX_CAUSES + 8):
        world.incident(NODE, f"Reason{number}", level="Cordon", severity="Degraded")
    world.run_until(NODE, "Marked", limit=60)
    world.run(300)
    assert world.unschedulable(NODE)
    assert len(world.writes(d.PatchSessionSpec)) <= 2
    world.heal_until_released(NODE, limit=3600)


@pytest.mark.parametrize("name", ["../x", "Not A Session", "", "x" * 300])
def test_an_impossible_session_annotation_does_not_keep_a_fault_waiting(
    name: str,
) -> None:
    world = world_of()
    world.annotate(NODE, ANNOTATION_SESSION, json.dumps({"session": name}))
    world.fail_until(NODE, "Quarantined", limit=120)
    refused = [w for _, w, _, code in world.sent if isinstance(w, d.CreateSession) and code == 422]
    assert refused == []


def test_a_long_boot_id_and_a_name_cut_at_a_dot_are_written_as_they_fit() -> None:
    name = "n" * 199 + "." + "m" * 30
    world = world_of(name, "n1", "n2", "n3")
    world.nodes[name]["status"]["nodeInfo"]["bootID"] = "b" * 80
    world.healths[name]["status"]["bootID"] = "b" * 80
    world.open_by_operator(name)
    world.run_until(name, "Quarantined", limit=120)
    assert len(world.session(name).spec.boot_id) <= 64


def test_an_unknown_phase_is_reported_and_its_node_untouched() -> None:
    world = world_of()
    world.open_by_operator(NODE)
    world.run_until(NODE, "Quarantined", limit=120)
    (session,) = world.quarantines.values()
    session["status"]["phase"] = "Banana"
    world.touch(session)
    disruption = len(world.writes(d.TaintAndCordon, d.EvictPod, d.RemoveTaint))
    world.run(120)
    assert world.condition(NODE, "Blocked") == "SessionUnreadable"
    assert "'Banana'" in world.message(NODE)
    assert len(world.writes(d.TaintAndCordon, d.EvictPod, d.RemoveTaint)) == disruption
    world.fail_until("n1", "Quarantined", limit=120)


def test_a_refused_session_is_reported_on_the_node_and_retried() -> None:
    world = world_of()
    world.refusing[d.CreateSession] = (422, "spec.causes: Invalid value")
    world.incident(NODE)
    world.run(1200)
    tries = [w for w in world.writes(d.CreateSession) if w.node == NODE]
    assert 5 <= len(tries) <= 15, "with back-off"
    reported = [w.message for w in world.writes(d.EmitEvent) if w.node == NODE]
    assert any(
        "No session could be opened" in text and "Invalid value" in text for text in reported
    )
    del world.refusing[d.CreateSession]
    world.run_until(NODE, "Quarantined", limit=300)


def test_causes_that_may_not_be_written_keep_no_fault_waiting() -> None:
    world = world_of()
    world.incident(NODE, "Reason1", level="Cordon", severity="Degraded")
    world.run_until(NODE, "Marked", limit=60)
    world.refusing[d.PatchSessionSpec] = (422, "spec.causes: Too many")
    world.incident(NODE, "Reason2", level="Cordon", severity="Degraded")
    world.run(600)
    assert world.condition(NODE, "Blocked") == "SessionRefused"
    assert len(world.writes(d.PatchSessionSpec)) <= 12
    del world.refusing[d.PatchSessionSpec]
    world.run(150)
    assert world.condition(NODE, "Blocked") != "SessionRefused"
    assert len(world.session(NODE).spec.causes) == 2
