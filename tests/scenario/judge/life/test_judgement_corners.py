"""Edge cases: unproven lines, clock changes, overrides, lost records, IMEX actions."""

import pytest

from rules.catalog.signals import Signal
from rules.catalog.thresholds import parse_rules
from rules.judge.judge import next_deadline, wants_reread
from rules.judge.observation import (
    KernelGap,
    KernelRead,
    SourceName,
    SourceState,
    Tick,
)
from tests.support.scenario.judgement_world import World

GSP = (
    "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:10:00 (printing 1 of every 30)."
)
INIT = "NVRM: GPU 0000:10:00.0: RmInitAdapter failed! (0x26:0x56:1474)"
RESET = (
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x62)"
)
DPC = "pcieport 0000:00:1b.0: DPC: containment event, status:0x1f01 source:0x0000"


HEARTBEAT = "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 9 heartbeat 0"
RPC = "NVRM: GPU6 _kgspLogRpcTimeout: ************** GSP Timeout **************"


def test_the_first_lines_of_a_hung_gsp_never_drain_alone(world: World) -> None:
    for _ in range(60):  # laptops print them for hours
        world.kernel(HEARTBEAT)
        world.kernel(RPC)
        assert {(i.row.reason, str(i.row.severity)) for i in world.active} == {
            ("GspError", "Info")
        }
        world.advance(60, polling=True)
    assert not world.active


def test_without_gpu_data_they_are_only_a_record() -> None:
    world = World(nvml=False).start()
    world.kernel(HEARTBEAT)
    world.advance(600)
    assert not world.active
    assert {str(i.row.severity) for i in world.incidents} == {"Info"}


@pytest.mark.parametrize("line", [GSP, INIT, RESET], ids=["GSP", "init", "assertion"])
def test_an_unproven_line_is_dropped_when_the_gpus_are_good(world: World, line: str) -> None:
    world.kernel(line)
    assert world.only().row.severity == "Info"
    world.advance(20, polling=True)
    assert not world.active
    assert world.incidents[0].closed_by == "NotConfirmed"


@pytest.mark.parametrize("line", [GSP, INIT, RESET], ids=["GSP", "init", "assertion"])
def test_an_unproven_line_counts_when_the_gpu_is_bad(world: World, line: str) -> None:
    world.will_read(0, recovery_action=1)
    world.kernel(line)
    world.advance(33, polling=True)
    assert {str(i.row.severity) for i in world.active} == {"Degraded", "Fatal"}


def test_an_unproven_line_is_degraded_without_gpu_data() -> None:
    world = World(nvml=False)
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.kernel(INIT)
    assert world.outcome() == "Degraded Report RestartNode"


def test_a_containment_at_some_port_is_a_record(world: World) -> None:
    world.kernel(DPC)
    world.advance(3)
    assert world.outcome() == "Info Report None"


def test_bandwidth_of_a_network_card_is_ignored(world: World) -> None:
    line = (
        "{} 0000:{}:00.0: 63.012 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link "
        "at 0000:00:01.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
    )
    world.kernel(line.format("mlx5_core", "9c"))
    assert not world.incidents
    world.kernel(line.format("nvidia", "10"))
    world.advance(3)
    assert world.outcome() == "Degraded Report CheckMechanicals"


def test_an_imex_action_reports_the_domain_until_withdrawn() -> None:
    world = World(driver="595.1").start()
    world.asked(5)
    assert world.only().scope == "Domain"
    assert world.outcome() == "Degraded Report RecoverIMEXDomain"
    world.asked(0)
    assert not world.active


def test_an_old_contained_error_is_closed_without_gpu_data() -> None:
    world = World()
    for xid in (48, 63, 94):
        world.xid(xid, lookback=True)
    world.advance(31)
    assert not world.active


def test_an_sxid_without_fatality_is_not_closed_by_silence(world: World) -> None:
    world.kernel("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 99999, Some error")
    world.advance(3600, polling=True)
    assert world.outcome() == "Degraded Report Investigate"
    world.reboot().start()
    assert not world.active


def test_a_clock_that_goes_back_does_not_keep_a_fault_waiting(world: World) -> None:
    world.xid(48)
    world.now -= 7200
    world.see(Tick(at=world.now))
    assert {str(i.row.severity) for i in world.active if 48 in i.xids} == {"Fatal"}


@pytest.mark.parametrize("jump_s", [-365 * 86_400, -3600, 3600, 365 * 86_400])
def test_a_clock_that_jumps_loses_no_fault(world: World, jump_s: int) -> None:
    world.xid(95, gpu=1)
    world.now += jump_s
    world.see(Tick(at=world.now))
    world.xid(79, gpu=2)
    world.advance(60, polling=True)
    fatal = {i.xids for i in world.active if i.row.severity == "Fatal"}
    assert fatal == {(95,), (79,)}


def test_a_clock_that_is_set_is_not_a_reboot(world: World) -> None:
    world.xid(95, gpu=1)
    world.advance(60, polling=True)
    world.now += 7200
    world.booted_at += (
        7200 + 86_400 - 60
    )  # the kernel counts the boot time back from the new clock
    world.host()
    world.advance(60, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_clock_that_goes_back_does_not_stretch_a_stand_down(world: World) -> None:
    world.annotate("release-gpu", "x")
    world.now -= 86_400
    world.see(Tick(at=world.now))
    world.advance(7_201)
    assert not world.state.standing_down


def test_a_rules_file_overrides_what_a_reason_means() -> None:
    rules = parse_rules(
        b"apiVersion: gpuward.io/v1alpha1\nkind: Rules\n"
        b"reasons: {Xid31MemoryPageFault: {severity: Degraded}, Xid119GSPTimeout: "
        b"{level: Cordon}}\n"
        b"thresholds: {ThermalSlowdown: {count: 1, window: 1}}\n"
    )
    world = World(rules=rules).start()
    world.xid(31, gpu=1)
    assert world.outcome() == "Degraded Report RestartApp"
    world.advance(400)
    assert world.active, "silence ends a record, never a fault"
    world.xid(119, gpu=2)
    assert [i.row.level for i in world.active if 119 in i.xids] == ["Cordon"]
    world.readings(3, clock_event_reasons=0x40)
    assert any(i.row.reason == "ThermalSlowdown" for i in world.active)


def test_a_single_sighting_asks_for_its_re_read(world: World) -> None:
    assert not wants_reread(world.state)
    world.readings(0, recovery_action=1)
    assert wants_reread(world.state)
    world.advance(1)
    world.poll_one(0)
    assert not wants_reread(world.state)


def test_the_cursor_moves_over_lost_records_and_never_back(world: World) -> None:
    world.see(KernelGap(at=world.now, lost=5, boot_id=world.boot, sequence=150))
    world.see(KernelRead(at=world.now, boot_id=world.boot, sequence=170))
    world.see(KernelRead(at=world.now, boot_id=world.boot, sequence=160))
    assert world.published().status.cursor.kmsg_seq == 170


def test_a_reboot_under_a_running_agent_is_detected(world: World) -> None:
    world.xid(79)
    world.boot, world.sequence = "boot-2", 0
    world.see(KernelRead(at=world.now, boot_id="boot-2", sequence=1))
    assert world.active
    world.advance(10)
    world.start()
    assert not world.active
    assert world.incidents[0].closed_by == "Reboot"


def test_nothing_waits_on_a_healthy_node(world: World) -> None:
    world.advance(60, polling=True)
    assert next_deadline(world.state) is None


def test_remapping_that_mig_hides_is_absent_not_sound(world: World) -> None:
    world.will_read(0, remap_failure=1)
    world.advance(60, polling=True)
    world.values[0][Signal.REMAP_FAILURE] = None
    world.advance(600, polling=True)
    assert world.outcome() == "Fatal Drain ReplaceNode"
