"""Faults that only polling sees: memory, repairs, heat, power limits, C2C links, fabric."""

from __future__ import annotations

import pytest

from rules.catalog.reasons import REASONS
from rules.catalog.signals import Signal
from rules.catalog.thresholds import parse_rules
from rules.judge.health_status import Health
from rules.judge.observation import Value
from tests.support.scenario.judgement_world import World, uuid

SPARE_LEFT = (640, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("signal", "good", "bad", "reason"),
    [
        (Signal.REMAP_FAILURE, 0, 1, "RowRemapFailure"),
        (Signal.REMAP_PENDING, 0, 1, "RowRemapPending"),
        (Signal.BANK_REMAP_PENDING, 0, 1, "RowRemapPending"),
        (Signal.REMAPPED_ROWS_UNCORRECTABLE, 511, 512, "RowRemapMany"),
        (Signal.REMAP_HISTOGRAM, SPARE_LEFT, (639, 0, 0, 0, 1), "MemorySparesExhausted"),
        (Signal.BANK_GROUPS_EXHAUSTED, 0, 1, "MemorySparesExhausted"),
        (Signal.CHANNEL_REPAIR_PENDING, 0, 1, "RepairPending"),
        (Signal.TPC_REPAIR_PENDING, 0, 1, "RepairPending"),
        (Signal.UNREPAIRABLE_MEMORY, 0, 1, "MemoryUnrepairable"),
        (Signal.SRAM_THRESHOLD_EXCEEDED, 0, 1, "EccSramThreshold"),
        (Signal.RETIREMENT_PENDING, 0, 1, "RetiredPagesPending"),
        (Signal.RETIRED_PAGES_DOUBLE_BIT, 14, 15, "RetiredPagesMany"),
        (Signal.NVLINK_RECOVERIES_FAILED, 0, 1, "NVLinkRecoveryFailed"),
        (Signal.INFOROM_VALID, 1, 0, "InfoRomCorrupt"),
    ],
    ids=lambda value: str(value) if isinstance(value, Signal) else "",
)
def test_a_flag_takes_one_re_read(
    world: World, signal: Signal, good: Value, bad: Value, reason: str
) -> None:
    world.values[0][signal] = good
    world.advance(60, polling=True)
    world.values[0][signal] = bad
    world.poll_one(0)
    assert not world.active
    world.advance(15)
    world.poll_one(0)
    assert world.only().row == REASONS[reason]
    assert signal.value in world.only().evidence[0]


@pytest.mark.parametrize("histogram", [(0, 0, 10, 630, 0), (1, 2), (), None])
def test_few_spares_and_odd_histograms_are_no_finding(world: World, histogram: Value) -> None:
    world.values[0][Signal.REMAP_HISTOGRAM] = histogram
    world.advance(120, polling=True)
    assert not world.incidents


def test_spares_do_not_come_back_with_a_reading(world: World) -> None:
    world.values[0][Signal.REMAP_HISTOGRAM] = (639, 0, 0, 0, 1)
    world.advance(60, polling=True)
    world.values[0][Signal.REMAP_HISTOGRAM] = None  # hidden by MIG
    world.advance(3600, polling=True)
    assert world.reasons == {"MemorySparesExhausted"}


def test_a_pending_repair_is_published_and_done_by_a_reset(world: World) -> None:
    world.values[0][Signal.TPC_REPAIR_PENDING] = 1
    world.advance(60, polling=True)
    assert world.published().status.gpus[0].reset_pending
    assert world.verdict().health is Health.HEALTHY
    world.values[0][Signal.TPC_REPAIR_PENDING] = 0
    world.advance(60, polling=True)
    assert not world.published().status.gpus[0].reset_pending
    assert not world.active
    assert world.incidents[0].closed_by == "Reset"


def test_memory_at_its_limit_is_degraded_until_it_cools(world: World) -> None:
    world.values[0] |= {Signal.MEMORY_MAX_TEMPERATURE: 95, Signal.MEMORY_TEMPERATURE: 94}
    world.advance(120, polling=True)
    assert not world.active
    world.values[0][Signal.MEMORY_TEMPERATURE] = 96
    world.advance(60, polling=True)
    assert world.reasons == {"MemoryTemperature"}
    assert world.says() == "Degraded Report Investigate"
    world.values[0][Signal.MEMORY_TEMPERATURE] = 94
    world.advance(300, polling=True)
    assert world.reasons == {"MemoryTemperature"}, "between the two sides nothing changes"
    world.values[0][Signal.MEMORY_TEMPERATURE] = 85
    world.advance(60, polling=True)
    assert not world.active


def test_memory_without_a_known_limit_is_not_judged(world: World) -> None:
    world.values[0][Signal.MEMORY_TEMPERATURE] = 120
    world.advance(120, polling=True)
    assert not world.incidents


def test_the_limits_come_from_the_rules_file() -> None:
    text = (
        b"apiVersion: gpuward.io/v1alpha1\nkind: Rules\n"
        b"thresholds: {MemoryTemperature: {value: 5}}\n"
    )
    world = World(rules=parse_rules(text)).start()
    world.values[0] |= {Signal.MEMORY_MAX_TEMPERATURE: 95, Signal.MEMORY_TEMPERATURE: 91}
    world.advance(60, polling=True)
    assert world.reasons == {"MemoryTemperature"}


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ((1,) * 10, set()),
        ((1,) * 9 + (0,), {"C2CLinkDown"}),
        ((1,) * 9 + (None,), set()),
        ((0,) * 10, set()),
        ((), set()),
    ],
    ids=["all up", "one down", "one unread", "none used", "no links"],
)
def test_a_chip_to_chip_link_down_beside_others_that_are_up(
    world: World, states: Value, found: set[str]
) -> None:
    world.values[0][Signal.C2C_STATES] = states
    world.advance(60, polling=True)
    assert world.reasons == found


def grow(world: World, signal: Signal, per_poll: int, polls: int) -> None:
    for _ in range(polls):
        value = world.values[0].get(signal, 0)
        assert isinstance(value, int)
        world.values[0][signal] = value + per_poll
        world.advance(15, polling=True)


@pytest.mark.parametrize(
    ("signal", "sound", "sick", "reason"),
    [
        (Signal.C2C_ERRORS, 10, 3000, "C2CErrorRate"),
        (Signal.NVLINK_CRC_ERRORS, 10, 3000, "NVLinkErrorRate"),
        (Signal.PCIE_REPLAYS, 7, 9, "PCIeReplayRate"),
        (Signal.HW_THERMAL_SLOWDOWN_TIME, 500_000_000, 5_000_000_000, "ThermalSlowdown"),
        (Signal.SW_THERMAL_SLOWDOWN_TIME, 500_000_000, 5_000_000_000, "ThermalSlowdown"),
        (Signal.POWER_BRAKE_TIME, 500_000_000, 5_000_000_000, "PowerBrake"),
    ],
)
def test_a_rate_is_found_by_three_of_five_and_goes_by_itself(
    world: World, signal: Signal, sound: int, sick: int, reason: str
) -> None:
    """Replays: 16 lanes of generation 5 allow 1.92 per lane and minute, so 7.68 in 15 s."""
    world.values[0] |= {Signal.PCIE_GENERATION: 5, Signal.PCIE_WIDTH: 16}
    grow(world, signal, sound, 20)
    assert not world.incidents
    grow(world, signal, sick, 2)
    assert not world.incidents
    grow(world, signal, sick, 2)
    assert world.reasons == {reason}
    grow(world, signal, 0, 4)
    assert not world.active


@pytest.mark.parametrize("every_s", [15, 30, 60])
@pytest.mark.parametrize("signal", [Signal.HW_THERMAL_SLOWDOWN_TIME, Signal.POWER_BRAKE_TIME])
def test_slowdown_times_are_judged_where_a_page_lacks_the_reasons(
    signal: Signal, every_s: int
) -> None:
    """Half of each minute for ten minutes, as dcgm-exporter collects it every so often."""
    world = World(1, nvml=False).start()
    spent, energy = 0, 0.0
    for second in range(0, 600, 15):
        if second % every_s == 0:
            spent, energy = second * 500_000_000, 1e3 * second
        world.dcgm({uuid(0): {signal: spent, Signal.TEMPERATURE: 80}}, energy={uuid(0): energy})
        world.advance(15)
    (found,) = world.reasons
    assert found in ("ThermalSlowdown", "PowerBrake")
    for second in range(600, 1200, 15):
        if second % every_s == 0:
            energy = 1e3 * second
        world.dcgm({uuid(0): {signal: spent, Signal.TEMPERATURE: 50}}, energy={uuid(0): energy})
        world.advance(15)
    assert not world.active


def test_power_capping_takes_no_finding_however_long(world: World) -> None:
    """A GPU at its power limit is a busy GPU: only the external brake is a fault of power."""
    world.values[0] |= {Signal.CLOCK_EVENT_REASONS: 0x04, Signal.POWER: 700.0}
    world.advance(3600, polling=True)
    assert not world.incidents


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (0xAA, False),
        (0x1AA, False),
        (0x00, False),
        (0xA9, True),
        (0xA6, True),
        (0x9A, True),
        (0x6A, True),
        (0x2AA, True),
    ],
    ids=hex,
)
def test_drivers_before_the_summary_tell_the_fabric_by_its_mask(mask: int, *, found: bool) -> None:
    world = World(driver="570.1").start()
    world.values[0][Signal.FABRIC_HEALTH_MASK] = mask
    world.advance(90, polling=True)
    assert (world.reasons == {"FabricDegraded"}) is found
    assert {i.row.level for i in world.active} <= {"Report"}


def test_the_drivers_summary_wins_over_the_mask(world: World) -> None:
    world.values[0] |= {Signal.FABRIC_HEALTH_MASK: 0xA9, Signal.FABRIC_HEALTH_SUMMARY: 1}
    world.advance(90, polling=True)
    assert not world.incidents


@pytest.mark.parametrize(
    ("limits", "default", "found"),
    [
        pytest.param((150, 300, 300, 300), 300, True, id="one of four at half"),
        pytest.param((150, 150, 150, 150), 300, False, id="a power plan for all"),
        pytest.param((280, 300, 300, 300), 300, False, id="a little lower"),
        pytest.param((300, 600, 600, 600), 300, False, id="another board with its own default"),
        pytest.param((150,), 300, False, id="alone"),
    ],
)
def test_one_gpu_with_a_low_power_limit_is_reported(
    limits: tuple[int, ...], default: int, *, found: bool
) -> None:
    world = World(len(limits)).start()
    for gpu, limit in enumerate(limits):
        world.values[gpu] |= {Signal.POWER_LIMIT: limit, Signal.POWER_LIMIT_DEFAULT: default}
    world.advance(120, polling=True)
    assert [(i.row.reason, str(i.row.level)) for i in world.active] == [
        ("PowerLimitLow", "Report")
    ] * found
    for gpu in range(len(limits)):
        world.values[gpu] |= {Signal.POWER_LIMIT: default}
    world.advance(120, polling=True)
    assert not world.active
