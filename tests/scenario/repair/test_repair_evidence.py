"""Evidence first: a step that loses the kernel log waits for it, a minute and no longer (issue
13).
"""

from typing import Any

import pytest

from rules.api import writes as d
from rules.api.metadata import ObjectMeta
from rules.api.timestamps import format_time, parse_time
from rules.session.repair.evidence import expired_evidence, next_check_s, recorded
from tests.support.scenario.repair_world import NODE, RepairWorld
from tests.support.scenario.session_world import ROOMY, World, policy_of


def notes(world: World, step: str) -> list[str]:
    return [e.message for e in world.session(NODE).status.timeline if e.step == step]


def test_the_digest_is_on_record_before_anybody_is_asked() -> None:
    world = RepairWorld()
    world.fail_until(NODE, "Repairing")
    status = world.session(NODE).status
    kept = world.evidences[world.session(NODE).name]["spec"]["sha256"]
    assert recorded(status) == kept
    assert notes(world, "Evidence") == [f"kept as GPUEvidence, SHA-256 {kept}"]
    assert not notes(world, "WithoutEvidence")
    world.run_until(NODE, "Released", limit=1800)
    assert len(notes(world, "Evidence")) == 1


def test_a_restart_waits_a_minute_and_then_goes_on_without() -> None:
    world = RepairWorld()
    world.keeps_evidence = False
    world.fail_until(NODE, "Quarantined")
    drained_at = world.now
    world.run(50)
    assert not world.asked()
    assert "once its agent has saved evidence." in world.message(NODE)
    assert (parse_time(world.session(NODE).status.until) or 0) - drained_at >= 59
    world.run(30)
    assert [w.step for w in world.asked()] == ["RestartNode"]
    assert world.asked()[0].at - drained_at >= 59
    (text,) = notes(world, "WithoutEvidence")
    assert text.startswith("RestartNode continues without evidence")
    world.run_until(NODE, "Released", limit=1800)


def test_the_next_step_does_not_wait_for_it_again() -> None:
    world = RepairWorld(does="reboots")
    world.keeps_evidence = False
    world.incident(NODE)
    world.run(1300, step=5)
    first, second = world.asked()
    proven = world.session(NODE).status.repair[0].ended_at
    assert second.at - (parse_time(proven) or 0) < 900 + 50
    assert first.step != second.step


def test_evidence_that_comes_late_ends_the_wait() -> None:
    world = RepairWorld()
    world.keeps_evidence = False
    world.fail_until(NODE, "Quarantined")
    world.run(20)
    world.keep_evidence(NODE)
    world.run(12)
    assert [w.step for w in world.asked()] == ["RestartNode"]
    assert recorded(world.session(NODE).status)


def test_a_reset_keeps_the_log_and_waits_for_nothing() -> None:
    world = RepairWorld(does="hangs")
    world.keeps_evidence = False
    world.incident(NODE)
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = "ResetGPU"
    world.run_until(NODE, "Repairing", limit=60)
    assert world.session(NODE).status.repair[0].step == "ResetGPU"
    assert not notes(world, "WithoutEvidence")


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodeName": "n1"},
        {"nodeUID": "another"},
        {"session": "another"},
        {"sha256": "0" * 64},
        {"sha256": ["x"]},
        {"kernelLog": "changed afterwards"},
    ],
)
def test_what_is_not_this_nodes_or_was_changed_is_not_believed(
    wrong: dict[str, Any],
) -> None:
    world = RepairWorld()
    world.keeps_evidence = False
    world.fail_until(NODE, "Quarantined")
    world.keep_evidence(NODE)
    world.evidences[world.session(NODE).name]["spec"] |= wrong
    world.run(90)
    assert not recorded(world.session(NODE).status)
    assert notes(world, "WithoutEvidence")


def test_repair_off_keeps_evidence_all_the_same_and_shadow_keeps_none() -> None:
    world = RepairWorld()
    world.policy = policy_of(budget=ROOMY)
    world.incident(NODE)
    world.run(120, step=5)
    assert recorded(world.session(NODE).status)
    shadow = RepairWorld()
    shadow.policy = policy_of(mode="Shadow", budget=ROOMY)
    shadow.incident(NODE)
    shadow.run(120, step=5)
    assert not shadow.evidences, "there is no quarantine that an agent could see"
    assert not recorded(shadow.session(NODE).status)


def test_a_change_of_leader_records_it_once() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.change_leader()
    world.run(60, step=5)
    assert len(notes(world, "Evidence")) == 1


def test_evidence_goes_with_history_and_never_before_its_session() -> None:
    day = 86_400.0
    now = 100 * day

    def kept(name: str, age_days: float) -> ObjectMeta:
        at = format_time(now - age_days * day)
        return ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=at)

    found = [kept("young", 1), kept("open", 90), kept("old", 29)]
    deletions = expired_evidence(found, ["open"], now)
    assert deletions == (d.DeleteObject(plural="gpuevidences", name="old", uid="uid-old"),)


def test_a_report_that_runs_on_the_node_comes_before_the_step() -> None:
    """A Job of people, bound to the drained node by name: no step begins under it."""
    world = RepairWorld()
    world.policy = policy_of(budget=ROOMY)
    world.fail_until(NODE, "Quarantined")
    job = ("batch/v1", "Job", "bug-report")
    tolerations = [{"operator": "Exists"}]
    world.add_pod("bug-report-x", NODE, owner=job, gpus=0, tolerations=tolerations)
    world.policy = RepairWorld().policy
    world.run(300, step=5)
    assert not world.asked()
    assert world.condition(NODE, "Blocked") == "PodArrived"
    world.pods["team-a", "bug-report-x"]["status"]["phase"] = "Succeeded"
    world.run(120, step=5)
    assert [w.step for w in world.asked()] == ["RestartNode"]


def test_evidence_is_read_soon_and_with_growing_intervals() -> None:
    """It is on record when it is about as old again as it was late, at four looks a node."""
    world = RepairWorld()
    world.keeps_evidence = False
    world.fail_until(NODE, "Quarantined")
    session = world.session(NODE)
    (tainted_at,) = (parse_time(e.at) for e in session.status.timeline if e.step == "Marked")
    assert tainted_at is not None
    at, looks = tainted_at, []
    while (wait_s := next_check_s(session, at)) is not None:
        at += wait_s
        looks.append(at - tainted_at)
    assert looks == [5.0, 10.0, 20.0, 40.0]
    world.keeps_evidence = True
    world.run(60)
    assert recorded(world.session(NODE).status)
    assert next_check_s(world.session(NODE), tainted_at) is None
