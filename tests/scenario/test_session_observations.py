"""Every row of the observation table, at each phase where it can occur, in virtual time."""

from __future__ import annotations

import pytest
from session_world import ROOMY, World, policy_of

from rules import decision as d
from rules.names import ANNOTATION_SESSION, TAINT_QUARANTINE

NODE = "n0"
OPEN = ["Pending", "Marked", "Draining", "Quarantined", "Validating"]
MARKED = OPEN[1:]
NO_ROOM = {**ROOMY, "maxUnavailable": {"percent": 0, "atMost": 0}, "minimum": 0}


def at(phase: str, **sections: object) -> World:
    """A fleet of five in which ``n0`` has arrived in ``phase`` for one incident."""
    budget = NO_ROOM if phase == "Pending" else ROOMY
    world = World(policy_of(**{"budget": budget, **sections}))
    world.add_nodes(5)
    if phase == "Draining":
        world.add_pod("kept", NODE)
        world.add_pdb("keep", minAvailable=1)
    world.incident(NODE, level="Cordon" if phase == "Marked" else "Drain")
    world.run_until(NODE, phase if phase != "Validating" else "Quarantined", limit=60)
    if phase == "Validating":
        world.close_all(NODE)
        world.run_until(NODE, phase, limit=5)
    world.run(3)
    assert world.phase(NODE) == phase
    return world


def evictions_after(world: World, at: float) -> int:
    return sum(1 for t, w, _, _ in world.sent if t > at and isinstance(w, d.EvictPod))


@pytest.mark.parametrize("phase", OPEN)
class TestNodeGone:
    def test_a_deleted_node_ends_the_session(self, phase: str) -> None:
        world = at(phase)
        del world.nodes[NODE]
        world.run(3)
        assert world.phase(NODE) == "NodeGone"
        assert "no node n0" in world.message(NODE)

    def test_nothing_is_applied_to_a_namesake(self, phase: str) -> None:
        world = at(phase)
        world.close_all(NODE)
        world.add_node(NODE)
        sent = len(world.sent)
        world.run(30)
        assert world.phase(NODE) == "NodeGone"
        assert not world.is_marked(NODE)
        assert not [
            w
            for _, w, _, _ in world.sent[sent:]
            if not isinstance(w, d.EmitEvent | d.WriteSessionStatus)
        ]

    def test_a_namesake_is_judged_on_its_own_verdict(self, phase: str) -> None:
        world = at(phase)
        first = world.session(NODE).name
        world.add_node(NODE)
        world.incident(NODE)
        world.run(30)
        assert world.session(NODE).name != first
        assert world.session(NODE).spec.node_uid == world.node(NODE).uid


class TestBootChanged:
    @pytest.mark.parametrize("phase", ["Marked", "Draining", "Quarantined", "Validating"])
    def test_a_healthy_new_boot_is_validated_and_released(self, phase: str) -> None:
        world = at(phase)
        before = world.now
        world.reboot(NODE)
        world.close_all(NODE)
        world.run(2)
        session = world.session(NODE)
        assert session.status.phase == "Validating"
        assert session.status.boot_id == world.node(NODE).boot_id
        assert evictions_after(world, before + 1) == 0
        world.run(590, step=10)
        assert world.phase(NODE) == "Validating"
        world.run_until(NODE, "Released", limit=30)

    @pytest.mark.parametrize("phase", ["Draining", "Quarantined"])
    def test_a_fault_that_survived_the_boot_goes_back_to_the_drain(self, phase: str) -> None:
        world = at(phase)
        world.reboot(NODE)
        world.run(2)
        assert "Validating" in world.phases(NODE)
        assert world.phase(NODE) in {"Draining", "Quarantined"}
        assert len(world.sessions(NODE)) == 1

    def test_until_the_agent_speaks_of_the_new_boot_nothing_is_decided(self) -> None:
        world = at("Quarantined")
        boot = world.healths[NODE]["status"]["bootID"]
        world.reboot(NODE)
        world.healths[NODE]["status"]["bootID"] = boot
        world.close_all(NODE)
        world.run(1200, step=30)
        assert world.phase(NODE) == "Validating"
        assert world.condition(NODE, "Blocked") == "VerdictStale"


class TestUnreachable:
    def test_s23_no_eviction_and_no_force_while_the_kubelet_is_silent(self) -> None:
        drain = {"fatalTimeout": "1m", "onTimeout": "Force"}
        world = at("Draining", drain=drain)
        world.set_ready(NODE, "Unknown")
        world.run(2)
        before = world.now
        world.run(600, step=5)
        assert evictions_after(world, before) == 0
        assert not world.writes(d.DeletePod)
        assert world.condition(NODE, "NodeUnreachable") == "KubeletSilent"

    def test_the_drain_goes_on_when_it_is_back_and_the_time_did_not_count(self) -> None:
        world = at("Draining", drain={"fatalTimeout": "10m", "onTimeout": "Force"})
        world.set_ready(NODE, "Unknown")
        world.run(1200, step=5)
        world.set_ready(NODE, "True")
        world.run(60)
        assert not world.writes(d.DeletePod)
        drain = world.session(NODE).status.drain
        assert drain is not None
        assert drain.suspended_seconds >= 1195
        assert world.condition(NODE, "NodeUnreachable") == ""
        world.run(600, step=5)
        assert world.writes(d.DeletePod)

    def test_a_session_on_an_unreachable_node_is_still_marked(self) -> None:
        world = World()
        world.add_nodes(3)
        world.incident(NODE)
        world.set_ready(NODE, "Unknown")
        world.run(5)
        assert world.phase(NODE) == "Marked"
        assert world.condition(NODE, "Blocked") == "NodeUnreachable"


class TestStaleVerdict:
    @pytest.mark.parametrize("phase", MARKED)
    def test_nothing_is_released_while_the_agent_is_silent(self, phase: str) -> None:
        world = at(phase)
        world.silence(NODE)
        world.run(730, step=10)
        held = world.phase(NODE)
        world.close_all(NODE)
        world.run(3600, step=30)
        assert world.phase(NODE) == ("Released" if phase == "Validating" else held)

    def test_validation_counts_seen_health_only(self) -> None:
        world = at("Validating", release={"healthyFor": "30m"})
        world.silence(NODE)
        world.run(1500, step=10)
        assert world.condition(NODE, "Blocked") == "VerdictStale"
        world.speak(NODE)
        world.run(1500, step=10)
        assert world.phase(NODE) == "Validating"
        world.run_until(NODE, "Released", limit=400)

    def test_nothing_opens_on_a_stale_verdict(self) -> None:
        world = World()
        world.add_nodes(3)
        world.silence(NODE)
        world.run(800, step=20)
        world.incident(NODE)
        world.run(60)
        assert world.sessions(NODE) == []

    def test_a_waiting_session_does_not_start_on_a_stale_verdict(self) -> None:
        world = at("Pending")
        world.silence(NODE)
        world.run(800, step=20)
        world.policy = policy_of(budget=ROOMY)
        world.run(30)
        assert world.phase(NODE) == "Pending"
        assert world.condition(NODE, "Blocked") == "VerdictStale"


@pytest.mark.parametrize("phase", MARKED)
class TestUndoneByAPerson:
    def test_uncordon_cancels(self, phase: str) -> None:
        world = at(phase)
        world.cordon(NODE, on=False)
        world.run(2)
        assert world.phase(NODE) == "Cancelled"
        assert not world.is_marked(NODE)
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
        assert not world.is_marked(NODE)

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
        assert world.is_marked(NODE)


def test_uncordon_cancels_also_when_the_cordon_was_older_than_us() -> None:
    world = World()
    world.add_nodes(5)
    world.cordon(NODE)
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=30)
    world.cordon(NODE, on=False)
    world.run(2)
    assert world.phase(NODE) == "Cancelled"
    assert not world.unschedulable(NODE)


@pytest.mark.parametrize("phase", ["Draining", "Quarantined"])
class TestUndoneByAnOwner:
    def start(self, world: World) -> None:
        world.label(NODE, **{"nvidia.com__gpu_driver_upgrade_state": "validation-required"})

    def stop(self, world: World) -> None:
        world.label(NODE, **{"nvidia.com__gpu_driver_upgrade_state": "upgrade-done"})

    def test_the_taint_stays_and_the_session_stands_down(self, phase: str) -> None:
        world = at(phase)
        self.start(world)
        world.run(2)
        world.cordon(NODE, on=False)
        before = world.now
        world.run(300, step=5)
        assert world.phase(NODE) == phase
        assert world.condition(NODE, "Paused") == "StandDown"
        assert any(t["key"] == TAINT_QUARANTINE for t in world.nodes[NODE]["spec"]["taints"])
        assert not world.unschedulable(NODE)
        assert evictions_after(world, before) == 0

    def test_when_it_is_done_the_mark_is_whole_again(self, phase: str) -> None:
        world = at(phase)
        self.start(world)
        world.run(2)
        world.cordon(NODE, on=False)
        world.run(100, step=5)
        self.stop(world)
        world.run(10)
        assert world.phase(NODE) == phase
        assert world.unschedulable(NODE)
        world.close_all(NODE)
        world.run_until(NODE, "Released", limit=700)
        assert not world.unschedulable(NODE)

    def test_an_uncordon_within_a_minute_of_its_end_is_its_doing(self, phase: str) -> None:
        world = at(phase)
        self.start(world)
        world.run(20)
        self.stop(world)
        world.run(30)
        world.cordon(NODE, on=False)
        world.run(2)
        assert world.phase(NODE) == phase
        assert world.unschedulable(NODE)

    def test_an_uncordon_long_after_it_is_a_persons(self, phase: str) -> None:
        world = at(phase)
        self.start(world)
        world.run(20)
        self.stop(world)
        world.run(70)
        world.cordon(NODE, on=False)
        world.run(2)
        assert world.phase(NODE) == "Cancelled"

    def test_after_the_upgrade_a_healthy_node_is_released(self, phase: str) -> None:
        world = at(phase)
        self.start(world)
        world.run(60)
        world.close_all(NODE)
        world.run(1200, step=20)
        assert world.is_marked(NODE), "the mark stays while the owner works"
        self.stop(world)
        world.run_until(NODE, "Released", limit=900)
        assert not world.is_marked(NODE)


OWNERS = [
    pytest.param(lambda w: w.taint(NODE, "ToBeDeletedByClusterAutoscaler"), id="autoscaler"),
    pytest.param(lambda w: w.taint(NODE, "karpenter.sh/disrupted"), id="karpenter"),
    pytest.param(
        lambda w: w.nodes[NODE]["metadata"].update(deletionTimestamp="2026-09-21T14:13:20Z"),
        id="deletion",
    ),
    pytest.param(
        lambda w: w.label(NODE, **{"nvidia.com__mig.config.state": "rebooting"}), id="mig"
    ),
    pytest.param(
        lambda w: w.label(NODE, **{"nvidia.com__gpu.deploy.dcgm": "paused-for-driver-upgrade"}),
        id="paused-pods",
    ),
    pytest.param(
        lambda w: w.leases.update(
            {
                NODE: {
                    "metadata": {"name": NODE},
                    "spec": {
                        "holderIdentity": "nmo",
                        "leaseDurationSeconds": 360000,
                        "renewTime": "2026-09-21T14:13:20.000000Z",
                    },
                }
            }
        ),
        id="maintenance-lease",
    ),
]


@pytest.mark.parametrize("begin", OWNERS)
@pytest.mark.parametrize("phase", ["Pending", "Marked", "Draining", "Quarantined", "Validating"])
def test_s40_stand_down_does_no_further_harm_and_keeps_records(phase: str, begin) -> None:  # type: ignore[no-untyped-def]
    world = at(phase)
    begin(world)
    world.policy = policy_of(budget=ROOMY)
    before = world.now
    world.run(700, step=20)
    assert world.condition(NODE, "Paused") == "StandDown"
    assert world.phase(NODE) == phase
    assert not [w for t, w, _, _ in world.sent if t >= before and w.harmful]


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

    def test_a_persons_release_wins(self) -> None:
        world = at("Validating")
        world.annotate(NODE, "gpuward.io/hold", "x")
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada", "reason": "replaced"}
        world.run(2)
        assert world.phase(NODE) == "Released"


class TestPause:
    def test_it_acts_within_a_second_in_the_middle_of_a_drain(self) -> None:
        world = World(policy_of(budget=ROOMY, drain={"backoff": {"min": "1s", "max": "1s"}}))
        world.add_nodes(5)
        for index in range(20):
            world.add_pod(f"p{index}", NODE)
        world.add_pdb("slow", minAvailable=0)
        world.incident(NODE)
        world.run(5)
        assert 0 < len(world.writes(d.EvictPod)) < 20
        world.pause()
        world.run(1)
        sent = len(world.writes(d.EvictPod))
        world.run(100)
        assert len(world.writes(d.EvictPod)) == sent
        assert world.condition(NODE, "Paused") == "Paused"
        assert "ada" in world.message(NODE)
        assert "incident 42" in world.message(NODE)
        assert world.is_marked(NODE)
        world.pauses.clear()
        world.run_until(NODE, "Quarantined", limit=120)

    def test_nothing_new_is_marked(self) -> None:
        world = World()
        world.add_nodes(5)
        world.pause()
        world.incident(NODE)
        world.run(60)
        assert world.phase(NODE) == "Pending"
        assert world.condition(NODE, "Paused") == "Paused"
        assert not world.is_marked(NODE)

    def test_it_ends_by_itself_at_until(self) -> None:
        world = World()
        world.add_nodes(5)
        world.pause()
        world.pauses["stop"]["spec"]["until"] = "2026-09-21T14:15:00Z"
        world.incident(NODE)
        world.run(90)
        assert world.phase(NODE) == "Pending"
        world.run(30)
        assert world.is_marked(NODE)

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
    def test_its_scope(self, scope: dict[str, object], covered: bool) -> None:
        world = World()
        world.add_nodes(5)
        world.pause(**scope)
        world.incident(NODE)
        world.run(5)
        assert world.is_marked(NODE) != covered

    def test_releases_go_on(self) -> None:
        world = at("Validating")
        world.pause()
        world.run_until(NODE, "Released", limit=700)


class TestOptOut:
    def test_nothing_opens(self) -> None:
        world = World()
        world.add_nodes(5)
        world.label(NODE, gpuward_io="x")
        world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        world.incident(NODE)
        world.run(30)
        assert world.sessions(NODE) == []

    @pytest.mark.parametrize("phase", MARKED)
    def test_s10_the_mark_stays_until_a_person_releases(self, phase: str) -> None:
        world = at(phase)
        world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        world.touch(world.nodes[NODE])
        world.run(2)
        before = world.now
        world.close_all(NODE)
        world.run(1500, step=20)
        assert evictions_after(world, before) == 0
        assert world.condition(NODE, "Paused") == "OptOut"
        assert world.is_marked(NODE)
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada"}
        world.run(2)
        assert world.phase(NODE) == "Released"
        assert not world.is_marked(NODE)


@pytest.mark.parametrize("phase", OPEN)
class TestReleaseNow:
    def test_a_person_releases_at_every_phase(self, phase: str) -> None:
        world = at(phase, release={"cancelExpiry": "1h"})
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada", "reason": "we need it"}
        world.run(2)
        assert world.phase(NODE) == "Released"
        assert "ada" in world.message(NODE)
        assert "we need it" in world.message(NODE)
        assert not world.is_marked(NODE)
        world.run(3000, step=30)
        assert len(world.sessions(NODE)) == 1, "its incidents reopen nothing"
        if phase not in {"Validating", "Pending"}:
            world.run(700, step=20)
            assert len(world.sessions(NODE)) == 2

    def test_the_message_says_what_still_holds(self, phase: str) -> None:
        world = at(phase)
        name = world.session(NODE).name
        world.quarantines[name]["spec"]["release"] = {"by": "ada"}
        world.run(2)
        holds = phase != "Validating"
        assert ("1 of its causes still hold" in world.message(NODE)) == holds


@pytest.mark.parametrize("phase", MARKED)
def test_deleting_the_object_cancels(phase: str) -> None:
    world = at(phase)
    name = world.session(NODE).name
    del world.quarantines[name]
    world.run(3)
    assert not world.is_marked(NODE)
    world.run(1800, step=30)
    assert not world.is_marked(NODE), "its incident stays quiet"
    assert world.phase(NODE) == ("" if phase == "Validating" else "Cancelled")


def test_a_second_session_joins_the_first() -> None:
    world = at("Quarantined")
    first = world.session(NODE).name
    world.now += 10
    world.open_by_person(NODE)
    world.run(5)
    assert world.quarantines["by-hand"]["status"]["phase"] == "Cancelled"
    assert f"joined {first}" in world.quarantines["by-hand"]["status"]["message"]
    causes = world.quarantines[first]["spec"]["causes"]
    assert [cause["source"] for cause in causes] == ["Detector", "Human"]
    world.close_all(NODE)
    world.run(1200, step=20)
    assert world.is_marked(NODE), "a person's cause ends by a person"


def test_a_person_needs_only_a_node_and_a_cause() -> None:
    world = World()
    world.add_nodes(5)
    world.open_by_person("n2")
    world.run(20)
    session = world.session("n2")
    assert session.spec.node_uid == world.node("n2").uid
    assert session.spec.boot_id == world.node("n2").boot_id
    assert session.status.phase == "Quarantined"


def test_a_person_who_names_no_node_is_told() -> None:
    world = World()
    world.add_nodes(2)
    world.open_by_person("typo")
    world.run(2)
    assert world.phase("typo") == "NodeGone"


class TestShadow:
    def shadow(self, **sections: object) -> World:
        world = World(policy_of(**{"mode": "Shadow", "budget": ROOMY, **sections}))
        world.add_nodes(10)
        return world

    def test_s06_nothing_is_written_to_nodes_or_pods(self) -> None:
        world = self.shadow()
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
        assert not world.is_marked(NODE)

    def test_its_virtual_marks_count_in_a_shadow_budget(self) -> None:
        world = self.shadow(budget={**ROOMY, "maxUnavailable": {"percent": 20, "atMost": 50}})
        for name in ("n0", "n1", "n2", "n3"):
            world.incident(name)
        world.run(5)
        phases = sorted(world.phase(name) for name in ("n0", "n1", "n2", "n3"))
        assert phases == ["Marked", "Marked", "Pending", "Pending"]

    def test_a_flip_to_enforce_judges_afresh(self) -> None:
        world = self.shadow()
        world.incident(NODE)
        world.run(5)
        world.policy = policy_of(budget=ROOMY)
        world.run(30)
        first, second = world.sessions(NODE)
        assert (first.status.phase, first.status.mode) == ("Cancelled", "Shadow")
        assert (second.status.phase, second.status.mode) == ("Quarantined", "Enforce")

    def test_a_flip_to_shadow_stops_harm_and_keeps_the_mark(self) -> None:
        world = at("Draining")
        world.policy = policy_of(mode="Shadow", budget=ROOMY)
        world.run(2)
        before = world.now
        world.run(60)
        assert evictions_after(world, before) == 0
        assert world.is_marked(NODE)
        assert world.condition(NODE, "Paused") == "PolicyIsShadow"


class TestReplace:
    def test_s37_the_third_session_within_the_window_is_never_released_by_itself(self) -> None:
        world = World()
        world.add_nodes(5)
        for _ in range(2):
            world.incident(NODE)
            world.run_until(NODE, "Quarantined", limit=30)
            world.close_all(NODE)
            world.run_until(NODE, "Released", limit=700, step=10)
        world.incident(NODE)
        world.run_until(NODE, "Quarantined", limit=30)
        assert world.condition(NODE, "Replace") == "RepeatOffender"
        world.close_all(NODE)
        world.run(3600, step=60)
        assert world.phase(NODE) == "Validating"
        assert world.condition(NODE, "NeedsHuman") == "Replace"
        world.quarantines[world.session(NODE).name]["spec"]["release"] = {"by": "ada"}
        world.run(2)
        assert world.phase(NODE) == "Released"

    def test_a_gpu_that_moved_takes_its_history_along(self) -> None:
        world = World()
        world.add_nodes(5)
        for node in ("n1", "n2"):
            world.incident(node, gpu="GPU-wanderer")
            world.run_until(node, "Quarantined", limit=30)
            world.close_all(node)
            world.run_until(node, "Released", limit=700, step=10)
        world.incident(NODE, gpu="GPU-wanderer")
        world.run_until(NODE, "Quarantined", limit=30)
        assert world.condition(NODE, "Replace") == "RepeatOffender"

    def test_a_false_alarm_does_not_count(self) -> None:
        world = World()
        world.add_nodes(5)
        for _ in range(3):
            world.incident(NODE)
            world.run_until(NODE, "Quarantined", limit=30)
            world.cordon(NODE, on=False)
            world.run(2)
            world.close_all(NODE)
        world.incident(NODE)
        world.run_until(NODE, "Quarantined", limit=30)
        assert world.condition(NODE, "Replace") == ""


def test_s36_a_flapping_cause_is_one_session_and_is_counted() -> None:
    world = World()
    world.add_nodes(5)
    for _ in range(90):
        world.incident(NODE)
        world.run(20, step=5)
        world.close_all(NODE)
        world.run(20, step=5)
    assert len(world.sessions(NODE)) == 1
    assert len(world.writes(d.MarkNode)) == 1
    assert not world.writes(d.UnmarkNode)
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
    world.close_all(NODE)
    world.run_until(NODE, "Released", limit=700)


def test_manual_approval_waits_for_a_person() -> None:
    world = at("Validating", release={"approval": "Manual"})
    world.run(1200, step=20)
    assert world.phase(NODE) == "Validating"
    assert world.condition(NODE, "NeedsHuman") == "Approval"


def test_a_cause_that_goes_while_pending_cancels() -> None:
    world = at("Pending")
    world.close_all(NODE)
    world.run(2)
    assert world.phase(NODE) == "Cancelled"
    assert not world.writes(d.MarkNode)


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
