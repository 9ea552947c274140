"""Messages and steps of a session while the API server refuses a write on its node."""

from pathlib import Path

import pytest

from rules.api import writes as d
from rules.api.names import ANNOTATION_SESSION, LABEL_QUARANTINE, TAINT_QUARANTINE
from rules.api.quarantine_taint import AUTOSCALER_ANNOTATIONS
from rules.session import status as st
from tests.support.scenario.fleets import fleet, share
from tests.support.scenario.session_world import World

NODE = "n0"
DOCS = Path(__file__).resolve().parents[3] / "docs"
RBAC = 'nodes "n0" is forbidden: User "x" cannot patch resource "nodes"'
WEBHOOK = 'admission webhook "keep.example" denied the request: not that node'
BUSY = "Too many requests, please try again later."


def quarantined() -> World:
    world = fleet(4)
    world.fail_until(NODE, "Quarantined")
    return world


def sent(world: World, kind: type) -> list[int]:
    return [status for _, write, _, status in world.sent if isinstance(write, kind)]


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {
        c.type: (c.reason, c.message)
        for c in world.session(NODE).status.conditions
        if c.status == "True"
    }


@pytest.mark.parametrize(
    ("answer", "reason", "who", "remedy"),
    [
        pytest.param((403, RBAC), "MissingPermission", 'User "x"', "Grant it patch", id="RBAC"),
        pytest.param(
            (403, WEBHOOK), "MarkRefused", "keep.example", "Check the admission", id="webhook"
        ),
        pytest.param(
            (422, "spec: Invalid"), "MarkRefused", "spec: Invalid", "Check the admission", id="422"
        ),
    ],
)
def test_a_refused_restoration_is_reported_and_cancels_nothing(
    answer: tuple[int, str], reason: str, who: str, remedy: str
) -> None:
    world = quarantined()
    world.taint(NODE, "ToBeDeletedByClusterAutoscaler")
    world.run(5)
    world.cordon(NODE, on=False)
    world.refusing[d.TaintAndCordon] = answer
    tainted = len(sent(world, d.TaintAndCordon))
    world.untaint(NODE, "ToBeDeletedByClusterAutoscaler")
    world.run(1200)
    assert world.phase(NODE) == "Quarantined", "a missing part is no request meanwhile"
    reported = conditions(world)
    assert reported["Blocked"][0] == reported["NeedsHuman"][0] == reason
    assert who in reported["Blocked"][1]
    assert remedy in world.message(NODE)
    assert 5 <= len(sent(world, d.TaintAndCordon)) - tainted <= 15, "tried again, with back-off"
    del world.refusing[d.TaintAndCordon]
    world.run(150)
    assert world.unschedulable(NODE)
    assert conditions(world) == {}
    assert "refused" not in world.message(NODE)


@pytest.mark.parametrize("answer", [(403, RBAC), (403, WEBHOOK), (429, BUSY)])
def test_a_refused_label_blocks_nothing_and_is_reported(answer: tuple[int, str]) -> None:
    world = fleet(4)
    world.add_pod("web-0", NODE)
    world.refusing[d.RelabelNode] = answer
    world.fail_until(NODE, "Draining", limit=120)
    world.label(NODE, **{LABEL_QUARANTINE: None})
    world.run_until(NODE, "Quarantined", limit=120)
    world.run(60)
    reason = {403: "MissingPermission", 429: "ApiBusy"}[answer[0]]
    if "webhook" in answer[1]:
        reason = "MarkRefused"
    assert conditions(world)["Blocked"][0] == reason
    assert "NeedsHuman" not in conditions(world), "the drain went on, nobody has to come"
    assert len(sent(world, d.RelabelNode)) <= (12 if answer[0] == 429 else 6), "with back-off"
    assert "change the quarantine label" in world.message(NODE)
    del world.refusing[d.RelabelNode]
    world.run(150)
    assert world.nodes[NODE]["metadata"]["labels"]["gpuward.io/quarantine"] == "true"
    assert conditions(world) == {}


def test_a_refused_label_does_not_hide_the_budget_that_blocks_the_drain() -> None:
    world = fleet(4)
    world.add_pod("web-0", NODE)
    world.add_pdb("web", minAvailable=1)
    world.refusing[d.RelabelNode] = (403, RBAC)
    world.fail_until(NODE, "Draining", limit=120)
    world.label(NODE, **{LABEL_QUARANTINE: None})
    world.run(60)
    assert conditions(world)["Blocked"][0] == "BudgetNeverAllows"
    assert conditions(world)["NeedsHuman"][0] == "BudgetNeverAllows"
    assert "team-a/web" in world.message(NODE)
    assert "change the quarantine label" in world.message(NODE)


@pytest.mark.parametrize("answer", [(403, RBAC), (422, "spec: Invalid"), (429, BUSY)])
def test_the_ended_session_reports_a_refused_removal(answer: tuple[int, str]) -> None:
    world = quarantined()
    world.refusing[d.RemoveTaint] = answer
    world.heal_until_released(NODE)
    world.run(1200)
    assert world.is_quarantined(NODE)
    assert "remove its taint and cordon from the node" in conditions(world)["Blocked"][1]
    assert "remove its taint and cordon from the node" in world.message(NODE)
    assert ("NeedsHuman" in conditions(world)) == (answer[0] != 429)
    assert len(sent(world, d.RemoveTaint)) <= 60, "with back-off"
    event_messages = [
        e
        for e in world.events.values()
        if "taint and cordon" in e["message"] and "cannot be removed" in e["message"]
    ]
    assert len(event_messages) == (answer[0] != 429)
    del world.refusing[d.RemoveTaint]
    world.run(150)
    assert not world.is_quarantined(NODE)
    assert conditions(world) == {}
    assert world.message(NODE) == "Released: healthy for 10m."


def test_a_refused_removal_for_a_deleted_session_is_an_event() -> None:
    world = quarantined()
    world.close_all(NODE)
    world.refusing[d.RemoveTaint] = (403, WEBHOOK)
    world.quarantines.clear()
    world.run(300)
    assert world.is_quarantined(NODE)
    event_messages = [
        e["message"] for e in world.events.values() if "cannot be removed" in e["message"]
    ]
    assert len(event_messages) == 1
    assert "keep.example" in event_messages[0]


def test_a_busy_api_server_delays_a_quarantine_and_is_reported() -> None:
    world = fleet(4)
    world.refusing[d.TaintAndCordon] = (429, BUSY)
    world.incident(NODE)
    world.run(60)
    assert conditions(world)["Blocked"][0] == "ApiBusy"
    assert "NeedsHuman" not in conditions(world)
    assert "too busy" in world.message(NODE)
    assert len(sent(world, d.TaintAndCordon)) <= 8
    del world.refusing[d.TaintAndCordon]
    world.run_until(NODE, "Quarantined", limit=60)
    assert conditions(world) == {}


def test_a_refusal_that_lasts_is_written_once() -> None:
    world = quarantined()
    world.refusing[d.RelabelNode] = (403, RBAC)
    world.nodes[NODE]["metadata"]["labels"]["gpuward.io/quarantine"] = "edited"
    world.touch(world.nodes[NODE])
    world.run(300)
    before = world.quarantines[world.session(NODE).name]["metadata"]["resourceVersion"]
    since = st.since(world.session(NODE).status, "Blocked")
    world.run(600)
    assert world.quarantines[world.session(NODE).name]["metadata"]["resourceVersion"] == before
    assert st.since(world.session(NODE).status, "Blocked") == since


def test_a_refused_quarantine_takes_no_place_from_another_node() -> None:
    world = fleet(6, budget=share(100, at_most=1))
    world.refusing[d.TaintAndCordon] = (403, WEBHOOK)
    world.refusing_on = {NODE}
    world.incident(NODE)
    world.run(30)
    world.incident("n1")
    world.run(200)
    assert world.phase("n1") == "Quarantined"
    assert world.phase(NODE) == "Pending"
    world.refusing.clear()
    world.run(300)
    assert not world.is_quarantined(NODE), "the place is taken by now"
    assert world.condition(NODE, "Blocked") == "Budget"
    world.close_all("n1")
    world.run_until(NODE, "Quarantined", limit=900)
    assert not world.is_quarantined("n1")


def test_a_permanently_refused_quarantine_needs_an_operator_once() -> None:
    world = fleet(6, budget=share(100, at_most=1))
    world.refusing[d.TaintAndCordon] = (403, WEBHOOK)
    world.incident(NODE)
    world.run(60)
    since = st.since(world.session(NODE).status, "NeedsHuman")
    world.run(1200)
    assert conditions(world)["NeedsHuman"][0] == "MarkRefused"
    assert st.since(world.session(NODE).status, "NeedsHuman") == since
    event_messages = [e for e in world.events.values() if e["reason"] == "QuarantineNeedsHuman"]
    assert len(event_messages) == 1


def unreleased() -> World:
    """A node whose session has ended and whose quarantine nobody lets us take off."""
    world = quarantined()
    world.refusing[d.RemoveTaint] = (403, WEBHOOK)
    world.heal_until_released(NODE)
    world.run(60)
    assert "NeedsHuman" in conditions(world)
    return world


def test_a_node_returned_by_an_operator_is_watched_again() -> None:
    world = unreleased()
    world.untaint(NODE, TAINT_QUARANTINE)
    world.incident(NODE)
    world.run(30)
    assert len(world.sessions(NODE)) == 1, "the cordon keeps work away"
    world.cordon(NODE, on=False)
    world.run(30)
    assert len(world.sessions(NODE)) == 2
    assert world.phase(NODE) == "Pending"
    assert "keep.example" in conditions(world)["Blocked"][1]
    del world.refusing[d.RemoveTaint]
    world.run_until(NODE, "Quarantined", limit=300)


def test_the_runbook_removes_all_parts_of_a_quarantine() -> None:
    world = unreleased()
    text = (DOCS / "blocked.md").read_text()
    for name in (ANNOTATION_SESSION, *AUTOSCALER_ANNOTATIONS):
        assert f"{name}-" in text
        world.annotate(NODE, name, None)
    assert f"kubectl label node NODE {LABEL_QUARANTINE}-" in text
    world.label(NODE, **{LABEL_QUARANTINE: None})
    assert f"kubectl taint node NODE {TAINT_QUARANTINE}-" in text
    world.untaint(NODE, TAINT_QUARANTINE)
    world.cordon(NODE, on=False)
    world.run(5)
    assert conditions(world) == {}
    assert world.message(NODE) == "Released: healthy for 10m."


def test_a_deleted_node_settles_what_its_ended_session_asked_of_people() -> None:
    world = unreleased()
    del world.nodes[NODE]
    world.run(5)
    assert conditions(world) == {}
    assert world.message(NODE) == "Released: healthy for 10m."


@pytest.mark.parametrize("mode", ["Enforce", "Shadow"])
@pytest.mark.parametrize(("code", "reason"), [(403, "MissingPermission"), (500, "PodsNotListed")])
def test_pods_that_cannot_be_listed_are_reported_in_shadow_as_well(
    mode: str, code: int, reason: str
) -> None:
    world = fleet(5, mode=mode)
    world.unlisted = (code, "no")
    world.incident(NODE)
    world.run(60, step=5)
    assert world.condition(NODE, "Blocked") == reason
    assert bool(world.condition(NODE, "NeedsHuman")) == (code == 403)
    world.unlisted = None
    world.run(60, step=5)
    assert not world.condition(NODE, "Blocked")
    assert world.session(NODE).status.drain is not None


@pytest.mark.parametrize("answer", [(403, RBAC), (422, "status: Invalid"), (500, "no")])
def test_a_status_that_is_refused_is_asked_for_ever_more_rarely(answer: tuple[int, str]) -> None:
    """Also after a boot of a node that an operator keeps out, which is checked again at once."""
    world = quarantined()
    by_operator = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ada"}
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["causes"].append(by_operator)
    world.touch(session)
    world.run(5)
    world.refusing[d.WriteSessionStatus] = answer
    world.reboot(NODE)
    asked = len(sent(world, d.WriteSessionStatus))
    world.run(600)
    asked = len(sent(world, d.WriteSessionStatus)) - asked
    assert 10 < asked < 60, "once in 30 s, once it has failed some times"
    world.refusing.clear()
    world.run(31)
    assert "NewBoot" in [entry.step for entry in world.session(NODE).status.timeline]
