"""Recovery flags of lines, events of the driver, and polled recovery actions."""

import pytest

from rules.judge.health_status import Health
from rules.judge.observation import EventKind
from rules.kernel_log.parse import parse_message
from tests.support.scenario.judgement_world import SOUND, World

NOTHING = "RST: No, D-RST: No"
RESET = "RST: Yes, D-RST: No"
DRAIN_AND_RESET = "RST: No, D-RST: Yes"
OLD, NEW = "550.90.07", "580.82.07"


def memory_error(world: World, xid: int, flags: str, gpu: int = 0) -> None:
    world.xid(xid, gpu, f"pid=7062, {flags}")


@pytest.mark.parametrize("driver", ["535.183.01", OLD, NEW])
@pytest.mark.parametrize(
    ("xid", "flags", "expected"),
    [
        (95, f"Uncontained: LTC GPC (0x2, 0x0). {NOTHING}", "Info Report RestartApp"),
        (95, f"Uncontained: LTC TAG (0x2,0x0). {RESET}", "Fatal Drain ResetGPU"),
        (94, f"Contained: CE User Channel (0x9). {NOTHING}", "Info Report RestartApp"),
        (94, f"Contained: DED CBC (0x1, 0x0). physAddr: 0x00001234 {DRAIN_AND_RESET}",
         "Degraded Cordon ResetGPU"),
        *((94, f"Contained: {unit}. {RESET}", "Fatal Drain ResetGPU")
          for unit in ("PMU", "SEC2", "GSP", "FB Falcon")),
        (94, f"Contained: SM (0x1). {NOTHING} caused by previous Xid 48",
         "Info Report RestartApp"),
        (94, "GSP-RISCV instance 0 unknown fatal error", "Fatal Drain ResetGPU"),
        (94, "Contained ECC error", "Info Report RestartApp"),
        (95, "Uncontained ECC error", "Fatal Drain ResetGPU"),
        (95, "Uncontained: LTC TAG (0x2,0x0). RST: Perhaps, D-RST: No", "Fatal Drain ResetGPU"),
    ],
)  # fmt: skip
def test_the_flags_of_a_memory_error_decide_where_the_line_has_them(
    driver: str, xid: int, flags: str, expected: str
) -> None:
    world = World(driver=driver).start()
    memory_error(world, xid, flags)
    world.advance(3)
    assert world.outcome() == expected


def test_a_process_name_is_not_taken_for_the_flags() -> None:
    line = parse_message(
        b"NVRM: Xid (PCI:0000:10:00): 95, pid=7, name=RST: No, D-RST: No, Uncontained: LTC TAG "
        b"(0x2, 0x1). RST: Yes, D-RST: No"
    )
    assert line is not None
    assert line.asks == 1


@pytest.mark.parametrize("others", [(48,), (48, 63), (171, 63), (48, 63, 171, 172)])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [(NOTHING, "Info Report"), (DRAIN_AND_RESET, "Degraded Cordon"), (RESET, "Fatal Drain")],
)
def test_the_flags_decide_the_burst_of_a_memory_error(
    world: World, others: tuple[int, ...], flags: str, expected: str
) -> None:
    for xid in others:
        world.xid(xid)
        world.advance(0.01)
    memory_error(world, 94, f"Contained: SM (0x1). {flags}")
    world.advance(5)
    assert world.outcome().startswith(expected)


def test_a_lost_gpu_with_flags_stays_lost(world: World) -> None:
    memory_error(world, 95, f"Uncontained: LTC GPC (0x2, 0x0). {NOTHING}")
    world.xid(79)
    assert world.outcome() == "Fatal Drain RestartNode"


@pytest.mark.parametrize("event_first", [True, False])
@pytest.mark.parametrize("kind", [EventKind.XID, EventKind.NON_FATAL_POISON])
def test_an_event_of_the_same_error_does_not_outvote_its_line(
    world: World, kind: EventKind, *, event_first: bool
) -> None:
    data = 95 if kind is EventKind.XID else 0
    if event_first:
        world.event(kind, data)
        world.advance(0.2)
    memory_error(world, 95, f"Uncontained: LTC GPC (0x2, 0x0). {NOTHING}")
    if not event_first:
        world.advance(0.2)
        world.event(kind, data)
    world.advance(5)
    assert {str(incident.row.severity) for incident in world.active} == {"Info"}
    assert world.assessment().health is Health.HEALTHY


def test_an_event_adds_nothing_to_registers_that_were_read(world: World) -> None:
    world.xid(145, 0, "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x00000001)")
    world.advance(1)
    before = world.outcome()
    world.event(EventKind.XID, 145)
    world.advance(3)
    assert world.outcome() == before


def test_the_drivers_later_answer_still_replaces_the_flags(world: World) -> None:
    memory_error(world, 94, f"Contained: DED CBC (0x1, 0x0). {DRAIN_AND_RESET}")
    world.action_line(2)
    assert world.outcome() == "Fatal Drain RestartNode"


@pytest.mark.parametrize("data", [0, 1, 2, 4])
def test_the_number_in_an_event_is_not_the_recovery_action(world: World, data: int) -> None:
    world.readings(0, recovery_action=1, ecc_corrected_volatile=7)
    world.advance(15)
    world.poll_one(0)
    assert world.outcome() == "Fatal Drain ResetGPU"
    world.event(EventKind.RECOVERY_ACTION, data)
    world.poll_one(0)
    assert world.outcome() == "Fatal Drain ResetGPU"
    assert world.only().reset_at is None


def test_an_event_makes_the_next_reading_count_at_once(world: World) -> None:
    world.event(EventKind.RECOVERY_ACTION, 0)
    assert not world.active
    world.advance(0.3)
    world.readings(0, recovery_action=2)
    assert world.outcome() == "Fatal Drain RestartNode"


def test_an_event_long_ago_confirms_nothing(world: World) -> None:
    world.event(EventKind.RECOVERY_ACTION, 0)
    world.poll_one(0)
    world.advance(60, polling=True)
    world.readings(0, recovery_action=2)
    assert not world.active


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        ({"presence": "lost"}, "GPULost"),
        ({"recovery_action": 1}, "RecoveryActionResetGPU"),
        ({"recovery_action": 2}, "RecoveryActionRestartNode"),
    ],
)
def test_presence_and_recovery_action_say_why_a_gpu_is_unavailable(
    world: World, reads: dict[str, int | str], reason: str
) -> None:
    world.event(EventKind.GPU_UNAVAILABLE, 0, gpu=2)
    assert not world.active
    world.advance(0.3)
    world.readings(2, **reads)
    assert world.only().row.reason == reason
    assert world.assessment().health is Health.UNHEALTHY


def test_what_a_reset_healed_is_healed(world: World) -> None:
    world.event(EventKind.GPU_UNAVAILABLE, 0, gpu=2)
    world.xid(119, 2)
    world.advance(0.3)
    world.readings(2, recovery_action=1)
    assert world.outcome() == "Fatal Drain ResetGPU"
    world.advance(60, polling=True)
    world.asked(0, gpu=2)
    world.advance(60, polling=True)
    assert not world.active
    assert world.assessment().health is Health.HEALTHY


def test_unavailable_for_a_moment_is_no_fault(world: World) -> None:
    world.event(EventKind.GPU_UNAVAILABLE, 0, gpu=2)
    world.advance(60, polling=True)
    assert not world.incidents


LOST_LINE = "NVRM: GPU 0000:10:00.0: GPU has fallen off the bus."


@pytest.mark.parametrize("order", ["110 first", "lost first"])
@pytest.mark.parametrize("apart_s", [0.1, 40.0])
@pytest.mark.parametrize("how", ["79", "line", "polls"])
def test_a_security_fault_with_a_lost_gpu_needs_a_power_cycle(
    world: World, order: str, apart_s: float, how: str
) -> None:
    def lose() -> None:
        if how == "79":
            world.xid(79)
        elif how == "line":
            world.kernel(LOST_LINE)
        else:
            world.pull(0)
            world.advance(60, polling=True)

    if order == "110 first":
        world.xid(110, 0, "SEC_FAULT: _FAULT_FSP_SCPM")
        assert world.outcome() == "Fatal Drain ResetGPU"
        world.advance(apart_s)
        lose()
    else:
        lose()
        world.advance(apart_s)
        world.xid(110, 0, "SEC_FAULT: _FAULT_FSP_SCPM")
    assert world.outcome() == "Fatal Drain PowerCycle"
    assert "power-cycle the node" in world.assessment().message
    world.restart_agent()
    assert world.outcome() == "Fatal Drain PowerCycle"


@pytest.mark.parametrize("xid", [109, 155])
def test_no_recovery_action_read_twice_is_an_answer(world: World, xid: int) -> None:
    world.xid(xid)
    world.advance(31, polling=True)
    assert world.outcome() == "Degraded Report Investigate"
    assert not [c for c in world.changes if c.incident and c.incident.row.severity == "Fatal"]
    judged = world.assessment()
    assert judged.health is Health.DEGRADED
    assert (
        "The driver requires no recovery action; no cordon or drain is needed." in judged.message
    )
    world.restart_agent().start()
    assert world.assessment().message == judged.message
    assert world.outcome() == "Degraded Report Investigate"
    world.asked(1)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_no_recovery_action_read_once_is_no_answer(world: World) -> None:
    world.xid(109)
    world.advance(10)
    world.poll_one(0)
    world.advance(34)
    assert world.outcome() == "Info Report None"
    world.advance(2)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_restart_during_the_wait_changes_nothing(world: World) -> None:
    world.xid(109)
    world.advance(10)
    world.restart_agent().start()
    world.advance(31, polling=True)
    assert world.outcome() == "Degraded Report Investigate"


def test_ten_minutes_lost_are_fatal_with_any_config_space(world: World) -> None:
    world.pull(3)
    world.config_space[3] = True
    world.advance(595, polling=True)
    assert world.outcome() == "Degraded Report Investigate"
    world.advance(30, polling=True)
    assert world.outcome() == "Fatal Drain RestartNode"
    assert world.only().row.reason == "GPULost"
    world.advance(600, polling=True)
    assert world.outcome() == "Fatal Drain RestartNode"


def test_a_break_restarts_the_ten_minutes(world: World) -> None:
    world.pull(3)
    world.config_space[3] = True
    world.advance(500, polling=True)
    world.values[3] = dict(SOUND)
    world.advance(30, polling=True)
    world.values[3] = {next(iter(SOUND)): "lost"}
    world.advance(500, polling=True)
    assert "Fatal" not in {str(i.row.severity) for i in world.active}


def test_an_agent_restart_is_no_break(world: World) -> None:
    world.pull(3)
    world.config_space[3] = True
    world.advance(300, polling=True)
    world.restart_agent().start()
    world.advance(345, polling=True)
    assert world.outcome() == "Fatal Drain RestartNode"


def test_a_gpu_that_only_the_driver_called_lost_is_healed_when_it_answers(
    world: World,
) -> None:
    world.event(EventKind.GPU_UNAVAILABLE, 0, gpu=2)
    world.readings(2, presence="lost")
    assert world.outcome() == "Fatal Drain RestartNode"
    world.advance(60, polling=True)
    world.restart_agent().start()
    assert world.outcome() == "Fatal Drain RestartNode"
    world.values[2] = dict(SOUND)
    world.advance(60, polling=True)
    assert not world.active


def test_a_new_recovery_action_does_not_confirm_a_loss(world: World) -> None:
    world.event(EventKind.RECOVERY_ACTION, 0, gpu=2)
    world.readings(2, presence="lost")
    assert not world.active


@pytest.mark.parametrize("by", ["event", "line"])
def test_an_xid_154_without_a_number_is_a_hint_to_poll(world: World, by: str) -> None:
    if by == "event":
        world.event(EventKind.XID, 154)
    else:
        world.xid(154, 0, "GPU recovery action has changed")
    world.readings(0, recovery_action=1)
    assert "Fatal Drain ResetGPU" in {
        f"{i.row.severity} {i.row.level} {i.row.action}" for i in world.active
    }
