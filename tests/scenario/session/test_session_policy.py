"""Rows of the observation table about policy and causes: Shadow, Replace, flapping, several
faults.
"""

from dataclasses import replace

import pytest

from rules.api import writes as d
from rules.fleet.turns import judge_fleet
from rules.policy.policy import UnreadPolicy
from rules.session.decide import decide
from rules.session.observation import observe, sessions_by_node
from tests.support.scenario.fleets import (
    NO_ROOM,
    NODE,
    at,
    drain_of,
    evictions_after,
    fleet,
    share,
)
from tests.support.scenario.session_world import ROOMY, World, policy_of


class TestShadow:
    def test_s06_nothing_is_written_to_nodes_or_pods(self) -> None:
        world = fleet(10, mode="Shadow")
        world.add_pod("kept", NODE)
        world.add_pod("free", NODE, labels={"app": "other"})
        world.add_pdb("keep", minAvailable=1)
        incident = world.incident(NODE)
        world.run(60)
        status = world.session(NODE).status
        assert (status.mode, status.phase) == ("Shadow", "Marked")
        assert status.drain is not None
        assert [block.pdb for block in status.drain.blocked] == ["team-a/keep"]
        dry = world.writes(d.EvictPod)
        assert len(dry) <= 2
        assert all(eviction.dry_run for eviction in dry)  # type: ignore[union-attr]
        world.close(NODE, incident)
        world.run(5)
        assert world.phase(NODE) == "Released"
        kinds = {type(write) for _, write, _, _ in world.sent}
        assert kinds <= {d.CreateSession, d.WriteSessionStatus, d.EvictPod, d.EmitEvent}
        assert not world.is_quarantined(NODE)

    def test_s06_every_pod_is_asked_once_and_what_would_leave_is_named(self) -> None:
        world = fleet(10, mode="Shadow")
        world.add_pod("kept", NODE)
        world.add_pod("free", NODE, labels={"app": "other"})
        world.add_pod(
            "last", NODE, labels={"app": "dns"}, priorityClassName="system-node-critical"
        )
        world.add_pod("bare", NODE, owner=None, labels={"app": "bare"})
        world.add_pdb("keep", minAvailable=1)
        world.incident(NODE)
        world.run(60)
        asked = [write.name for write in world.writes(d.EvictPod)]  # type: ignore[union-attr]
        assert sorted(asked) == sorted({*asked, "free", "last"})
        drain = drain_of(world)
        assert (drain.evicted, drain.waiting.names) == (0, ("team-a/free", "team-a/last"))
        assert "drain it (2 evicted, 1 blocked, 1 skipped by policy)" in world.message(NODE)

    def test_its_virtual_quarantines_count_in_a_shadow_budget(self) -> None:
        world = fleet(10, mode="Shadow", budget=share(20))
        for name in ("n0", "n1", "n2", "n3"):
            world.incident(name)
        world.run(5)
        phases = sorted(world.phase(name) for name in ("n0", "n1", "n2", "n3"))
        assert phases == ["Marked", "Marked", "Pending", "Pending"]

    def test_a_change_to_enforce_assesses_the_node_again(self) -> None:
        world = fleet(10, mode="Shadow")
        world.incident(NODE)
        world.run(5)
        world.policy = policy_of(budget=ROOMY)
        world.run(30)
        first, second = world.sessions(NODE)
        assert (first.status.phase, first.status.mode) == ("Cancelled", "Shadow")
        assert (second.status.phase, second.status.mode) == ("Quarantined", "Enforce")

    def test_a_change_to_shadow_stops_disruption_and_keeps_the_taint(self) -> None:
        world = at("Draining")
        world.policy = policy_of(mode="Shadow", budget=ROOMY)
        world.run(2)
        before = world.now
        world.run(60)
        assert evictions_after(world, before) == 0
        assert world.is_quarantined(NODE)
        assert world.condition(NODE, "Paused") == "PolicyIsShadow"

    def test_a_drain_without_a_readable_policy_waits_for_one(self) -> None:
        world = at("Draining")
        world.policy = UnreadPolicy()
        world.run(2)
        before = world.now
        world.run(60)
        assert evictions_after(world, before) == 0
        assert world.is_quarantined(NODE)
        assert world.condition(NODE, "Paused") == "PolicyUnread"
        assert "switched" not in world.message(NODE)
        world.add_pdb("keep", minAvailable=0)
        world.policy = policy_of(budget=ROOMY)
        world.run_until(NODE, "Quarantined", limit=300, step=5)
        assert world.condition(NODE, "Paused") == ""

    def test_nothing_is_released_by_a_policy_that_cannot_be_read(self) -> None:
        """It may require approval or a longer time; a manual release needs no policy."""
        world = at("Validating")
        world.policy = UnreadPolicy()
        world.run(7200, step=10)
        assert (world.phase(NODE), world.condition(NODE, "Blocked")) == (
            "Validating",
            "PolicyUnread",
        )
        world.policy = policy_of(budget=ROOMY)
        world.run_until(NODE, "Released", limit=60, step=5)

    def test_what_waits_outlives_a_policy_that_cannot_be_read(self) -> None:
        world = fleet(10, budget=NO_ROOM)
        world.incident(NODE)
        world.run(5)
        world.policy = UnreadPolicy()
        world.run(60)
        assert (world.phase(NODE), world.condition(NODE, "Blocked")) == ("Pending", "PolicyUnread")
        world.policy = policy_of(budget=ROOMY)
        world.run_until(NODE, "Quarantined", limit=120, step=5)
        assert len(world.sessions(NODE)) == 1

    def test_a_manual_request_waits_for_a_readable_policy(self) -> None:
        world = World(UnreadPolicy())
        world.add_nodes(10)
        world.open_by_operator(NODE)
        world.run(60)
        assert (world.phase(NODE), world.condition(NODE, "Blocked")) == ("Pending", "PolicyUnread")
        world.policy = policy_of(budget=ROOMY)
        world.run_until(NODE, "Quarantined", limit=120, step=5)
        assert len(world.sessions(NODE)) == 1

    def test_a_fault_without_a_policy_waits_and_uses_no_default_limits(self) -> None:
        world = World(UnreadPolicy())
        world.add_nodes(10)
        for name in ("n0", "n1", "n2"):
            world.incident(name)
        world.run(30)
        for name in ("n0", "n1", "n2"):
            waits = (world.phase(name), world.condition(name, "Blocked"))
            assert waits == ("Pending", "PolicyUnread")
        assert not world.is_quarantined(NODE)
        world.policy = policy_of(budget=ROOMY)
        world.run_until(NODE, "Quarantined", limit=120, step=5)
        assert len(world.sessions(NODE)) == 1

    def test_with_a_policy_that_chose_shadow_what_waited_is_played(self) -> None:
        world = World(UnreadPolicy())
        world.add_nodes(10)
        world.incident(NODE)
        world.run(30)
        world.policy = policy_of(mode="Shadow", budget=ROOMY)
        world.run(30)
        modes = [(one.status.mode, one.status.phase) for one in world.sessions(NODE)]
        assert modes == [("Enforce", "Cancelled"), ("Shadow", "Marked")]
        assert not world.is_quarantined(NODE)

    def test_a_shadow_session_reports_an_unreadable_policy(self) -> None:
        world = fleet(10, mode="Shadow")
        world.incident(NODE)
        world.run(30)
        world.policy = UnreadPolicy()
        world.run(120)
        assert world.session(NODE).status.mode == "Shadow"
        assert "The node is unchanged: the remediator has read no valid policy" in world.message(
            NODE
        )

    def test_after_a_change_to_shadow_a_taint_is_still_removed(self) -> None:
        world = at("Quarantined")
        world.policy = policy_of(mode="Shadow", budget=ROOMY)
        world.close_all(NODE)
        sent = len(world.sent)
        world.run_until(NODE, "Released", limit=700, step=5)
        assert not world.is_quarantined(NODE)
        on_nodes = [
            w
            for _, w, _, _ in world.sent[sent:]
            if isinstance(w, d.TaintAndCordon | d.RemoveTaint | d.RelabelNode | d.EvictPod)
        ]
        assert [type(write) for write in on_nodes] == [d.RemoveTaint]


class TestReplace:
    def test_s37_the_third_session_within_the_window_is_never_released_by_itself(self) -> None:
        world = fleet(5)
        for _ in range(2):
            world.fail_until(NODE, "Quarantined")
            world.heal_until_released(NODE, step=10)
        world.fail_until(NODE, "Quarantined")
        assert world.condition(NODE, "Replace") == "RepeatOffender"
        world.close_all(NODE)
        world.run(3600, step=60)
        assert world.phase(NODE) == "Validating"
        assert world.condition(NODE, "NeedsHuman") == "Replace"
        world.quarantines[world.session(NODE).name]["spec"]["release"] = {"by": "ada"}
        world.run(2)
        assert world.phase(NODE) == "Released"

    def test_what_other_nodes_claim_of_a_gpu_counts_nothing(self) -> None:
        world = fleet(5)
        for node in ("n1", "n2", "n1"):
            world.incident(node, gpu=f"GPU-{NODE}-0")
            world.run_until(node, "Quarantined", limit=30)
            world.heal_until_released(node, step=10)
        world.fail_until(NODE, "Quarantined")
        assert world.condition(NODE, "Replace") == ""
        world.heal_until_released(NODE, step=10)

    @pytest.mark.parametrize("replaced_while", ["Released", "Quarantined"])
    def test_a_new_machine_under_an_old_name_begins_at_none(self, replaced_while: str) -> None:
        world = fleet(5)
        for last in (False, True):
            world.fail_until(NODE, "Quarantined")
            if last and replaced_while == "Quarantined":
                break
            world.heal_until_released(NODE, step=10)
        world.add_node(NODE)
        world.run(5)
        world.fail_until(NODE, "Quarantined")
        assert world.condition(NODE, "Replace") == ""

    def test_a_false_alarm_does_not_count(self) -> None:
        world = fleet(5)
        for _ in range(3):
            world.fail_until(NODE, "Quarantined")
            world.cordon(NODE, on=False)
            world.run(2)
            world.close_all(NODE)
        world.fail_until(NODE, "Quarantined")
        assert world.condition(NODE, "Replace") == ""


def test_s36_a_flapping_cause_is_one_session_and_is_counted() -> None:
    world = fleet(5)
    for _ in range(90):
        world.incident(NODE)
        world.run(20, step=5)
        world.close_all(NODE)
        world.run(20, step=5)
    assert len(world.sessions(NODE)) == 1
    assert len(world.writes(d.TaintAndCordon)) == 1
    assert not world.writes(d.RemoveTaint)
    assert "came back" in world.message(NODE)
    assert len(world.session(NODE).spec.causes) <= 64
    assert len(world.session(NODE).status.timeline) <= 100


def test_s38_two_faults_end_with_the_last() -> None:
    world = at("Quarantined")
    first = world.healths[NODE]["status"]["incidents"][0]["id"]
    world.incident(NODE, "RowRemapFailure", severity="Degraded", level="Cordon")
    world.run(3)
    world.close(NODE, first)
    world.run(1200, step=20)
    assert world.phase(NODE) == "Quarantined"
    assert "RowRemapFailure" in world.message(NODE)
    assert "Xid79" not in world.message(NODE)
    world.heal_until_released(NODE)


def test_manual_approval_waits_for_an_operator() -> None:
    world = at("Validating", release={"approval": "Manual"})
    world.run(1200, step=20)
    assert world.phase(NODE) == "Validating"
    assert world.condition(NODE, "NeedsHuman") == "Approval"


def test_a_cause_that_goes_while_pending_cancels() -> None:
    world = at("Pending")
    world.close_all(NODE)
    world.run(2)
    assert world.phase(NODE) == "Cancelled"
    assert not world.writes(d.TaintAndCordon)


def test_a_cause_that_closes_in_the_drain_stops_the_evictions_first() -> None:
    world = at("Draining")
    world.close_all(NODE)
    world.run(1)
    before = world.now
    assert world.phase(NODE) == "Validating"
    world.run(100)
    assert evictions_after(world, before) == 0


def test_a_returning_cause_goes_on_in_the_same_session_without_a_new_budget() -> None:
    world = at("Validating")
    world.policy = policy_of(budget=NO_ROOM)
    world.incident(NODE)
    world.run(30)
    assert len(world.sessions(NODE)) == 1
    assert world.phase(NODE) == "Quarantined"


def test_a_more_severe_cause_turns_a_cordon_into_a_drain() -> None:
    world = at("Marked")
    world.add_pod("web-1", NODE)
    world.run(10)
    assert world.phase(NODE) == "Marked"
    assert ("team-a", "web-1") in world.pods
    world.incident(NODE, "RowRemapFailure", level="Drain")
    world.run_until(NODE, "Quarantined", limit=30)
    assert world.session(NODE).spec.level == "Drain"
    assert ("team-a", "web-1") not in world.pods


@pytest.mark.parametrize("mode", ["Shadow", "Enforce"])
def test_the_timeline_reports_once_that_a_cause_became_more_severe(mode: str) -> None:
    world = fleet(10, mode=mode)
    world.incident(NODE, severity="Degraded", level="Cordon")
    world.run_until(NODE, "Marked", limit=30)
    world.healths[NODE]["status"]["incidents"][0].update(severity="Fatal", level="Drain")
    world.run(60)

    def more_severe() -> list[str]:
        timeline = world.session(NODE).status.timeline
        return [entry.message for entry in timeline if entry.step == "Graver"]

    assert more_severe() == ["Xid79GPUFallenOffBus is Fatal now, it was Degraded"]
    assert world.session(NODE).status.evidence["incidents"][0]["severity"] == "Fatal"
    written = len(world.writes(d.WriteSessionStatus))
    world.healths[NODE]["status"]["incidents"][0].update(severity="Degraded")
    world.run(60)
    assert len(world.writes(d.WriteSessionStatus)) == written, "milder again changes nothing"
    world.healths[NODE]["status"]["incidents"][0].update(severity="Fatal")
    world.run(60)
    assert len(more_severe()) == 1


def test_daemonsets_that_could_not_come_back_are_named() -> None:
    world = at("Marked")
    snapshot = world.snapshot()
    sessions = sessions_by_node(snapshot.quarantines)
    session = world.session(NODE)
    seen = replace(
        observe(snapshot, NODE, sessions=sessions, session=session),
        permit=judge_fleet(snapshot).permits[session.name],
        untolerating=("gpu/driver", "gpu/plugin"),
    )
    message = decide(session, seen, world.now, world.policy).message
    assert "DaemonSets gpu/driver, gpu/plugin do not tolerate the taint" in message


class TestAfterHealthyFor:
    def test_a_node_that_waits_for_an_operator_is_rarely_reconciled(self) -> None:
        """Past `healthyFor` only an operator releases it: time alone changes nothing any more. The
        moment that is over was asked for again and again, twenty times a second.
        """
        world = fleet(10, release={"approval": "Manual"})
        incident = world.incident(NODE)
        world.run(60)
        world.close(NODE, incident)
        world.run(700, step=10.0)
        assert world.condition(NODE, "Blocked") == "Approval"

        snapshot = world.snapshot()
        session = world.session(NODE)
        sessions = sessions_by_node(snapshot.quarantines)
        seen = replace(
            observe(snapshot, NODE, sessions=sessions, session=session),
            permit=judge_fleet(snapshot).permits[session.name],
            last_active_at=world.now,
        )
        decision = decide(session, seen, world.now, world.policy)

        assert decision.writes == ()
        assert decision.wake_at is not None
        assert decision.wake_at >= world.now + 30.0
