"""Nodes, annotations and verdicts that strangers wrote: sessions come to rest, and say what is
wrong.
"""

from __future__ import annotations

import json

import pytest

from rules.api import writes as d
from rules.api.names import ANNOTATION_SESSION
from rules.session.causes import MAX_CAUSES
from tests.support.scenario.session_world import World

NODE = "n0"


def world_of(*names: str) -> World:
    world = World()
    for name in names or ("n0", "n1", "n2", "n3"):
        world.add_node(name)
    return world


def test_a_node_with_more_incidents_than_causes_fit_is_marked_and_comes_to_rest() -> None:
    world = world_of()
    for number in range(MAX_CAUSES + 8):
        world.incident(NODE, f"Reason{number}", level="Cordon", severity="Degraded")
    world.run_until(NODE, "Marked", limit=60)
    world.run(300)
    assert world.unschedulable(NODE)
    assert len(world.writes(d.PatchSessionSpec)) <= 2
    world.close_all(NODE)
    world.run_until(NODE, "Released", limit=3600)


@pytest.mark.parametrize("name", ["../x", "Not A Session", "", "x" * 300])
def test_an_impossible_session_annotation_does_not_keep_a_fault_waiting(
    name: str,
) -> None:
    world = world_of()
    world.annotate(NODE, ANNOTATION_SESSION, json.dumps({"session": name}))
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=120)
    refused = [w for _, w, _, code in world.sent if isinstance(w, d.CreateSession) and code == 422]
    assert refused == []


def test_a_long_boot_id_and_a_name_cut_at_a_dot_are_written_as_they_fit() -> None:
    name = "n" * 199 + "." + "m" * 30
    world = world_of(name, "n1", "n2", "n3")
    world.nodes[name]["status"]["nodeInfo"]["bootID"] = "b" * 80
    world.healths[name]["status"]["bootID"] = "b" * 80
    world.open_by_person(name)
    world.run_until(name, "Quarantined", limit=120)
    assert len(world.session(name).spec.boot_id) <= 64


def test_a_session_in_an_unknown_phase_is_said_and_nothing_is_done_to_its_node() -> None:
    world = world_of()
    world.open_by_person(NODE)
    world.run_until(NODE, "Quarantined", limit=120)
    (session,) = world.quarantines.values()
    session["status"]["phase"] = "Banana"
    world.touch(session)
    harm = len(world.writes(d.MarkNode, d.EvictPod, d.UnmarkNode))
    world.run(120)
    assert world.condition(NODE, "Blocked") == "SessionUnreadable"
    assert "'Banana'" in world.message(NODE)
    assert len(world.writes(d.MarkNode, d.EvictPod, d.UnmarkNode)) == harm
    world.incident("n1")
    world.run_until("n1", "Quarantined", limit=120)


def test_a_session_that_may_not_be_opened_is_said_on_the_node_and_tried_again() -> None:
    world = world_of()
    world.refusing[d.CreateSession] = (422, "spec.causes: Invalid value")
    world.incident(NODE)
    world.run(1200)
    tries = [w for w in world.writes(d.CreateSession) if w.node == NODE]
    assert 5 <= len(tries) <= 15, "with back-off"
    said = [w.message for w in world.writes(d.EmitEvent) if w.node == NODE]
    assert any("No session is opened" in text and "Invalid value" in text for text in said)
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
