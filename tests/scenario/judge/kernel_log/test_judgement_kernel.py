"""Findings from kernel lines: single lines, bursts, recovery actions."""

import itertools

import pytest

from rules.judge.health_status import Health
from rules.judge.observation import EventKind, KernelGap, SourceName, SourceState
from tests.support.scenario.judgement_world import World

NVLINK_149 = (
    "NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 "
    "0x00000000 0x00000000)"
)


APP, RESET, REBOOT = "Info Report RestartApp", "Fatal Drain ResetGPU", "Fatal Drain RestartNode"
NOTHING, RESET_WHEN_EMPTY = "Info Report None", "Degraded Cordon ResetGPU"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # a decisive number acts at once, whatever comes after it
        *(
            (xid, RESET)
            for xid in ["46", "62", "64", "95", "110", "119", "120", "136", "140", "143", "158"]
        ),
        ("119 +60", RESET),
        ("79", REBOOT),
        ("95 +86400", RESET),
        # a program's fault, a number that nobody knows
        *((f"{xid} +5", NOTHING) for xid in (9, 43, 45, 113, 999, 65_000)),
        *((xid, APP) for xid in ["31", "68", "69"]),
        # one memory error, by all of its lines
        ("48", NOTHING),
        ("48 +9.9", NOTHING),
        ("48 +10.1", RESET),
        ("48 63 94 +10", APP),
        ("48 +4 63 94 +20", APP),
        ("48 63 94 95", RESET),
        ("171 +11", "Degraded Report ResetGPU"),
        ("171 94 +11", APP),
        ("171 48 +11", RESET),
        ("48 63 171 94 +11", APP),
        # the driver's answer: replaces, raises, or is waited for
        ("109", NOTHING),
        ("109 +29", NOTHING),
        ("109 +31", RESET),
        ("109 ->4", RESET_WHEN_EMPTY),
        ("109 ->4 ->2", REBOOT),
        ("155 +29", NOTHING),
        ("155 +29 ->4", RESET_WHEN_EMPTY),
        ("109 48 +11", RESET),
        ("119 ->1", RESET),
        ("119 ->2", REBOOT),
        ("119 ->4", RESET),
        ("999 ->1", RESET),
    ],
)
def test_what_lines_about_one_gpu_come_to(script: str, expected: str) -> None:
    assert World().start().lines(script).outcome() == expected


@pytest.mark.parametrize("driver", ["550.90.07", "560.35.03"])
def test_109_before_r570_acts_at_once(driver: str) -> None:
    assert World(driver=driver).start().lines("109").outcome() == RESET


@pytest.mark.parametrize("answer", range(9))
@pytest.mark.parametrize("driver", ["550.1", "580.1", "595.1", "615.1"])
def test_no_recovery_action_lowers_a_lost_gpu(answer: int, driver: str) -> None:
    world = World(driver=driver).start().lines(f"79 +0.4 ->{answer} +5")
    assert world.outcome() == REBOOT
    assert world.only().answer == (answer or None)


def test_79_names_the_gpu_and_lowers_the_healthy_count(world: World) -> None:
    world.xid(79, gpu=3)
    judged = world.assessment()
    assert (judged.health, judged.reason) == (Health.UNHEALTHY, "Xid79GPUFallenOffBus")
    assert judged.message == (
        "GPU 3 (0000:13:00) reported Xid 79 (GPUFallenOffBus). Workloads fail or will fail; the "
        "node should be drained. Next: restart the node."
    )
    assert (judged.gpus_healthy, judged.gpus_expected) == (7, 8)


def test_a_programs_fault_is_a_record_that_silence_closes(world: World) -> None:
    world.lines("31 +179")
    assert world.assessment().health is Health.HEALTHY
    assert world.active
    world.advance(2)
    assert [i.closed_by for i in world.incidents] == ["Silence"]


def test_a_contained_error_is_one_incident_of_its_lines(world: World) -> None:
    world.lines("48 +0.012 63 +4 94 +10")
    assert world.only().xids == (48, 63, 94)
    assert world.assessment().health is Health.HEALTHY
    assert not [change for change in world.changes if change.kind == "Raised"]


@pytest.mark.parametrize("label", ["OS Reboot", "Node Reboot Required", "GPU Reset Required"])
def test_154_is_read_by_its_number_not_its_label(world: World, label: str) -> None:
    world.xid(154, 0, f"GPU recovery action changed from 0x0 (None) to 0x2 ({label})")
    assert world.outcome() == REBOOT


def test_149_45_154_share_one_incident(world: World) -> None:
    world.xid(149, 0, NVLINK_149)
    world.advance(0.283)
    world.xid(45, 0, "pid=9, name=python, Ch 00000008 caused by previous Xid 149")
    world.advance(0.121)
    world.action_line(1)
    incident = world.only()
    assert incident.xids == (149, 45)
    assert world.outcome() == "Fatal Drain ResetGPU"


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
def test_the_fatality_of_an_sxid_line_decides(world: World, text: str, expected: str) -> None:
    world.kernel(f"nvidia-nvswitch3: {text}")
    assert world.outcome() == expected
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


def test_an_event_without_a_line_counts_by_itself(world: World) -> None:
    world.event(EventKind.XID, 79)
    world.advance(20)
    assert not world.incidents
    world.advance(15)
    assert world.outcome() == "Fatal Drain RestartNode"
    assert world.only().sources == ("nvml",)


@pytest.mark.parametrize("why", [SourceState.ABSENT, SourceState.DOWN])
def test_without_a_kernel_log_the_drivers_events_count(world: World, why: SourceState) -> None:
    world.source(SourceName.KERNEL_LOG, why, "Off")
    world.event(EventKind.XID, 79)
    assert world.outcome() == "Fatal Drain RestartNode"
    assert world.only().sources == ("nvml",)


def test_after_lost_records_the_drivers_events_count_too(world: World) -> None:
    world.see(KernelGap(at=world.now, boot_id=world.boot, lost=40_000, sequence=50_000))
    world.advance(30)
    world.event(EventKind.XID, 79)
    assert world.outcome() == "Fatal Drain RestartNode"


def test_two_kinds_of_event_about_one_error_count_once(world: World) -> None:
    world.source(SourceName.KERNEL_LOG, SourceState.ABSENT, "Off")
    world.event(EventKind.XID, 48)
    world.event(EventKind.DOUBLE_BIT_ECC, 0)
    world.advance(3)
    assert world.only().count == 1


GOE = "GPU-BUS 0x0003, category 3, fatal"


@pytest.mark.parametrize("order", list(itertools.permutations(("line", "xid", "goe"))))
def test_a_line_an_event_and_an_operational_event_are_one_incident(
    world: World, order: tuple[str, ...]
) -> None:
    reports = {
        "line": lambda: world.xid(79),
        "xid": lambda: world.event(EventKind.XID, 79),
        "goe": lambda: world.event(EventKind.OPERATIONAL, 79, detail=GOE),
    }
    for source in order:
        reports[source]()
        world.advance(2)
    world.advance(60)
    assert (world.only().count, world.only().xids) == (1, (79,))
    assert world.outcome() == "Fatal Drain RestartNode"


@pytest.mark.parametrize("kinds", list(itertools.permutations(("XID", "OPERATIONAL"))))
def test_without_the_kernel_log_both_events_of_an_error_count_once(
    world: World, kinds: tuple[str, ...]
) -> None:
    world.source(SourceName.KERNEL_LOG, SourceState.ABSENT, "Off")
    for kind in kinds:
        world.event(EventKind[kind], 79, detail=GOE if kind == "OPERATIONAL" else "")
    world.advance(60)
    assert (world.only().count, world.only().sources) == (1, ("nvml",))


def test_an_operational_event_alone_becomes_the_incident_of_its_xid(world: World) -> None:
    world.event(EventKind.OPERATIONAL, 79, detail=GOE)
    world.advance(29)
    assert not world.incidents, "its line may still come"
    world.advance(2)
    assert world.outcome() == "Fatal Drain RestartNode"
    assert world.only().row.reason == "Xid79GPUFallenOffBus"
    assert world.only().evidence == (f"NVML event: operational 79 {GOE}",)


def test_a_storm_of_operational_events_displaces_no_other_event(world: World) -> None:
    world.event(EventKind.XID, 95, gpu=7)
    for _ in range(200):
        world.event(EventKind.OPERATIONAL, 79, detail=GOE)
    world.advance(40)
    assert {(i.xids, i.count) for i in world.active} == {((95,), 1), ((79,), 1)}


def test_an_operational_event_without_an_xid_is_on_record_only(world: World) -> None:
    detail = "GPU-PSHC 0x0004, category 6, recoverable"
    world.event(EventKind.OPERATIONAL, 0, detail=detail)
    assert world.only().row.reason == "GPUOperationalEvent"
    assert world.only().evidence == (f"NVML event: operational {detail}",)
    assert world.assessment().gpus_healthy == 8
    world.advance(240, polling=True)
    assert not world.active


def test_an_xid_of_a_mig_instance_counts_for_the_entire_gpu(world: World) -> None:
    world.kernel("NVRM: Xid (PCI:0000:10:00 GPU-I:05 GPU-CI:02): 95, pid=1, name=x, Uncontained")
    incident = world.only()
    assert incident.gpus == (world.inventory[0].uuid,)
    assert incident.mig is not None
    assert (incident.mig.gi, incident.mig.ci) == (5, 2)
    assert world.assessment().gpus_healthy == 7


def test_in_a_virtual_machine_79_needs_another_node() -> None:
    world = World(1, virtualization="passthrough").start()
    world.xid(79)
    assert world.outcome() == "Fatal Drain ReplaceNode"


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
