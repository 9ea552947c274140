"""Rows of the observation table at the phases that the other files do not reach."""

import pytest
from msgspec.structs import replace

from rules.api import writes as d
from rules.api.names import LABEL_OPT_OUT
from rules.api.quarantine import Mode
from tests.support.scenario.fleets import NODE, OPEN, TAINTED, at
from tests.support.scenario.session_world import ROOMY, World, policy_of


def disruption_after(world: World, since: float) -> list[d.Write]:
    return [write for t, write, _, _ in world.sent if t > since and write.disruptive]


def test_a_reboot_while_waiting_waits_on_with_the_new_boot() -> None:
    world = at("Pending")
    world.reboot(NODE)
    world.run(3)
    session = world.session(NODE)
    assert session.status.phase == "Pending"
    assert session.status.boot_id == world.node(NODE).boot_id
    assert not world.is_quarantined(NODE)


def test_a_reboot_that_healed_ends_the_wait() -> None:
    world = at("Pending")
    world.reboot(NODE)
    world.close_all(NODE)
    world.run(3)
    assert world.phase(NODE) == "Cancelled"
    assert not world.is_quarantined(NODE)


@pytest.mark.parametrize("phase", OPEN)
def test_a_silent_kubelet_is_reported_and_stops_eviction_and_release(phase: str) -> None:
    world = at(phase)
    world.set_ready(NODE, "Unknown")
    before = world.now
    world.run(1500, step=20)
    assert world.condition(NODE, "NodeUnreachable") == "KubeletSilent"
    assert world.phase(NODE) == phase
    assert not [w for w in disruption_after(world, before) if not isinstance(w, d.TaintAndCordon)]


@pytest.mark.parametrize("phase", ["Marked", "Validating"])
def test_what_an_owner_undid_is_no_cancel(phase: str) -> None:
    world = at(phase, release={"healthyFor": "1h"})
    state = "nvidia.com__gpu_driver_upgrade_state"
    world.label(NODE, **{state: "validation-required"})
    world.run(2)
    world.cordon(NODE, on=False)
    world.run(100, step=5)
    assert world.phase(NODE) == phase
    assert world.condition(NODE, "Paused") == "StandDown"
    world.label(NODE, **{state: "upgrade-done"})
    world.run(10)
    assert world.phase(NODE) == phase
    assert world.unschedulable(NODE)


@pytest.mark.parametrize("phase", TAINTED)
@pytest.mark.parametrize("what", ["pause", "opt-out", "selector", "Shadow"])
def test_a_restoration_waits_while_it_is_forbidden_and_reports_it(phase: str, what: str) -> None:
    world = at(phase, release={"healthyFor": "1h"})
    usual = world.policy
    state = "nvidia.com__gpu_driver_upgrade_state"
    world.label(NODE, **{state: "validation-required"})
    world.run(2)
    world.cordon(NODE, on=False)
    world.run(10)
    match what:
        case "pause":
            world.pause()
        case "opt-out":
            world.label(NODE, **{LABEL_OPT_OUT: "true"})
        case "selector":
            world.policy = replace(usual, node_selector="pool=training")
        case "Shadow":
            world.policy = replace(usual, mode=Mode.SHADOW)
    world.label(NODE, **{state: "upgrade-done"})
    before = world.now
    world.run(1800, step=30)
    assert world.phase(NODE) == phase
    assert not disruption_after(world, before)
    (paused,) = [c for c in world.session(NODE).status.conditions if c.type == "Paused"]
    assert paused.status == "True"
    assert "part of the quarantine was removed" in paused.message
    assert "restored after this ends" in paused.message
    world.pauses.clear()
    world.label(NODE, **{LABEL_OPT_OUT: None})
    world.policy = usual
    world.run(5)
    assert world.unschedulable(NODE)
    assert world.phase(NODE) not in {"Cancelled", "Released"}
    text = [e["message"] for e in world.events.values() if e["reason"] == "QuarantineMarkRestored"]
    assert len(text) == 1
    assert "to end the quarantine, remove it again after 60 s" in text[0]
    assert f"kubectl gpuward release {NODE}" in text[0]
    assert "MarkRestored" in [entry.step for entry in world.session(NODE).status.timeline]


@pytest.mark.parametrize(("after", "ends"), [(30, False), (70, True)])
def test_a_second_removal_after_the_time_in_the_event_ends_the_session(
    after: int, ends: bool
) -> None:
    world = at("Quarantined")
    state = "nvidia.com__gpu_driver_upgrade_state"
    world.label(NODE, **{state: "validation-required"})
    world.run(2)
    world.cordon(NODE, on=False)
    world.run(10)
    world.label(NODE, **{state: "upgrade-done"})
    world.run(5)
    assert world.unschedulable(NODE)
    world.run(after)
    world.cordon(NODE, on=False)
    world.run(5)
    assert (world.phase(NODE) == "Cancelled") is ends


@pytest.mark.parametrize("phase", OPEN)
def test_hold_never_stops_the_way_to_quarantine(phase: str) -> None:
    world = at(phase)
    world.annotate(NODE, "gpuward.io/hold", "under the microscope")
    world.policy = policy_of(budget=ROOMY)
    world.pdbs.clear()
    world.run(60)
    where = {"Marked": "Marked", "Validating": "Validating"}.get(phase, "Quarantined")
    assert world.phase(NODE) == where
    world.close_all(NODE)
    world.run(1500, step=20)
    assert world.phase(NODE) == "Validating"
    assert world.condition(NODE, "Blocked") == "Hold"


@pytest.mark.parametrize("phase", OPEN)
def test_a_pause_stops_disruption_and_keeps_the_taint(phase: str) -> None:
    world = at(phase, release={"healthyFor": "2h"})
    quarantined = world.is_quarantined(NODE)
    world.pause()
    world.policy = policy_of(budget=ROOMY, release={"healthyFor": "2h"})
    world.pdbs.clear()
    before = world.now
    world.run(600, step=10)
    assert world.condition(NODE, "Paused") == "Paused"
    assert "ada" in next(
        c.message for c in world.session(NODE).status.conditions if c.type == "Paused"
    )
    assert world.is_quarantined(NODE) == quarantined
    assert disruption_after(world, before) == []


def test_an_opt_out_while_pending_prevents_the_quarantine() -> None:
    world = at("Pending")
    world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
    world.touch(world.nodes[NODE])
    world.policy = policy_of(budget=ROOMY)
    world.run(60)
    assert world.phase(NODE) == "Pending"
    assert world.condition(NODE, "Paused") == "OptOut"
    assert not world.is_quarantined(NODE)


@pytest.mark.parametrize("phase", TAINTED)
def test_a_repeat_offender_is_never_released_by_itself_at_any_phase(phase: str) -> None:
    world = at(phase)
    for number in range(2):
        past = world.add_ended_session(NODE, f"earlier-{number}")
        assert past
    world.run(3)
    assert world.condition(NODE, "Replace") == "RepeatOffender"
    world.close_all(NODE)
    world.run(3600, step=60)
    assert world.phase(NODE) == "Validating"
    assert world.condition(NODE, "NeedsHuman") == "Replace"


@pytest.mark.parametrize("phase", OPEN)
def test_a_cause_that_flaps_stays_one_session(phase: str) -> None:
    world = at(phase, release={"healthyFor": "10m"})
    first = world.session(NODE).name
    for _ in range(10):
        world.close_all(NODE)
        world.run(20, step=5)
        world.incident(NODE, level="Cordon" if phase == "Marked" else "Drain")
        world.run(20, step=5)
    tainted = len(world.writes(d.TaintAndCordon))
    assert tainted == (0 if phase == "Pending" else 1), "no oscillation"
    assert not world.writes(d.RemoveTaint)
    if phase != "Pending":
        assert world.session(NODE).name == first
        assert len(world.sessions(NODE)) == 1


def test_deleting_a_pending_session_does_not_touch_the_node() -> None:
    """A session that waits again after its deletion would be no cancel."""
    world = at("Pending")
    del world.quarantines[world.session(NODE).name]
    world.run(600, step=10)
    assert not world.writes(d.TaintAndCordon)
    assert world.phase(NODE) in {"Pending", "Cancelled"}


@pytest.mark.parametrize("phase", OPEN)
def test_a_change_to_shadow_stops_disruption_in_every_phase(phase: str) -> None:
    world = at(phase, release={"healthyFor": "2h"})
    world.policy = policy_of(mode="Shadow", budget=ROOMY, release={"healthyFor": "2h"})
    world.pdbs.clear()
    before = world.now
    world.run(300, step=5)
    assert disruption_after(world, before) == []
    assert world.is_quarantined(NODE) == (phase != "Pending")
