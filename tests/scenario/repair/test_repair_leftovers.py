"""Session and quarantine vanish while nobody of gpuward runs; the next leader takes back what is
ours.

And only that: unrecorded changes stay and are reported (issue 13).
"""

import json
from typing import Any

import pytest

from rules.api.names import (
    ANNOTATION_MOVED,
    ANNOTATION_SESSION,
    DEPLOYED,
    LABEL_QUARANTINE,
    PAUSED_BY_US,
    TAINT_QUARANTINE,
)
from rules.api.timestamps import format_time
from tests.support.repair.job_world import EXPORTER, PLUGIN, JobWorld
from tests.support.scenario.fleets import fleet
from tests.support.scenario.repair_world import NODE, REPLACE, RESTART, RepairWorld
from tests.support.scenario.session_world import World

FOREIGN = "example.io/driver"
AT = "2024-05-01T00:00:00Z"
"""When the managers wrote, before any session that is known."""


def moved() -> JobWorld:
    """The Job of a reset runs, and everybody is off the GPUs."""
    world = JobWorld("ResetGPUJob", "ResetGPU", "hangs")
    world.fault()
    world.until(lambda: world.held("jobs"))
    assert world.moved
    return world


def forgotten(world: World, *, record: bool = True) -> None:
    """Session and quarantine are gone, and nobody saw them go; the fault is over."""
    world.quarantines.clear()
    node = world.nodes[NODE]
    node["metadata"]["annotations"].pop(ANNOTATION_SESSION, None)
    node["metadata"]["labels"].pop(LABEL_QUARANTINE, None)
    node["spec"]["taints"] = [t for t in node["spec"]["taints"] if t["key"] != TAINT_QUARANTINE]
    node["spec"]["unschedulable"] = False
    if not record:
        node["metadata"]["annotations"].pop(ANNOTATION_MOVED, None)
    world.close_all(NODE)
    world.touch(node)
    world.restart()
    world.run(30)


def text(world: World) -> str:
    return " ".join(event["message"] for event in world.events.values())


def notes(world: World) -> dict[str, str]:
    found: dict[str, str] = world.nodes[NODE]["metadata"]["annotations"]
    return found


def test_who_was_moved_comes_back_by_the_record_on_the_node() -> None:
    world = moved()
    assert json.loads(notes(world)[ANNOTATION_MOVED]) == {EXPORTER: DEPLOYED, PLUGIN: DEPLOYED}
    forgotten(world)
    assert world.settled
    assert ANNOTATION_MOVED not in notes(world)
    assert f"label {PLUGIN}" in text(world)
    assert "An ended or deleted session left" in text(world)


def test_without_a_record_a_label_stays_and_is_reported() -> None:
    world = moved()
    forgotten(world, record=False)
    assert world.labels[PLUGIN] == PAUSED_BY_US
    assert world.released is None, "its value names its owner"
    assert f"label {EXPORTER}, label {PLUGIN} may belong to gpuward" in text(world)


def test_an_ended_session_is_a_record_too() -> None:
    world = moved()
    sessions = dict(world.quarantines)
    forgotten(world, record=False)
    for session in sessions.values():
        session["status"]["phase"] = "Released"
    world.quarantines |= sessions
    world.restart()
    world.run(30)
    assert world.settled


def test_a_copied_label_is_not_gpuwards() -> None:
    world = moved()
    world.label(NODE, **{FOREIGN: PAUSED_BY_US})
    forgotten(world)
    assert world.labels[PLUGIN] == DEPLOYED
    assert world.labels[FOREIGN] == PAUSED_BY_US
    assert f"label {FOREIGN} may belong to gpuward" in text(world)


def test_while_the_session_lives_only_what_it_moved_comes_back() -> None:
    world = moved()
    world.label(NODE, **{FOREIGN: PAUSED_BY_US})
    world.ending = "vanishes"
    world.run(1800, step=10)
    assert (world.labels[PLUGIN], world.released) == (DEPLOYED, None)
    assert world.labels[FOREIGN] == PAUSED_BY_US


HOSTILE = [
    "",
    "{",
    "[]",
    "null",
    '{"a": 1}',
    json.dumps({PLUGIN: "false"}),
    json.dumps({PLUGIN: DEPLOYED, "a b": DEPLOYED}),
    json.dumps({PLUGIN: DEPLOYED, "x/y/z": DEPLOYED}),
    json.dumps({PLUGIN: DEPLOYED, **{f"x{n}": DEPLOYED for n in range(16)}}),
    json.dumps({PLUGIN: DEPLOYED}) + " " * 9000,
    "[" * 5000,
    "\ud800",
]


@pytest.mark.parametrize("record", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_record_does_nothing(record: str) -> None:
    world = moved()
    notes(world)[ANNOTATION_MOVED] = record
    forgotten(world)
    assert world.labels[PLUGIN] == PAUSED_BY_US
    assert notes(world)[ANNOTATION_MOVED] == record


def test_a_record_moves_no_label_of_another_value() -> None:
    world = moved()
    notes(world)[ANNOTATION_MOVED] = json.dumps({FOREIGN: DEPLOYED, PLUGIN: DEPLOYED})
    world.label(NODE, **{FOREIGN: "false"})
    forgotten(world)
    assert (world.labels[FOREIGN], world.labels[PLUGIN]) == ("false", DEPLOYED)


@pytest.mark.parametrize("kind", [RESTART, REPLACE])
def test_a_request_on_the_node_is_recognized_by_its_message(kind: str) -> None:
    steps = {"RestartNode": 1} if kind == RESTART else {"ReplaceNode": 1}
    world = RepairWorld(does="hangs", steps={
        step: {"adapter": "NodeConditions", "timeout": "30m"} for step in steps
    })  # fmt: skip
    world.fail_until(NODE, "Repairing", limit=300)
    world.run(20)
    assert world.asks(NODE, kind)
    forgotten(world)
    assert not world.asks(NODE, kind)
    assert f"condition {kind}" in text(world)


def owner(manager: str, *paths: tuple[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for top, field in paths:
        place = fields.setdefault(top, {})
        place = place.setdefault("f:annotations", {}) if top == "f:metadata" else place
        place[field] = {}
    return {"manager": manager, "operation": "Update", "time": AT, "fieldsV1": fields}


CORDON = ("f:spec", "f:unschedulable")
KEEP = ("f:metadata", "f:karpenter.sh/do-not-disrupt")


@pytest.mark.parametrize(
    ("managers", "ours"),
    [
        ([owner("gpuward-remediator", CORDON, KEEP)], True),
        ([owner("kubectl-cordon", CORDON), owner("kubectl-annotate", KEEP)], False),
        ([owner("gpuward-remediator", CORDON, KEEP), owner("argocd", CORDON, KEEP)], False),
        ([owner("ancient-changes", CORDON, KEEP)], False),
        ([], False),
    ],
    ids=["ours alone", "an operator's", "somebody wants it, too", "merged", "unknown"],
)
def test_cordon_and_annotations_stay_and_are_reported_if_gpuward_set_them(
    managers: list[dict[str, Any]], ours: bool
) -> None:
    """An operator may have kept the cordon when removing the taint: a second one leaves no
    trace.
    """
    world = fleet(3)
    node = world.nodes[NODE]
    node["spec"]["unschedulable"] = True
    node["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "true"
    node["metadata"]["managedFields"] = managers
    world.restart()
    world.run(30)
    assert world.unschedulable(NODE)
    assert "karpenter.sh/do-not-disrupt" in notes(world)
    assert ("do-not-disrupt, its cordon may belong to gpuward" in text(world)) is ours


def test_the_label_of_a_quarantine_without_a_taint_is_removed() -> None:
    world = fleet(3)
    world.label(NODE, **{LABEL_QUARANTINE: "true"})
    world.restart()
    world.run(30)
    assert LABEL_QUARANTINE not in world.nodes[NODE]["metadata"]["labels"]
    assert f"left label {LABEL_QUARANTINE} on this node" in text(world)


def test_what_a_session_that_is_known_left_was_left_on_purpose() -> None:
    world = fleet(3)
    world.add_ended_session(NODE, "earlier")
    node = world.nodes[NODE]
    node["spec"]["unschedulable"] = True
    node["metadata"]["managedFields"] = [
        owner("gpuward-remediator", CORDON) | {"time": format_time(world.now - 1800)}
    ]
    world.restart()
    world.run(30)
    assert world.unschedulable(NODE)
    assert "its cordon" not in text(world)
