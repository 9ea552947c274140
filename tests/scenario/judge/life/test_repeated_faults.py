"""Counts of repeated faults and repairs, over restarts of the agent and the node."""

import pytest

from rules.catalog.thresholds import parse_rules
from rules.judge.messages import incident_sentence
from rules.judge.observation import EventKind
from tests.support.scenario.judgement_world import World, pci, uuid

HOUR_S, DAY_S = 3600, 86_400


def named(world: World, reason: str) -> list[str]:
    return [
        f"{i.row.severity} {i.row.level} {i.row.action}"
        for i in world.active
        if i.row.reason == reason
    ]


# 94 more than five times a day


def contained(world: World, times: int, gap: float = 3 * HOUR_S) -> None:
    for _ in range(times):
        for _ in range(4):  # one error prints several lines
            world.xid(94, 0)
        world.advance(gap)


@pytest.mark.parametrize(("times", "found"), [(5, False), (6, True)])
def test_more_than_five_contained_errors_a_day(world: World, times: int, *, found: bool) -> None:
    contained(world, times)
    expected = ["Degraded Cordon RunDiagnostics"] if found else []
    assert named(world, "ContainedErrorsOften") == expected


def test_contained_errors_are_counted_over_restarts_and_reboots(world: World) -> None:
    contained(world, 2)
    world.restart_agent().start()
    contained(world, 2)
    world.reboot().start()
    contained(world, 2)
    assert named(world, "ContainedErrorsOften") == ["Degraded Cordon RunDiagnostics"]
    (found,) = [i for i in world.active if i.row.reason == "ContainedErrorsOften"]
    assert found.gpus == (uuid(0),)
    assert found.evidence == ("Xid 94: 6 times within 24 h",)


@pytest.mark.parametrize("spread", ["two GPUs", "two days"])
def test_contained_errors_of_others_or_of_long_ago_do_not_count(world: World, spread: str) -> None:
    for number in range(10):
        world.xid(94, number % 2 if spread == "two GPUs" else 0)
        world.advance(HOUR_S if spread == "two GPUs" else 5 * HOUR_S)
    assert not named(world, "ContainedErrorsOften")


def test_the_line_and_the_event_of_one_error_are_one(world: World) -> None:
    for _ in range(5):
        world.xid(94, 0)
        world.event(EventKind.XID, 94)
        world.advance(HOUR_S)
    assert not named(world, "ContainedErrorsOften")


# the same reason again after each repair


def fail_and_reset(world: World, xid: int = 95) -> str:
    """Return the recommended action for a fault that a reset then closes."""
    world.xid(xid, 0)
    world.action_line(1)
    world.will_read(0, recovery_action=1)
    world.advance(60, polling=True)
    (incident,) = [i for i in world.active if xid in i.xids]
    world.action_line(0, before=1)
    world.will_read(0, recovery_action=0)
    world.advance(60, polling=True)
    return f"{incident.row.action} {incident.row.closes_on}"


def fail_and_reboot(world: World, xid: int = 95) -> str:
    world.xid(xid, 0)
    world.action_line(1)
    world.advance(60)
    (incident,) = [i for i in world.active if xid in i.xids]
    world.reboot().start()
    world.advance(60, polling=True)
    return f"{incident.row.action} {incident.row.closes_on}"


def test_a_fault_after_each_reset_needs_a_restart_then_a_replacement(
    world: World,
) -> None:
    assert [fail_and_reset(world) for _ in range(2)] == ["ResetGPU Reset"] * 2
    assert fail_and_reset(world) == "RestartNode Reboot"
    assert [i.active for i in world.incidents if i.row.action == "RestartNode"] == [True]
    world.reboot().start()
    world.advance(60, polling=True)
    assert not world.active
    assert fail_and_reboot(world) == "RestartNode Reboot"
    assert fail_and_reset(world) == "ReplaceNode Human"


def test_the_rung_is_found_again_by_a_restarted_agent(world: World) -> None:
    for _ in range(2):
        fail_and_reset(world)
        world.restart_agent().start()
    world.xid(95, 0)
    world.advance(60)
    world.restart_agent().start()
    assert world.only().row.action == "RestartNode"
    message = incident_sentence(world.state, world.only(), 0)
    assert "restart the node, because lighter repairs did not last" in message


def test_after_two_reboots_a_third_will_not_help(world: World) -> None:
    assert [fail_and_reboot(world, 79) for _ in range(2)] == ["RestartNode Reboot"] * 2
    assert fail_and_reboot(world, 79) == "ReplaceNode Human"


@pytest.mark.parametrize("why", ["another GPU", "another reason", "long ago", "repaired"])
def test_repairs_of_something_else_raise_nothing(world: World, why: str) -> None:
    for _ in range(2):
        fail_and_reset(world)
    if why == "long ago":
        world.advance(8 * DAY_S)
    if why == "repaired":
        world.report_repaired(after_s=1)
        world.advance(10)
    world.xid(119 if why == "another reason" else 95, 1 if why == "another GPU" else 0)
    world.advance(30)
    assert world.only().row.action == "ResetGPU"


def test_a_rules_file_overrides_the_raised_action() -> None:
    text = (
        b"apiVersion: gpuward.io/v1alpha1\nkind: Rules\nreasons:\n"
        b"  Xid95UncontainedMemoryError: {action: ResetGPU}\n"
    )
    world = World(rules=parse_rules(text)).start()
    assert [fail_and_reset(world) for _ in range(4)] == ["ResetGPU Reset"] * 4


def test_a_raised_action_is_explained_in_the_message(
    world: World,
) -> None:
    for _ in range(3):
        world.action_line(1)
        world.advance(60)
        message = world.assessment().message
        world.action_line(0, before=1)
        world.will_read(0, recovery_action=0)
        world.advance(60, polling=True)
    assert "RecoveryActionResetGPU" in message
    assert "restart the node, because lighter repairs did not last" in message


# states that come and go


def test_lines_that_healthy_gpus_print_prove_nothing_by_repetition(
    world: World,
) -> None:
    for _ in range(10):
        world.kernel(f"NVRM: GPU {pci(0)}.0: RmInitAdapter failed! (0x24:0x65:1423)")
        world.advance(60, polling=True)
    assert {str(i.row.severity) for i in world.incidents} == {"Info"}


# the ledger itself


def test_the_ledger_is_part_of_what_is_published(world: World) -> None:
    contained(world, 2)
    (entry,) = world.published().status.ledger
    assert (entry.gpu, entry.what) == (uuid(0), "Xid 94")
    assert sum(int(seen.rpartition("x")[2]) for seen in entry.seen) == 2
