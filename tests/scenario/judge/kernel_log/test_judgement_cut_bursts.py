"""Bursts that an agent restart interrupted: the next agent assesses them."""

import msgspec
import pytest

from rules.api.timestamps import format_time
from rules.catalog.thresholds import DEFAULT_RULES, parse_rules
from rules.judge.observation import SourceName, SourceState
from rules.judge.restore import restore
from tests.support.scenario.judgement_world import World


@pytest.mark.parametrize("asks", [0, 1], ids=["the GPU looks sound", "the GPU asks for a reset"])
def test_a_burst_seen_live_is_judged_by_the_next_agent(world: World, asks: int) -> None:
    world.xid(48)
    world.restart_agent()
    world.will_read(0, recovery_action=asks)
    world.start()
    world.advance(11)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_burst_seen_live_is_not_forgotten_by_several_restarts_in_a_row(world: World) -> None:
    world.xid(48)
    lines = world.only().evidence
    for _ in range(3):
        world.restart_agent()
        world.advance(6)
        (published,) = world.published().status.incidents
        assert published.severity == "Info"
        assert published.interrupted_by == "AgentRestart"
    world.start()
    world.advance(11)
    assert world.outcome() == "Fatal Drain ResetGPU"
    assert world.only().evidence == lines, "kept while the burst waits"


def test_how_long_a_burst_lasts_is_read_from_the_rules_in_force(world: World) -> None:
    world.xid(48)
    status = msgspec.structs.replace(
        world.published().status, observed_at=format_time(world.now + 15)
    )
    file = (
        b"{apiVersion: gpuward.io/v1alpha1, kind: Rules, "
        b"thresholds: {IncidentGrouping: {value: 20, clear: 20}}}"
    )
    longer = parse_rules(file)
    later = world.now + 60
    for rules, cut in ((DEFAULT_RULES, False), (longer, True)):
        state = restore(status, later, boot_id=status.boot_id, thresholds=rules)
        assert [incident.cut for incident in state.incidents] == [cut]


def test_an_assessed_cut_burst_is_not_assessed_again(world: World) -> None:
    world.xid(48)
    world.restart_agent()
    world.xid(63, lookback=True)
    world.xid(94, lookback=True)
    world.start()
    world.advance(3)
    world.restart_agent().start()
    world.advance(60, polling=True)
    assert {i.row.severity for i in world.active} <= {"Info"}


def test_the_rest_of_a_cut_burst_still_makes_it_a_contained_one(world: World) -> None:
    world.xid(48)
    world.restart_agent()
    world.xid(63, lookback=True)
    world.xid(94, lookback=True)
    world.start()
    world.advance(3)
    assert world.outcome().startswith("Info Report")


def test_a_cut_burst_of_link_errors_is_read_from_its_line(world: World) -> None:
    ignorable = "NETIR_LINK_EVT Nonfatal XC0 i0 Link 03 (0x00000004 0x00000000 0x0 0x0 0x0 0x0)"
    world.xid(149, 1, ignorable)
    world.xid(149, 2, "a text without registers")
    before = {i.pci: i.row.reason for i in world.active}
    world.restart_agent().start()
    world.advance(3, polling=True)
    assert {i.pci: i.row.reason for i in world.active}.items() <= before.items()
    assert not [i for i in world.active if i.pci == ("0000:11:00",) and i.row.severity != "Info"]


def test_a_past_that_was_still_waiting_for_the_present_is_not_taken_for_a_cut_burst() -> None:
    world = World()
    world.now += 3600
    world.kernel("NVRM: Xid (PCI:0000:10:00): 48, x", lookback=True, at=world.now - 600)
    world.restart_agent().start()
    assert not world.active


def look(world: World) -> None:
    """The GPUs are polled before the kernel log is opened."""
    world.node()
    world.poll_pci()
    world.source(SourceName.NVML, SourceState.UP)
    world.enumerate()
    world.poll()


@pytest.mark.parametrize("behind_s", [-1.0, 0.0, 40.0], ids=str)
@pytest.mark.parametrize("restarts", [1, 3])
def test_the_rest_of_a_cut_burst_counts_after_a_poll(
    world: World, restarts: int, behind_s: float
) -> None:
    """`behind_s`: the kernel's clock is behind by as much after a few weeks."""
    printed_at = world.now - behind_s
    world.xid(48)
    for _ in range(restarts):
        world.restart_agent()
        look(world)
    world.advance(10)
    world.xid(63, lookback=True, at=printed_at)
    world.xid(94, lookback=True, at=printed_at)
    world.source(SourceName.KERNEL_LOG, SourceState.UP)
    world.advance(3)
    assert world.outcome().startswith("Info Report")
    world.advance(60, polling=True)
    assert {i.row.severity for i in world.active} <= {"Info"}


def test_a_cut_burst_that_is_being_judged_is_not_forgotten_by_the_next_restart(
    world: World,
) -> None:
    world.xid(48)
    world.advance(1)
    for _ in range(5):
        world.restart_agent().start()
        world.advance(1.5)
        assert world.only().row.severity == "Info"
    world.advance(11)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_cut_burst_waits_no_longer_for_a_kernel_log_that_does_not_come(
    world: World,
) -> None:
    world.xid(48)
    world.restart_agent()
    look(world)
    world.advance(60)
    assert world.outcome() == "Fatal Drain ResetGPU"
