"""Rows of the observation table about people: undo, hold, pause, opt-out, release, delete,
join.
"""

from typing import Any

import pytest

from remediator.kube.clock import CallQueue
from rules.api import writes as d
from rules.api.names import ANNOTATION_SESSION, TAINT_QUARANTINE
from rules.api.quarantine_taint import AUTOSCALER_ANNOTATIONS
from rules.api.timestamps import parse_time
from rules.session.decide import decide
from rules.session.observation import observe, sessions_by_node
from tests.support.scenario.fleets import NODE, OPEN, TAINTED, at, drain_of, evictions_after, fleet
from tests.support.scenario.session_world import World


@pytest.mark.parametrize("phase", TAINTED)
class TestUndoneByAnOperator:
    def test_uncordon_cancels(self, phase: str) -> None:
        world = at(phase)
        world.cordon(NODE, on=False)
        world.run(2)
        assert world.phase(NODE) == "Cancelled"
        assert not world.is_quarantined(NODE)
        before = world.now
        world.run(60)
        assert evictions_after(world, before) == 0

    def test_removing_the_taint_cancels_and_uncordons(self, phase: str) -> None:
        world = at(phase)
        world.untaint(NODE, TAINT_QUARANTINE)
        world.run(2)
        assert world.phase(NODE) == "Cancelled"
        assert not world.unschedulable(NODE)

    def test_removing_every_part_cancels(self, phase: str) -> None:
        world = at(phase)
        world.untaint(NODE, TAINT_QUARANTINE)
        world.annotate(NODE, ANNOTATION_SESSION, None)
        world.cordon(NODE, on=False)
        world.run(2)
        assert world.phase(NODE) == "Cancelled"
        assert not world.is_quarantined(NODE)

    @pytest.mark.parametrize(
        "text", [None, "{garbage", '{"session":"another-00000000","mark":"CordonAndTaint"}']
    )
    def test_a_changed_session_annotation_cancels(self, phase: str, text: str | None) -> None:
        world = at(phase)
        world.annotate(NODE, ANNOTATION_SESSION, text)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"
        assert "changed the node's session annotation" in world.message(NODE)
        assert not world.is_quarantined(NODE)
        left = [
            a for a in AUTOSCALER_ANNOTATIONS if a in world.nodes[NODE]["metadata"]["annotations"]
        ]
        named = [a for a in AUTOSCALER_ANNOTATIONS if a in world.message(NODE)]
        assert named == left, "what stays is named"
        before = world.now
        world.run(60)
        assert evictions_after(world, before) == 0
        assert len(world.sessions(NODE)) == 1

    def test_without_a_record_of_the_state_before_the_cordon_stays(self, phase: str) -> None:
        world = at(phase)
        world.annotate(NODE, ANNOTATION_SESSION, None)
        world.run(3)
        assert world.unschedulable(NODE)
        assert "its state before the quarantine is not recorded" in world.message(NODE)

    def test_it_holds_after_a_restart(self, phase: str) -> None:
        world = at(phase)
        world.cordon(NODE, on=False)
        world.restart()
        world.run(2)
        assert world.phase(NODE) == "Cancelled"

    def test_the_incident_stays_quiet_until_the_cancel_expires(self, phase: str) -> None:
        world = at(phase, release={"cancelExpiry": "1h"})
        world.cordon(NODE, on=False)
        world.run(3000, step=30)
        assert len(world.sessions(NODE)) == 1
        world.run(700, step=10)
        if phase != "Validating":
            assert len(world.sessions(NODE)) == 2

    def test_a_new_incident_opens_at_once(self, phase: str) -> None:
        world = at(phase)
        world.cordon(NODE, on=False)
        world.run(2)
        world.incident(NODE, "RowRemapFailure")
        world.run(3)
        assert len(world.sessions(NODE)) == 2
        assert world.is_quarantined(NODE)


def decided(world: World, after: float) -> d.Decision:
    """What is decided about the node `after` seconds, had nothing changed meanwhile."""
    world.now += after
    for health in world.healths.values():
        world.beat(health)
    snapshot = world.snapshot()
    sessions = sessions_by_node(snapshot.quarantines)
    seen = observe(snapshot, NODE, sessions=sessions)
    return decide(None, seen, world.now, world.policy)


def test_when_the_override_expires_the_node_is_reconciled() -> None:
    world = at("Quarantined", release={"cancelExpiry": "2h"})
    world.cordon(NODE, on=False)
    world.run(5)
    assert world.phase(NODE) == "Cancelled"
    ended = parse_time(world.session(NODE).status.phase_since)
    assert ended is not None
    for after in (0.0, 3600.0):
        waiting = decided(world, after)
        assert waiting.step == "Watch"
        assert waiting.wake_at == ended + 7200
    again = decided(world, ended + 7200 - world.now)
    assert again.step == "Open"


def test_a_node_without_a_fault_needs_no_timer() -> None:
    world = at("Quarantined")
    world.cordon(NODE, on=False)
    world.close_all(NODE)
    world.run(5)
    assert decided(world, 0.0).wake_at is None


def test_uncordon_cancels_also_when_the_cordon_was_older_than_us() -> None:
    world = fleet(5)
    world.cordon(NODE)
    world.fail_until(NODE, "Quarantined")
    world.cordon(NODE, on=False)
    world.run(2)
    assert world.phase(NODE) == "Cancelled"
    assert not world.unschedulable(NODE)


class TestHold:
    @pytest.mark.parametrize("how", ["spec", "annotation"])
    def test_it_blocks_the_release_only(self, how: str) -> None:
        world = at("Draining")
        if how == "spec":
            world.quarantines[world.session(NODE).name]["spec"]["hold"] = True
            world.touch(world.quarantines[world.session(NODE).name])
        else:
            world.annotate(NODE, "gpuward.io/hold", "under the microscope")
        world.pdbs.clear()
        world.run_until(NODE, "Quarantined", limit=120)
        world.close_all(NODE)
        world.run(1200, step=20)
        assert world.phase(NODE) == "Validating"
        assert world.condition(NODE, "Blocked") == "Hold"
        if how == "annotation":
            assert "under the microscope" in world.message(NODE)
            world.annotate(NODE, "gpuward.io/hold", None)
            world.run_until(NODE, "Released", limit=60)

    def test_a_manual_release_wins(self) -> None:
        world = at("Validating")
        world.annotate(NODE, "gpuward.io/hold", "x")
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada", "reason": "replaced"}
        world.run(2)
        assert world.phase(NODE) == "Released"


class TestPause:
    def test_it_acts_within_a_second_in_the_middle_of_a_drain(self) -> None:
        world = World()
        world.rates = {CallQueue.EVICT: 4}
        world.add_nodes(5)
        for index in range(20):
            world.add_pod(f"p{index}", NODE)
        world.add_pdb("slow", minAvailable=0)
        world.incident(NODE)
        world.run(3)
        assert 0 < len(world.writes(d.EvictPod)) < 20
        world.pause()
        world.run(1)
        sent = len(world.writes(d.EvictPod))
        world.run(100)
        assert len(world.writes(d.EvictPod)) == sent
        assert world.condition(NODE, "Paused") == "Paused"
        assert "ada" in world.message(NODE)
        assert "incident 42" in world.message(NODE)
        assert world.is_quarantined(NODE)
        world.pauses.clear()
        world.run_until(NODE, "Quarantined", limit=120)

    def test_who_paused_it_stays_on_record_after_the_pause_is_gone(self) -> None:
        world = at("Draining")
        world.pause()
        world.run(120)
        world.pauses.clear()
        world.run(60)
        events = [(e.step, e.by) for e in world.session(NODE).status.timeline if "Pause" in e.step]
        assert events == [("PausedBy", "ada"), ("PauseOver", "gpuward")]
        (line,) = [e for e in world.session(NODE).status.timeline if e.step == "PausedBy"]
        assert line.message == "paused by ada (incident 42) with GPUWardPause stop"

    def test_what_blocked_before_is_not_claimed_meanwhile(self) -> None:
        world = at("Draining")
        assert world.condition(NODE, "NeedsHuman") == "BudgetNeverAllows"
        world.pause()
        world.run(2)
        assert world.condition(NODE, "Blocked") == "Paused"
        assert world.condition(NODE, "NeedsHuman") == "BudgetNeverAllows", (
            "an operator can act on it"
        )
        drain = drain_of(world)
        assert drain.blocked == ()
        world.pauses.clear()
        world.run(10)
        assert world.condition(NODE, "NeedsHuman") == "BudgetNeverAllows"

    def test_nothing_new_is_quarantined(self) -> None:
        world = fleet(5)
        world.pause()
        world.incident(NODE)
        world.run(60)
        assert world.phase(NODE) == "Pending"
        assert world.condition(NODE, "Paused") == "Paused"
        assert not world.is_quarantined(NODE)

    def test_it_ends_by_itself_at_until(self) -> None:
        world = fleet(5)
        world.pause()
        world.pauses["stop"]["spec"]["until"] = "2026-09-21T14:15:00Z"
        world.incident(NODE)
        world.run(90)
        assert world.phase(NODE) == "Pending"
        world.run(30)
        assert world.is_quarantined(NODE)

    @pytest.mark.parametrize(
        ("scope", "covered"),
        [
            pytest.param({"nodes": ["n0"]}, True, id="named"),
            pytest.param({"nodes": ["n1"]}, False, id="other-node"),
            pytest.param(
                {"nodeSelector": {"matchLabels": {"gpuward.io/gpus": "8"}}}, True, id="label"
            ),
            pytest.param(
                {"nodeSelector": {"matchLabels": {"rack": "z"}}}, False, id="other-label"
            ),
            pytest.param(
                {"nodeSelector": {"matchExpressions": [{"key": "x"}]}}, True, id="unreadable"
            ),
        ],
    )
    def test_its_scope(self, scope: dict[str, Any], covered: bool) -> None:
        world = fleet(5)
        world.pause(**scope)
        world.incident(NODE)
        world.run(5)
        assert world.is_quarantined(NODE) != covered

    def test_releases_go_on(self) -> None:
        world = at("Validating")
        world.pause()
        world.run_until(NODE, "Released", limit=700)


class TestOptOut:
    def test_nothing_opens(self) -> None:
        world = fleet(5)
        world.label(NODE, gpuward_io="x")
        world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        world.incident(NODE)
        world.run(30)
        assert world.sessions(NODE) == []

    @pytest.mark.parametrize("phase", TAINTED)
    def test_s10_the_taint_stays_until_an_operator_releases(self, phase: str) -> None:
        world = at(phase)
        world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        world.touch(world.nodes[NODE])
        world.run(2)
        before = world.now
        world.close_all(NODE)
        world.run(1500, step=20)
        assert evictions_after(world, before) == 0
        assert world.condition(NODE, "Paused") == "OptOut"
        assert world.is_quarantined(NODE)
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada"}
        world.run(2)
        assert world.phase(NODE) == "Released"
        assert not world.is_quarantined(NODE)


@pytest.mark.parametrize("phase", OPEN)
class TestReleaseNow:
    def test_an_operator_releases_in_every_phase(self, phase: str) -> None:
        world = at(phase, release={"cancelExpiry": "1h"})
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada", "reason": "we need it"}
        world.run(2)
        assert world.phase(NODE) == "Released"
        assert "ada" in world.message(NODE)
        assert "we need it" in world.message(NODE)
        assert not world.is_quarantined(NODE)
        world.run(3000, step=30)
        assert len(world.sessions(NODE)) == 1, "its incidents reopen nothing"
        if phase not in {"Validating", "Pending"}:
            world.run(700, step=20)
            assert len(world.sessions(NODE)) == 2

    def test_the_message_has_the_active_causes(self, phase: str) -> None:
        world = at(phase)
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada"}
        world.run(2)
        holds = phase != "Validating"
        assert ("1 of its causes is still active" in world.message(NODE)) == holds


@pytest.mark.parametrize("phase", TAINTED)
def test_deleting_the_object_cancels(phase: str) -> None:
    world = at(phase)
    name = world.session(NODE).name
    del world.quarantines[name]
    world.run(3)
    assert not world.is_quarantined(NODE)
    world.run(1800, step=30)
    assert not world.is_quarantined(NODE), "its incident stays quiet"
    assert world.phase(NODE) == ("" if phase == "Validating" else "Cancelled")


def test_a_second_session_joins_the_first() -> None:
    world = at("Quarantined")
    first = world.session(NODE).name
    world.now += 10
    world.open_by_operator(NODE)
    world.run(5)
    assert world.quarantines["by-hand"]["status"]["phase"] == "Cancelled"
    assert f"joined {first}" in world.quarantines["by-hand"]["status"]["message"]
    causes = world.quarantines[first]["spec"]["causes"]
    assert [cause["source"] for cause in causes] == ["Detector", "Human"]
    world.close_all(NODE)
    world.run(1200, step=20)
    assert world.is_quarantined(NODE), "an operator's cause ends by an operator"


def test_an_operator_names_only_a_node_and_a_cause() -> None:
    world = fleet(5)
    world.open_by_operator("n2")
    world.run(20)
    session = world.session("n2")
    assert session.spec.node_uid == world.node("n2").uid
    assert session.spec.boot_id == world.node("n2").boot_id
    assert session.status.phase == "Quarantined"


def test_a_manual_drain_continues_after_a_reboot_without_a_health_status() -> None:
    world = fleet(4)
    world.add_pod("slow", "n0", grace=600)
    world.open_by_operator("n0")
    world.run(10)
    assert world.phase("n0") == "Draining"
    world.silence("n0")
    world.reboot("n0")
    world.healths["n0"]["status"]["bootID"] = "boot-n0-1"
    del world.pods["team-a", "slow"]
    world.add_pod("back", "n0")
    world.run_until("n0", "Quarantined", limit=120)
    assert ("team-a", "back") not in world.pods


def test_a_session_for_a_missing_node_reports_it() -> None:
    world = fleet(2)
    world.open_by_operator("typo")
    world.run(2)
    assert world.phase("typo") == "NodeGone"
