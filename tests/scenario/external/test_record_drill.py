"""What a fire drill leaves on record, and how a person takes it off."""

from __future__ import annotations

from rules.api.gpu_record import RecordStatus, node_record_name
from rules.api.timestamps import format_time
from tests.support.scenario.repair_world import NODE, RecordWorld
from tests.support.scenario.session_world import ROOMY, policy_of

DRILL = "example.com/gpu-drill"


def drilled() -> RecordWorld:
    """The trigger of the runbook, its label on and off, and the node given back."""
    world = RecordWorld()
    trigger = {
        "match": f"label {DRILL}", "for": "10s", "reason": "FireDrill", "level": "Drain",
        "action": "RestartNode",
    }  # fmt: skip
    world.policy = policy_of(budget=ROOMY, external=[trigger])
    labels = world.nodes[NODE]["metadata"]["labels"]
    labels[DRILL] = "true"
    world.touch(world.nodes[NODE])
    world.run_until(NODE, "Quarantined", limit=300, step=5)
    del labels[DRILL]
    world.touch(world.nodes[NODE])
    world.run_until(NODE, "Released", limit=3000, step=25)
    world.keep_records()
    return world


def record(world: RecordWorld) -> RecordStatus:
    return world.snapshot().records[node_record_name(NODE)].status


def test_a_drill_is_on_the_record_of_the_node_until_a_person_says_repaired() -> None:
    world = drilled()
    assert "1 fault in 90 days (FireDrill)" in record(world).message
    world.run(60, step=30)
    said = f"{format_time(world.now)} fire drill (ann)"
    world.annotate(NODE, "gpuward.io/repaired", said)
    world.run(60, step=30)
    world.keep_records()
    assert "no fault in 90 days counts against it" in record(world).message
    (event,) = record(world).events
    assert event.reason == "FireDrill", "what happened stays to be read"


def test_a_quarantine_by_hand_leaves_no_fault_on_record() -> None:
    world = RecordWorld()
    world.open_by_person(NODE)
    world.run_until(NODE, "Quarantined", limit=300, step=5)
    world.keep_records()
    assert node_record_name(NODE) not in world.snapshot().records
