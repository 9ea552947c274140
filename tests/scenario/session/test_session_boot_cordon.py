"""A GPU driver manager uncordons its node at every boot: put back once per boot, a second one
wins.
"""

import pytest

from rules.api import writes as d
from rules.api.names import TAINT_QUARANTINE
from rules.api.timestamps import format_time
from rules.session.taint_restore import BOOT_WORK_S
from tests.support.scenario.fleets import NODE, TAINTED, at, evictions_after, fleet
from tests.support.scenario.session_world import CrashError, World, policy_of


def restored(world: World) -> list[str]:
    """Messages of the Events that say it aloud."""
    return [
        event["message"]
        for event in world.events.values()
        if event["reason"] == "QuarantineCordonRestored"
    ]


def boot_and_uncordon(world: World, after: float = 60.0) -> None:
    world.reboot(NODE)
    world.run(after, step=5)
    world.cordon(NODE, on=False)
    world.run(3)


@pytest.mark.parametrize("phase", TAINTED)
class TestTheDriverManager:
    def test_its_uncordon_is_restored_once_and_reported(self, phase: str) -> None:
        world = at(phase)
        boot_and_uncordon(world)
        assert world.unschedulable(NODE)
        assert any(t["key"] == TAINT_QUARANTINE for t in world.nodes[NODE]["spec"]["taints"])
        assert world.phase(NODE) not in {"Cancelled", "Released"}
        (message,) = restored(world)
        assert "uncordon it again to end the quarantine" in message
        assert "CordonLost" in [e.step for e in world.session(NODE).status.timeline]

    def test_a_second_uncordon_wins(self, phase: str) -> None:
        world = at(phase)
        boot_and_uncordon(world)
        world.cordon(NODE, on=False)
        before = world.now
        world.run(60)
        assert world.phase(NODE) == "Cancelled"
        assert not world.is_quarantined(NODE)
        assert not world.unschedulable(NODE)
        assert evictions_after(world, before) == 0

    def test_every_boot_has_its_one(self, phase: str) -> None:
        world = at(phase)
        for boots in (1, 2, 3):
            boot_and_uncordon(world)
            assert world.unschedulable(NODE)
            assert len(restored(world)) == boots

    def test_boot_and_uncordon_observed_at_once(self, phase: str) -> None:
        world = at(phase)
        world.reboot(NODE)
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.unschedulable(NODE)
        assert len(restored(world)) == 1

    def test_a_restart_in_between_changes_nothing(self, phase: str) -> None:
        world = at(phase)
        world.reboot(NODE)
        world.run(5)
        world.restart()
        world.cordon(NODE, on=False)
        world.restart()
        world.run(3)
        assert world.unschedulable(NODE)
        world.restart()
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"


def test_long_after_the_boot_it_is_an_operators_request() -> None:
    world = at("Quarantined")
    boot_and_uncordon(world, after=BOOT_WORK_S + 60)
    assert world.phase(NODE) == "Cancelled"
    assert not restored(world)


def test_a_taint_removed_after_the_boot_is_an_operators_request() -> None:
    world = at("Quarantined")
    world.reboot(NODE)
    world.run(10)
    world.untaint(NODE, TAINT_QUARANTINE)
    world.run(3)
    assert world.phase(NODE) == "Cancelled"


def test_a_healthy_new_boot_is_released_uncordoned() -> None:
    world = at("Quarantined")
    boot_and_uncordon(world)
    world.heal_until_released(NODE, limit=900, step=5)
    assert not world.is_quarantined(NODE)
    assert not world.unschedulable(NODE)


@pytest.mark.parametrize("writes", range(4))
def test_no_crash_makes_it_two(writes: int) -> None:
    world = at("Quarantined")
    world.reboot(NODE)
    world.run(5)
    world.cordon(NODE, on=False)
    world.crash_after = writes
    try:
        world.run(3)
    except CrashError:
        world.restart()
        world.run(3)
    assert world.unschedulable(NODE)
    world.crash_after = None
    world.cordon(NODE, on=False)
    world.run(3)
    assert world.phase(NODE) == "Cancelled"


class TestNobodyMayActMeanwhile:
    def test_after_a_pause_it_is_put_back(self) -> None:
        world = at("Quarantined")
        world.pause()
        boot_and_uncordon(world)
        assert world.phase(NODE) not in {"Cancelled", "Released"}
        world.run(2 * BOOT_WORK_S, step=20)
        assert not world.unschedulable(NODE)
        assert world.phase(NODE) not in {"Cancelled", "Released"}
        world.pauses.clear()
        world.run(3)
        assert world.unschedulable(NODE)

    def test_after_a_refusal_it_is_put_back(self) -> None:
        world = at("Quarantined")
        world.refusing = {d.TaintAndCordon: (403, "no")}
        boot_and_uncordon(world)
        world.run(2 * BOOT_WORK_S, step=20)
        assert world.phase(NODE) not in {"Cancelled", "Released"}
        world.refusing = {}
        world.run(300, step=10)
        assert world.unschedulable(NODE)

    def test_in_shadow_nothing_is_put_on_the_node(self) -> None:
        world = at("Quarantined")
        world.policy = policy_of(mode="Shadow")
        world.run(3)
        boot_and_uncordon(world)
        assert not world.unschedulable(NODE)
        assert world.phase(NODE) not in {"Cancelled", "Released"}


class TestTheControllerWasAway:
    def away(self, seconds: float, back_ago: float | None) -> World:
        """It missed a boot and an uncordon; the Ready condition may show when it came back."""
        world = at("Quarantined")
        back_at = world.now - 86_400 if back_ago is None else world.now + seconds - back_ago
        world.sleep(seconds)
        world.reboot(NODE)
        ready = world.nodes[NODE]["status"]["conditions"][0]
        ready["lastTransitionTime"] = format_time(back_at)
        world.cordon(NODE, on=False)
        world.run(3)
        return world

    def test_a_boot_of_a_moment_ago(self) -> None:
        assert self.away(7200, back_ago=120).unschedulable(NODE)

    def test_a_boot_of_an_hour_ago(self) -> None:
        world = self.away(7200, back_ago=3600)
        assert world.phase(NODE) == "Cancelled"

    def test_an_uncordon_at_an_unknown_time_is_restored_once(self) -> None:
        world = self.away(7200, back_ago=None)
        assert world.unschedulable(NODE)
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"


class TestASessionOpenedAfterTheBoot:
    """It has observed no boot; the Ready condition shows since when it is back."""

    def tainted_after_boot(self, before_fault: float = 35.0) -> World:
        world = fleet(5)
        world.nodes[NODE]["metadata"]["creationTimestamp"] = format_time(world.now - 86_400)
        world.reboot(NODE)
        world.run(before_fault, step=5)
        world.incident(NODE)
        world.run(10)
        assert world.is_quarantined(NODE)
        return world

    def test_the_driver_managers_uncordon_is_put_back(self) -> None:
        world = self.tainted_after_boot()
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.unschedulable(NODE)
        assert world.phase(NODE) not in {"Cancelled", "Released"}
        assert len(restored(world)) == 1

    def test_the_second_wins(self) -> None:
        world = self.tainted_after_boot()
        world.cordon(NODE, on=False)
        world.run(3)
        world.restart()
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"
        assert not world.unschedulable(NODE)

    def test_the_one_of_a_boot_is_for_all_its_sessions(self) -> None:
        world = self.tainted_after_boot()
        for _ in range(2):
            world.cordon(NODE, on=False)
            world.run(3)
        assert world.phase(NODE) == "Cancelled"
        world.incident(NODE, "RowRemapFailure")
        world.run(10)
        assert world.is_quarantined(NODE)
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"

    def test_long_after_the_boot_it_is_an_operators_request(self) -> None:
        world = self.tainted_after_boot(before_fault=BOOT_WORK_S + 60)
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"
        assert not restored(world)

    @pytest.mark.parametrize("away", ["False", "Unknown"])
    def test_a_kubelet_that_was_away_makes_no_boot(self, away: str) -> None:
        world = fleet(5)
        world.incident(NODE)
        world.run(BOOT_WORK_S + 60, step=20)
        world.set_ready(NODE, away)
        world.run(30, step=5)
        world.set_ready(NODE, "True")
        world.run(30, step=5)
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"
        assert not restored(world)

    def test_an_uncordon_of_a_new_node_ends_the_session(self) -> None:
        """Its first boot is no reboot, so nobody has to say it twice in a young cluster."""
        world = fleet(5)
        ready = world.now
        node = world.nodes[NODE]
        node["metadata"]["creationTimestamp"] = format_time(ready - 20)
        for condition in node["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition["lastTransitionTime"] = format_time(ready)
        world.incident(NODE)
        world.run(10)
        assert world.is_quarantined(NODE)
        world.cordon(NODE, on=False)
        world.run(3)
        assert world.phase(NODE) == "Cancelled"
        assert not restored(world)
