"""A controller that was away: what nobody of gpuward saw proves nothing about owners and
health.
"""

import pytest

from rules.api.timestamps import parse_time
from tests.support.scenario.fleets import NODE, at
from tests.support.scenario.session_world import World

UPGRADE = "nvidia.com__gpu_driver_upgrade_state"


def stand_down(phase: str) -> World:
    """The GPU Operator works on the node, and the session reports it."""
    world = at(phase)
    world.label(NODE, **{UPGRADE: "validation-required"})
    world.run(20)
    assert world.condition(NODE, "Paused") == "StandDown"
    return world


@pytest.mark.parametrize("new_process", [True, False], ids=["restarted", "frozen"])
@pytest.mark.parametrize("phase", ["Draining", "Quarantined", "Validating"])
class TestOwnerOfLongAgo:
    def test_an_uncordon_during_an_outage_is_an_operators_request(
        self, phase: str, new_process: bool
    ) -> None:
        world = stand_down(phase)
        world.label(NODE, **{UPGRADE: "upgrade-done"})
        world.sleep(1800)
        world.cordon(NODE, on=False)
        world.sleep(600)
        if new_process:
            world.restart()
        world.run(5)
        assert world.phase(NODE) == "Cancelled"
        assert not world.unschedulable(NODE)

    def test_an_uncordon_during_a_change_of_leader_is_still_the_owners(
        self, phase: str, new_process: bool
    ) -> None:
        world = stand_down(phase)
        world.label(NODE, **{UPGRADE: "upgrade-done"})
        world.cordon(NODE, on=False)
        world.sleep(15)
        if new_process:
            world.restart()
        world.run(5)
        assert world.phase(NODE) == phase
        assert world.unschedulable(NODE)


def test_without_earlier_data_no_owner_has_just_left() -> None:
    world = stand_down("Quarantined")
    world.label(NODE, **{UPGRADE: "upgrade-done"})
    world.cordon(NODE, on=False)
    world.restart(knows_before=False)
    world.run(5)
    assert world.phase(NODE) == "Cancelled"


def test_unobserved_healthy_time_does_not_release() -> None:
    world = at("Validating")
    world.sleep(3600)
    world.restart()
    world.run(10)
    assert world.phase(NODE) == "Validating"
    world.run(570, step=10)
    assert world.phase(NODE) == "Validating"
    world.run_until(NODE, "Released", limit=60)


def test_a_change_of_leader_costs_no_healthy_time() -> None:
    world = at("Validating")
    began = world.now
    world.run(300, step=10)
    world.sleep(20)
    world.restart()
    world.run_until(NODE, "Released", limit=600)
    assert world.now - began <= 605


def rebooted_unobserved(phase: str) -> World:
    """A new boot, and no report of the agent since."""
    world = at(phase)
    boot = world.healths[NODE]["status"]["bootID"]
    world.reboot(NODE)
    world.healths[NODE]["status"]["bootID"] = boot
    world.run(300, step=10)
    assert world.phase(NODE) == "Validating"
    return world


@pytest.mark.parametrize("phase", ["Draining", "Quarantined", "Validating"])
def test_walk_after_a_boot_no_cause_is_closed_without_a_health_status(
    phase: str,
) -> None:
    world = rebooted_unobserved(phase)
    assert world.message(NODE) == (
        "The node rebooted, and its causes are unknown until a health status of the new boot: the "
        "health status is from another boot."
    )
    world.healths[NODE]["status"]["bootID"] = world.node(NODE).boot_id
    world.close_all(NODE)
    world.run(70, step=10)
    assert world.message(NODE).startswith("All causes closed. ")
    world.healths[NODE]["status"]["bootID"] = "one-that-is-over"
    world.run(70, step=10)
    assert world.condition(NODE, "Blocked") == "VerdictStale"
    assert world.message(NODE).startswith("All causes closed. "), "it was judged since the boot"


def test_walk_a_fault_of_an_unassessed_boot_is_drained_again() -> None:
    world = rebooted_unobserved("Quarantined")
    world.healths[NODE]["status"]["bootID"] = world.node(NODE).boot_id
    world.run(5)
    assert world.phase(NODE) in {"Draining", "Quarantined"}


def test_walk_restarted_healthy_time_has_its_reason() -> None:
    world = at("Validating")
    world.sleep(3600)
    world.restart()
    world.run(10)
    assert ". Healthy time restarted: gpuward-remediator had no leader. " in world.message(NODE)
    status = world.session(NODE).status
    assert parse_time(status.until) == (parse_time(status.phase_since) or 0) + 600
    world.set_ready(NODE, "False")
    world.run(120, step=10)
    world.set_ready(NODE, "True")
    world.run(10)
    assert "restarted: the node's Ready condition is False. " in world.message(NODE)


def test_walk_a_cause_that_came_back_is_named() -> None:
    world = at("Validating")
    world.run(60)
    world.incident(NODE, "GPULost")
    world.run(10)
    world.close_all(NODE)
    world.run(60)
    assert world.phase(NODE) == "Validating"
    text = world.message(NODE)
    assert " GPULost came back." in text
    assert "restarted" not in text, "its healthy time began with the end of its last cause"


def test_a_manual_cause_is_no_returned_cause() -> None:
    world = at("Validating")
    world.run(60)
    world.open_by_operator(NODE)
    world.run(10)
    assert world.phase(NODE) != "Validating"
    world.reboot(NODE)
    world.run(10)
    assert "came back" not in world.message(NODE)


def test_walk_an_owner_at_work_is_named_before_its_effect_on_the_agent() -> None:
    """Waiting helps, and what is to be seen to is the owner's work, not the agent."""
    world = stand_down("Validating")
    health = world.healths[NODE]["status"]
    boot, health["bootID"] = health["bootID"], "one-that-is-over"
    world.run(70, step=10)
    assert world.condition(NODE, "Blocked") == "StandDown"
    assert world.condition(NODE, "NeedsHuman") == ""
    assert "; meanwhile the health status is from another boot" in world.message(NODE)
    world.run(900, step=30)
    health["bootID"] = boot
    world.label(NODE, **{UPGRADE: "upgrade-done"})
    world.run(70, step=10)
    assert world.phase(NODE) == "Validating", "its healthy time begins with sight"
    assert "Healthy time restarted: standing down, " in world.message(NODE)
    world.run_until(NODE, "Released", limit=620)
