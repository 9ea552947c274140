"""A drained node is tested under load before it comes back, and only a pass brings it back
(13.3).
"""

import msgspec
import pytest

from rules.api import writes as d
from rules.api.quarantine import Mode
from rules.api.repair_writes import CreateTestJob
from rules.api.timestamps import parse_time
from tests.support.scenario.repair_world import (
    HAPPENS,
    NODE,
    OUTCOMES,
    ValidationWorld,
    validation_policy,
)
from tests.support.scenario.server.apiserver import OWN

COMES_TO_NOTHING = sorted({*OUTCOMES, *HAPPENS} - {"passes", "fails", "is slow", "reboots"})


def test_s35_a_test_runs_under_quarantine_and_its_pass_releases_the_node() -> None:
    world = ValidationWorld("passes")
    world.fall_ill_and_heal()
    world.run(30)
    (job,) = world.jobs.values()
    spec = job["spec"]["template"]["spec"]
    assert spec["nodeName"] == NODE
    assert {"operator": "Exists"} in spec["tolerations"], "whatever keeps others off this node"
    assert job["metadata"]["name"] == f"{world.session(NODE).name}-validate-1"
    assert job["metadata"]["ownerReferences"][0]["kind"] == "GPUQuarantine"
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 1800)
    assert "tests its GPUs under load" in world.message(NODE)
    assert world.is_quarantined(NODE)
    world.run(300)
    assert world.tests_of() == [("Passed", "pass")]
    assert "Its test under load passed." in world.message(NODE)
    until = parse_time(world.session(NODE).status.until)
    world.run_until(NODE, "Released", limit=900)
    (test,) = world.session(NODE).status.validation
    assert [check.id for check in test.checks] == ["memory"]
    assert until == (parse_time(test.ended_at) or 0) + 600, "healthyFor begins after the test"
    assert world.now >= until
    assert "its test under load passed" in world.message(NODE)
    assert not world.is_quarantined(NODE)


def test_the_entry_is_written_before_the_job_is_made() -> None:
    world = ValidationWorld("hangs")
    world.fall_ill_and_heal()
    world.run(30)
    order = [
        type(write).__name__
        for _, write, _, _ in world.sent
        if isinstance(write, CreateTestJob)
        or (isinstance(write, d.WriteSessionStatus) and write.status.validation)
    ]
    assert order[:3] == ["WriteSessionStatus", "CreateTestJob", "WriteSessionStatus"]


@pytest.mark.parametrize("becomes", ["fails", "is slow"])
def test_a_failed_test_goes_on_with_the_next_step_and_another_test(
    becomes: str,
) -> None:
    world = ValidationWorld(becomes, "passes")
    world.fall_ill_and_heal()
    world.run_until(NODE, "Repairing", limit=600)
    cause = world.session(NODE).spec.causes[-1]
    assert (cause.source, cause.reason) == ("Validation", "ValidationFailed")
    assert cause.severity == ("Fatal" if becomes == "fails" else "Degraded")
    assert world.steps_of() == [("RestartNode", "Proven"), ("ReplaceNode", "Asked")]
    # The machine under the Node was replaced now, which the proof does not see: the boot does.
    world.run(90)
    world.reboot(NODE)
    world.run_until(NODE, "Released", limit=2 * 3600, step=5)
    assert [state for state, _ in world.tests_of()] == ["Failed", "Passed"]
    assert len(world.made()) == 2


def test_without_repair_a_failed_test_needs_an_operator_and_a_reboot_is_tested() -> None:
    world = ValidationWorld("fails", "passes", repair={"mode": "Off"})
    world.fail_until(NODE, "Quarantined", limit=600)
    world.close_all(NODE)
    world.run(1200)
    assert world.phase(NODE) == "Quarantined"
    assert world.condition(NODE, "NeedsHuman") == "ValidationFailed"
    assert "It is fail" in world.message(NODE) or "ValidationFailed" in world.message(NODE)
    world.reboot(NODE)
    world.run_until(NODE, "Released", limit=1800)
    assert [state for state, _ in world.tests_of()] == ["Failed", "Passed"]


@pytest.mark.parametrize("becomes", COMES_TO_NOTHING)
def test_an_unknown_result_is_retried_and_then_needs_an_operator(
    becomes: str,
) -> None:
    world = ValidationWorld(becomes, timeout="10m")
    world.fall_ill_and_heal()
    world.run(3600, step=20)
    assert world.tests_of() == [("Unknown", "unknown")] * 2
    assert world.phase(NODE) == "Validating"
    assert world.condition(NODE, "Blocked") == "ValidationUnknown"
    assert world.condition(NODE, "NeedsHuman") == "ValidationUnknown"
    assert "could not run 2 times" in world.message(NODE)
    assert world.is_quarantined(NODE)
    assert len(world.made()) == 2
    world.run(86_400, step=3600)
    assert len(world.made()) == 2, "days change nothing"


def test_a_job_of_the_same_name_by_another_program_does_not_count() -> None:
    world = ValidationWorld("passes")
    world.incident(NODE)
    world.run(1)
    name = f"{world.session(NODE).name}-validate-1"
    world.jobs[name] = {
        "metadata": {"name": name, "namespace": OWN, "uid": "theirs", "annotations": {}},
        "spec": {},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    world.run_until(NODE, "Validating", limit=3600)
    world.run(60)
    first, second = world.session(NODE).status.validation
    assert (first.state, first.message) == (
        "Unknown",
        "a Job of that name does not belong to gpuward",
    )
    assert second.state == "Asked"
    assert world.jobs[name]["metadata"]["uid"] == "theirs", "and it is left alone"


def test_a_node_that_reboots_under_the_test_is_tested_again_and_no_third_time() -> None:
    world = ValidationWorld("reboots")
    world.fall_ill_and_heal()
    world.run(3600, step=20)
    assert world.tests_of() == [("Unknown", "unknown")] * 2
    assert "rebooted during the test" in world.message(NODE)
    assert world.phase(NODE) == "Validating"


def test_a_cause_that_returns_ends_the_test_and_the_next_one_counts() -> None:
    world = ValidationWorld("hangs", "passes")
    world.fall_ill_and_heal()
    world.run(60)
    world.incident(NODE)
    world.run(60)
    assert world.tests_of()[0] == ("Withdrawn", "")
    assert world.jobs == {}
    assert world.phase(NODE) != "Validating"


def test_a_pass_before_the_cause_came_back_releases_nothing() -> None:
    world = ValidationWorld("passes", "hangs", repair={"mode": "Off"})
    world.fail_until(NODE, "Quarantined", limit=600)
    world.close_all(NODE)
    world.run(300)
    assert world.tests_of() == [("Passed", "pass")]
    again = world.incident(NODE)
    world.run(60)
    world.close(NODE, again)
    world.run(1200)
    assert [state for state, _ in world.tests_of()] == ["Outdated", "Asked"]
    assert world.is_quarantined(NODE)


def test_a_new_boot_after_the_pass_is_tested_too() -> None:
    world = ValidationWorld("passes")
    world.fall_ill_and_heal()
    world.run(300)
    assert world.tests_of() == [("Passed", "pass")]
    world.reboot(NODE)
    world.run_until(NODE, "Released", limit=1800)
    assert world.tests_of() == [("Passed", "pass")] * 2


@pytest.mark.parametrize("keeps", ["pause", "hold", "opt-out", "pod", "shadow"])
def test_nothing_is_tested_while_it_is_forbidden(keeps: str) -> None:
    world = ValidationWorld("passes", repair={"mode": "Off"})
    world.fail_until(NODE, "Quarantined", limit=600)
    match keeps:
        case "pause":
            world.pause()
        case "hold":
            world.annotate(NODE, "gpuward.io/hold", "we look at it")
        case "opt-out":
            world.label(NODE, gpuward_io__opt_out="true")
            world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        case "pod":
            world.add_pod("trainer", NODE, gpus=8)
        case "shadow":
            world.policy = validation_policy({"mode": "Off"})
            world.policy = type(world.policy)(mode=Mode.SHADOW, validate=world.policy.validate)
    world.close_all(NODE)
    world.run(900, step=10)
    assert world.made() == []
    assert world.phase(NODE) == "Validating"
    assert world.is_quarantined(NODE)


def test_what_was_never_drained_is_not_tested() -> None:
    """Its pods compute on: a test would end or spoil their work, and nothing was repaired."""
    world = ValidationWorld("passes")
    world.add_pod("trainer", NODE, gpus=8)
    incident = world.incident(NODE, level="Cordon")
    world.run(60)
    world.close(NODE, incident)
    world.run_until(NODE, "Released", limit=1800)
    assert world.made() == []


def test_shadow_reports_the_test_and_creates_nothing() -> None:
    world = ValidationWorld("passes")
    world.policy = msgspec.structs.replace(world.policy, mode=Mode.SHADOW)
    world.incident(NODE)
    world.run(300)
    assert "test it under load (gpuward-validate). The node is unchanged." in world.message(NODE)
    assert world.made() == []


def test_a_missing_template_is_reported() -> None:
    world = ValidationWorld("passes", repair={"mode": "Off"})
    world.templates.clear()
    world.fail_until(NODE, "Quarantined", limit=600)
    world.close_all(NODE)
    world.run(120)
    assert world.condition(NODE, "NeedsHuman") == "ValidationUnknown"
    assert "there is no PodTemplate gpuward-validate in gpuward" in world.message(NODE)
    assert world.made() == []


def test_a_refused_job_is_reported_and_never_a_pass() -> None:
    world = ValidationWorld("passes", repair={"mode": "Off"})
    world.refusing[CreateTestJob] = (403, "jobs.batch is forbidden")
    world.fail_until(NODE, "Quarantined", limit=600)
    world.close_all(NODE)
    world.run(120)
    assert world.condition(NODE, "Blocked") == "MissingPermission"
    assert "create on jobs" in world.message(NODE)
    world.run(2 * 3600, step=20)
    assert world.tests_of() == [("Unknown", "unknown")] * 2
    assert world.is_quarantined(NODE)


def test_a_manual_release_ends_the_test() -> None:
    world = ValidationWorld("hangs")
    world.fall_ill_and_heal()
    world.run(60)
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ada"}
    world.touch(session)
    world.run(10)
    assert world.phase(NODE) == "Released"
    assert world.tests_of() == [("Withdrawn", "")]
    assert world.jobs == {}


@pytest.mark.parametrize("change", ["restart", "leader"])
def test_another_process_goes_on_with_the_same_test(change: str) -> None:
    world = ValidationWorld("passes")
    world.fall_ill_and_heal()
    world.run(60)
    if change == "restart":
        world.restart()
    else:
        world.change_leader()
    world.run_until(NODE, "Released", limit=1800)
    assert world.tests_of() == [("Passed", "pass")]
    assert len(world.made()) == 1


def test_a_reboot_after_two_failed_tries_is_tested_again() -> None:
    world = ValidationWorld("vanishes", "vanishes", "passes", repair={"mode": "Off"})
    world.fail_until(NODE, "Quarantined", limit=600)
    world.close_all(NODE)
    world.run(600)
    assert world.condition(NODE, "NeedsHuman") == "ValidationUnknown"
    world.reboot(NODE)
    world.run_until(NODE, "Released", limit=1800)
    assert [state for state, _ in world.tests_of()] == ["Unknown", "Unknown", "Passed"]
