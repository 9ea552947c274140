"""Rows of the observation table about the node itself: gone, rebooted, silent, owned by
another.
"""

import pytest

from rules.api import writes as d
from rules.api.names import TAINT_QUARANTINE
from tests.support.scenario.fleets import NODE, OPEN, TAINTED, at, drain_of, evictions_after, fleet
from tests.support.scenario.session_world import ROOMY, World, policy_of


@pytest.mark.parametrize("phase", OPEN)
class TestNodeGone:
    def test_a_deleted_node_ends_the_session(self, phase: str) -> None:
        world = at(phase)
        del world.nodes[NODE]
        world.run(3)
        assert world.phase(NODE) == "NodeGone"
        assert "node n0 was deleted" in world.message(NODE)

    def test_nothing_is_applied_to_a_namesake(self, phase: str) -> None:
        world = at(phase)
        world.close_all(NODE)
        world.add_node(NODE)
        sent = len(world.sent)
        world.run(30)
        assert world.phase(NODE) == "NodeGone"
        assert not world.is_quarantined(NODE)
        assert not [
            w
            for _, w, _, _ in world.sent[sent:]
            if not isinstance(w, d.EmitEvent | d.WriteSessionStatus)
        ]

    def test_a_node_of_the_same_name_needs_its_own_health_status(self, phase: str) -> None:
        world = at(phase)
        first = world.session(NODE).name
        world.add_node(NODE)
        world.incident(NODE)
        world.run(30)
        assert world.session(NODE).name != first
        assert world.session(NODE).spec.node_uid == world.node(NODE).uid


class TestBootChanged:
    @pytest.mark.parametrize("phase", ["Marked", "Draining", "Quarantined", "Validating"])
    def test_s34_a_healthy_new_boot_is_validated_and_released(self, phase: str) -> None:
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
        drain = drain_of(world)
        assert drain.suspended_seconds >= 1195
        assert world.condition(NODE, "NodeUnreachable") == ""
        world.run(600, step=5)
        assert world.writes(d.DeletePod)

    def test_an_unreachable_node_is_still_quarantined(self) -> None:
        world = fleet(3)
        world.incident(NODE)
        world.set_ready(NODE, "Unknown")
        world.run(5)
        assert world.phase(NODE) == "Marked"
        assert world.condition(NODE, "Blocked") == "NodeUnreachable"


class TestStaleHealth:
    @pytest.mark.parametrize("phase", TAINTED)
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
        assert (
            "All causes closed. Healthy time restarted: the agent's heartbeat stopped. The node "
            "is released if it stays healthy."
        ) in world.message(NODE)
        world.run_until(NODE, "Released", limit=400)

    def test_nothing_opens_with_a_stale_health_status(self) -> None:
        world = fleet(3)
        world.silence(NODE)
        world.run(800, step=20)
        world.incident(NODE)
        world.run(60)
        assert world.sessions(NODE) == []

    def test_a_pending_session_does_not_start_with_a_stale_health_status(self) -> None:
        world = at("Pending")
        world.silence(NODE)
        world.run(800, step=20)
        world.policy = policy_of(budget=ROOMY)
        world.run(30)
        assert world.phase(NODE) == "Pending"
        assert world.condition(NODE, "Blocked") == "VerdictStale"


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

    def test_afterwards_the_quarantine_is_complete_again(self, phase: str) -> None:
        world = at(phase)
        self.start(world)
        world.run(2)
        world.cordon(NODE, on=False)
        world.run(100, step=5)
        self.stop(world)
        world.run(10)
        assert world.phase(NODE) == phase
        assert world.unschedulable(NODE)
        world.heal_until_released(NODE)
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

    def test_a_late_uncordon_is_an_operators_request(self, phase: str) -> None:
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
        assert world.is_quarantined(NODE), "the taint and cordon stays while the owner works"
        self.stop(world)
        world.run_until(NODE, "Released", limit=900)
        assert not world.is_quarantined(NODE)


LEASES_READ_S = 6
"""Leases are listed every 5 s; other signs of an owner are watched."""
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
def test_s40_stand_down_stops_disruption_and_keeps_records(phase: str, begin) -> None:  # type: ignore[no-untyped-def]
    world = at(phase)
    begin(world)
    world.run(LEASES_READ_S)
    world.policy = policy_of(budget=ROOMY)
    before = world.now
    world.run(700, step=20)
    assert world.condition(NODE, "Paused") == "StandDown"
    assert world.phase(NODE) == phase
    assert not [w for t, w, _, _ in world.sent if t >= before and w.disruptive]
