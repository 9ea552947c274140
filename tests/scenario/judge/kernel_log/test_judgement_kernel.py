"""What kernel lines come to mean: one by one, in bursts, and with the driver's own answer."""

from __future__ import annotations

import pytest

from rules.judge.health_status import Health
from rules.judge.observation import EventKind, KernelGap, SourceName, SourceState
from tests.support.scenario.judgement_world import World

NVLINK_149 = (
    "NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 "
    "0x00000000 0x00000000)"
)


@pytest.fixture
def world() -> World:
    return World().start()


@pytest.mark.parametrize("xid", [46, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 158])
def test_a_decisive_xid_acts_at_once(world: World, xid: int) -> None:
    world.xid(xid)
    assert world.verdict().health is Health.UNHEALTHY
    assert world.says().startswith("Fatal Drain")


def test_79_names_the_gpu_and_counts_it_out(world: World) -> None:
    world.xid(79, gpu=3)
    assert world.says() == "Fatal Drain RestartNode"
    judged = world.verdict()
    assert judged.reason == "Xid79GPUFallenOffBus"
    assert judged.message.startswith("GPU 3 (0000:13:00) reported Xid79GPUFallenOffBus")
    assert (judged.gpus_healthy, judged.gpus_expected) == (7, 8)


def test_31_from_a_program_is_a_record_that_silence_closes(world: World) -> None:
    world.xid(31)
    assert world.says() == "Info Report RestartApp"
    assert world.verdict().health is Health.HEALTHY
    world.advance(179)
    assert world.active
    world.advance(2)
    assert not world.active
    assert world.incidents[0].closed_by == "Silence"


@pytest.mark.parametrize("xid", [43, 45, 68, 69])
def test_software_xids_stay_records(world: World, xid: int) -> None:
    world.xid(xid)
    assert world.only().row.severity == "Info"


def test_silence_never_closes_a_fatal_incident(world: World) -> None:
    world.xid(95)
    world.advance(86_400)
    assert world.says() == "Fatal Drain ResetGPU"


def test_48_alone_is_judged_after_ten_seconds(world: World) -> None:
    world.xid(48)
    assert world.says() == "Info Report None"
    world.advance(9.9)
    assert world.only().row.severity == "Info"
    world.advance(0.2)
    assert world.says() == "Fatal Drain ResetGPU"


def test_48_63_94_is_contained_and_does_not_drain(world: World) -> None:
    for xid in (48, 63, 94):
        world.xid(xid)
        world.advance(0.012)
    world.advance(10)
    incident = world.only()
    assert incident.xids == (48, 63, 94)
    assert incident.row.level == "Report"
    assert incident.row.action == "RestartApp"
    assert world.verdict().health is Health.HEALTHY


def test_48_63_95_is_not_contained(world: World) -> None:
    for xid in (48, 63, 94, 95):
        world.xid(xid)
    assert world.says() == "Fatal Drain ResetGPU"


def test_79_then_154_to_reset_stays_restart_node(world: World) -> None:
    world.xid(79)
    world.advance(0.4)
    world.action_line(1)
    assert world.says() == "Fatal Drain RestartNode"
    assert world.only().answer == 1


@pytest.mark.parametrize("answer", range(9))
@pytest.mark.parametrize("driver", ["550.1", "580.1", "595.1", "615.1"])
def test_no_answer_of_the_driver_makes_a_lost_gpu_less_than_lost(answer: int, driver: str) -> None:
    world = World(driver=driver).start()
    world.xid(79)
    world.action_line(answer)
    world.advance(5)
    assert world.says() == "Fatal Drain RestartNode"


def test_109_is_replaced_by_the_drivers_answer_down_and_up(world: World) -> None:
    world.xid(109)
    assert world.says() == "Info Report None"
    world.action_line(4)
    assert world.says() == "Degraded Cordon ResetGPU"
    world.action_line(2, before=4)
    assert world.says() == "Fatal Drain RestartNode"


def test_109_without_an_answer_is_what_the_catalog_says(world: World) -> None:
    world.xid(109)
    world.advance(29)
    assert world.says() == "Info Report None"
    world.advance(2)
    assert world.says() == "Fatal Drain ResetGPU"


def test_109_before_r570_acts_at_once() -> None:
    world = World(driver="550.90.07").start()
    world.xid(109)
    assert world.says() == "Fatal Drain ResetGPU"


@pytest.mark.parametrize(
    ("answer", "expected"), [(1, "ResetGPU"), (2, "RestartNode"), (4, "ResetGPU")]
)
def test_119_takes_the_stronger_of_the_two(world: World, answer: int, expected: str) -> None:
    world.xid(119)
    world.action_line(answer)
    assert world.says() == f"Fatal Drain {expected}"


@pytest.mark.parametrize(
    ("hexadecimal", "label"),
    [("0x2", "OS Reboot"), ("0x2", "Node Reboot Required"), ("0x2", "GPU Reset Required")],
)
def test_154_is_read_by_its_hexadecimal_never_by_its_label(
    world: World, hexadecimal: str, label: str
) -> None:
    world.xid(154, 0, f"GPU recovery action changed from 0x0 (None) to {hexadecimal} ({label})")
    assert world.says() == "Fatal Drain RestartNode"


def test_149_45_154_share_one_incident(world: World) -> None:
    world.xid(149, 0, NVLINK_149)
    world.advance(0.283)
    world.xid(45, 0, "pid=9, name=python, Ch 00000008 caused by previous Xid 149")
    world.advance(0.121)
    world.action_line(1)
    incident = world.only()
    assert incident.xids == (149, 45)
    assert world.says() == "Fatal Drain ResetGPU"


def test_thirteen_119_in_four_milliseconds_are_one(world: World) -> None:
    for _ in range(13):
        world.xid(119)
        world.advance(0.0003)
    assert world.only().count == 13
    assert len(world.only().evidence) <= 5


def test_the_same_xid_on_two_gpus_is_two_incidents(world: World) -> None:
    world.xid(95, gpu=1)
    world.xid(95, gpu=2)
    assert {incident.gpus for incident in world.active} == {
        (world.inventory[1].uuid,),
        (world.inventory[2].uuid,),
    }


def test_a_program_that_fails_all_day_does_not_swallow_a_lost_gpu(world: World) -> None:
    for _ in range(20):
        world.xid(31)
        world.advance(60)
    world.xid(79)
    fatal = [incident for incident in world.active if incident.row.severity == "Fatal"]
    assert [incident.first_seen for incident in fatal] == [world.now]


@pytest.mark.parametrize("xid", [9, 113, 999, 65_000])
def test_an_unknown_xid_never_cordons(world: World, xid: int) -> None:
    world.xid(xid)
    world.advance(5)
    assert world.says() == "Info Report None"


def test_an_unknown_xid_is_raised_by_the_drivers_answer(world: World) -> None:
    world.xid(999)
    world.action_line(1)
    assert world.says() == "Fatal Drain ResetGPU"


def test_63_alone_is_a_record_with_a_reset_pending(world: World) -> None:
    world.xid(63)
    world.advance(3)
    assert world.only().row.severity == "Info"
    assert world.published().status.gpus[0].reset_pending


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SXid (PCI:0000:c1:00.0): 20009, Fatal, Link 04 RX Short Error Rate",
         "Fatal Drain RestartNode"),
        ("SXid (PCI:0000:c1:00.0): 26006, Fatal, SOE halted", "Fatal Drain RestartNode"),
        ("SXid (PCI:0000:c1:00.0): 11004, Non-fatal, Link 61 Ingress invalid ACL",
         "Info Report None"),
    ],
)  # fmt: skip
def test_the_word_of_an_sxid_line_decides(world: World, text: str, expected: str) -> None:
    world.kernel(f"nvidia-nvswitch3: {text}")
    assert world.says() == expected
    assert world.only().scope == "Node"
    if expected != "Info Report None":
        assert "NVSwitch at 0000:c1:00 reported" in world.published().status.message


@pytest.mark.parametrize("xid", [13, 48, 63, 74, 79, 94, 119])
def test_an_xid_that_the_log_prints_is_not_taken_from_the_drivers_event(
    world: World, xid: int
) -> None:
    world.event(EventKind.XID, xid)
    assert not world.incidents
    world.xid(xid)
    world.event(EventKind.XID, xid)
    world.advance(40)
    assert world.only().count == 1
    assert world.only().sources == ("kernel-log",)


def test_an_event_whose_line_does_not_come_counts_by_itself(world: World) -> None:
    world.event(EventKind.XID, 79)
    world.advance(20)
    assert not world.incidents
    world.advance(15)
    assert world.says() == "Fatal Drain RestartNode"
    assert world.only().sources == ("nvml",)


@pytest.mark.parametrize("why", [SourceState.ABSENT, SourceState.DOWN])
def test_without_a_kernel_log_the_drivers_events_count(world: World, why: SourceState) -> None:
    world.source(SourceName.KERNEL_LOG, why, "Off")
    world.event(EventKind.XID, 79)
    assert world.says() == "Fatal Drain RestartNode"
    assert world.only().sources == ("nvml",)


def test_after_lost_records_the_drivers_events_count_too(world: World) -> None:
    world.see(KernelGap(at=world.now, boot_id=world.boot, lost=40_000, sequence=50_000))
    world.advance(30)
    world.event(EventKind.XID, 79)
    assert world.says() == "Fatal Drain RestartNode"


def test_two_kinds_of_event_about_one_error_count_once(world: World) -> None:
    world.source(SourceName.KERNEL_LOG, SourceState.ABSENT, "Off")
    world.event(EventKind.XID, 48)
    world.event(EventKind.DOUBLE_BIT_ECC, 0)
    world.advance(3)
    assert world.only().count == 1


def test_a_contained_error_whose_lines_come_slowly_is_one_contained_error(world: World) -> None:
    world.xid(48)
    world.advance(4)
    world.xid(63)
    world.xid(94)
    world.advance(20)
    assert world.says() == "Info Report RestartApp"
    assert not [change for change in world.changes if change.kind == "Raised"]


def test_an_xid_of_a_mig_instance_counts_for_the_whole_gpu(world: World) -> None:
    world.kernel("NVRM: Xid (PCI:0000:10:00 GPU-I:05 GPU-CI:02): 95, pid=1, name=x, Uncontained")
    incident = world.only()
    assert incident.gpus == (world.inventory[0].uuid,)
    assert incident.mig is not None
    assert (incident.mig.gi, incident.mig.ci) == (5, 2)
    assert world.verdict().gpus_healthy == 7


def test_in_a_virtual_machine_79_means_another_node() -> None:
    world = World(1, virtualization="passthrough").start()
    world.xid(79)
    assert world.says() == "Fatal Drain ReplaceNode"


def test_a_line_about_an_address_gets_its_gpu_when_the_driver_names_it() -> None:
    world = World()
    world.xid(79, gpu=2)
    before = world.only().id
    world.start()
    assert world.only().id == before
    assert world.only().gpus == (world.inventory[2].uuid,)


def test_a_replayed_record_changes_nothing(world: World) -> None:
    world.xid(95)
    state = world.state
    world.sequence -= 1
    world.xid(95)
    assert world.state.incidents == state.incidents
