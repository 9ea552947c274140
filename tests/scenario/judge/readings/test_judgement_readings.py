"""Findings from polled readings: recovery action, flags, counters, gauges, rates."""

import pytest
from msgspec.structs import replace

from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.incident import Incident
from tests.support.scenario.judgement_world import World


def named(world: World, reason: str) -> Incident:
    found = [incident for incident in world.incidents if incident.row.reason == reason]
    assert len(found) == 1, [i.row.reason for i in world.incidents]
    return found[0]


@pytest.mark.parametrize(
    ("value", "driver", "expected"),
    [
        (1, "580.1", "Fatal Drain ResetGPU"),
        (2, "580.1", "Fatal Drain RestartNode"),
        (3, "580.1", "Fatal Drain DrainP2P"),
        (4, "580.1", "Degraded Cordon ResetGPU"),
        (5, "595.1", "Degraded Report RecoverIMEXDomain"),
        (5, "580.1", "Fatal Drain RestartNode"),
        (6, "615.1", "Fatal Drain RestartNode"),
        (7, "615.1", "Fatal Drain RestartNode"),
        (42, "615.1", "Degraded Report Investigate"),
    ],
)
def test_a_polled_recovery_action_takes_one_re_read(
    value: int, driver: str, expected: str
) -> None:
    world = World(driver=driver).start()
    world.readings(0, recovery_action=value)
    assert not world.active
    world.advance(15)
    world.poll_one(0)
    assert world.outcome() == expected
    assert world.published().status.gpus[0].recovery_action


def test_draining_p2p_is_degraded_without_nvlink() -> None:
    world = World(switched=False).start()
    world.asked(3)
    assert world.outcome() == "Degraded Report DrainP2P"


def test_a_pushed_recovery_action_acts_at_once(world: World) -> None:
    world.asked(1)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_one_odd_poll_of_the_recovery_action_is_forgotten(world: World) -> None:
    world.readings(0, recovery_action=2)
    world.advance(15)
    world.readings(0, recovery_action=0)
    world.advance(60, polling=True)
    assert not world.incidents


def test_the_latest_recovery_action_wins(world: World) -> None:
    world.asked(4)
    world.asked(2)
    assert world.outcome() == "Fatal Drain RestartNode"


def test_polling_the_action_of_a_line_adds_no_incident(world: World) -> None:
    world.xid(95)
    world.action_line(1)
    world.will_read(0, recovery_action=1)
    world.advance(60, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_64_with_the_failure_flag_asks_for_another_node(world: World) -> None:
    world.xid(64)
    assert world.outcome() == "Fatal Drain ResetGPU"
    world.will_read(0, remap_failure=1)
    world.advance(45, polling=True)
    assert world.outcome() == "Fatal Drain ReplaceNode"
    assert world.only().xids == (64,)


@pytest.mark.parametrize("xid", [48, 94])
def test_a_pending_remap_after_an_error_cordons(world: World, xid: int) -> None:
    world.xid(xid)
    if xid == 48:
        world.xid(63)
        world.xid(94)
    world.will_read(0, remap_pending=1)
    world.advance(60, polling=True)
    pending = named(world, "RowRemapPendingAfterError")
    assert (pending.row.severity, pending.row.level) == ("Degraded", "Cordon")
    assert world.assessment().health is Health.DEGRADED


def test_a_pending_remap_with_recovery_action_4_cordons(world: World) -> None:
    world.will_read(0, remap_pending=1, recovery_action=4)
    world.advance(60, polling=True)
    assert {i.row.level for i in world.active} == {"Cordon"}


@pytest.mark.parametrize("bits", [0x40, 0x20, 0x48])
def test_thermal_slowdown_needs_three_of_five_and_goes_by_itself(world: World, bits: int) -> None:
    world.will_read(0, clock_event_reasons=bits, temperature=86)
    world.advance(30, polling=True)
    assert not world.active
    world.advance(15, polling=True)
    assert world.outcome() == "Degraded Report Investigate"
    assert world.assessment().reason == "ThermalSlowdown"
    assert "temperature_celsius=86" in str(world.active)
    world.will_read(0, clock_event_reasons=0)
    world.advance(30, polling=True)
    assert world.active
    world.advance(15, polling=True)
    assert not world.active
    assert named(world, "ThermalSlowdown").closed_by == "State"


@pytest.mark.parametrize(
    ("reading", "value", "text"),
    [
        ("clock_event_reasons", 0x48, "(hardware slowdown, hardware thermal slowdown)"),
        ("clock_event_reasons", 0x608, "(hardware slowdown, board limit, reliability)"),
        ("fabric_health_mask", 0x11, "(bandwidth degraded, route unhealthy)"),
    ],
)
def test_evidence_of_a_bit_mask_names_its_bits(
    world: World, reading: str, value: int, text: str
) -> None:
    world.will_read(0, **{reading: value})
    world.advance(90, polling=True)
    assert any(f"{reading}={value:#x} {text}" in line for i in world.active for line in i.evidence)


def test_a_short_peak_is_no_slowdown(world: World) -> None:
    for _ in range(4):
        world.readings(0, clock_event_reasons=0x40)
        world.advance(15)
        world.readings(0, clock_event_reasons=0)
        world.advance(15)
        world.readings(0, clock_event_reasons=0)
        world.advance(15)
    assert not world.incidents


def test_the_margin_has_hysteresis(world: World) -> None:
    world.values[0][Signal.THERMAL_MARGIN] = -2
    world.values[0][Signal.SLOWDOWN_MARGIN] = -2
    world.advance(60, polling=True)
    assert world.reasons == {"TemperatureMargin"}
    world.values[0][Signal.THERMAL_MARGIN] = 0
    world.advance(300, polling=True)
    assert world.reasons == {"TemperatureMargin"}
    world.values[0][Signal.THERMAL_MARGIN] = 12
    world.advance(60, polling=True)
    assert not world.active


def test_volatile_ecc_errors_stay_until_a_reset(world: World) -> None:
    world.will_read(0, ecc_uncorrected_volatile=2)
    world.advance(60, polling=True)
    assert world.reasons == {"EccUncorrectableVolatile"}
    world.advance(3600, polling=True)
    assert world.reasons == {"EccUncorrectableVolatile"}
    world.will_read(0, ecc_uncorrected_volatile=0)
    world.advance(60, polling=True)
    assert not world.active


def test_an_absent_value_is_neither_good_nor_bad(world: World) -> None:
    for signal in Signal:
        if signal is not Signal.PRESENCE:
            world.values[0][signal] = None
    world.advance(300, polling=True)
    assert not world.incidents
    assert world.assessment().health is Health.HEALTHY


def test_links_of_the_design_that_are_down_are_found(world: World) -> None:
    world.values[0][Signal.NVLINK_STATES] = (1,) * 18
    world.advance(60, polling=True)
    assert not world.active
    world.values[0][Signal.NVLINK_STATES] = (1,) * 16 + (0, 0)
    world.advance(60, polling=True)
    assert world.reasons == {"NVLinkDown"}
    assert "2 of the design's links down (links 16, 17)" in str(world.active)


def test_with_mig_on_links_are_off_by_design(world: World) -> None:

    world.inventory[0] = replace(world.inventory[0], mig_mode=True)
    world.enumerate()
    world.values[0][Signal.NVLINK_STATES] = (0,) * 18
    world.advance(60, polling=True)
    assert not world.active


def test_no_rate_is_computed_across_a_driver_change(world: World) -> None:
    world.values[0][Signal.PCIE_REPLAYS] = 0
    world.values[0] |= {Signal.PCIE_GENERATION: 5, Signal.PCIE_WIDTH: 16}
    for step in range(10):
        world.values[0][Signal.PCIE_REPLAYS] = (step + 1) * 10_000
        world.driver = f"580.{step}"
        world.enumerate()
        world.advance(15, polling=True)
    assert not world.active


def test_no_rate_is_computed_across_a_reset(world: World) -> None:
    world.values[0] |= {Signal.ECC_CORRECTED_VOLATILE: 10, Signal.NVLINK_RECOVERIES: 0}
    for step in range(10):
        world.values[0][Signal.ECC_CORRECTED_VOLATILE] = 10 - step
        world.values[0][Signal.NVLINK_RECOVERIES] = step * 100
        world.advance(15, polling=True)
    assert not world.active
