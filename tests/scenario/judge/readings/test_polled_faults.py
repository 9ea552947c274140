"""Faults found by polling: memory, repairs, heat, power limits, C2C links, fabric."""

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


def link(generation: int, use: int, state: int) -> dict[str, Value]:
    return {
        "pcie_generation": generation,
        "pcie_generation_max": 5,
        "utilization": use,
        "performance_state": state,
    }


def heat(
    now: int | None, slowdown: int | None, margin: int, memory: int | None = None
) -> dict[str, Value]:
    return {
        "temperature": now,
        "slowdown_temperature": slowdown,
        "thermal_margin": margin,
        "memory_temperature": memory,
    }


@pytest.mark.parametrize(
    ("reads", "found"),
    [
        pytest.param(link(1, 95, 0), "PCIeGenDegraded", id="a slow link in P0"),
        pytest.param(link(1, 95, 2), "PCIeGenDegraded", id="in P2, as workstation cards"),
        pytest.param(link(1, 5, 0), "", id="a link that rests"),
        pytest.param(link(1, 5, 2), "", id="a link that rests in P2"),
        pytest.param(link(1, 95, 5), "", id="a state in which no card computes"),
        pytest.param(link(1, 95, 8), "", id="another such state"),
        pytest.param({"remap_histogram": (0, 0, 10, 630, 0)}, "", id="few spare rows"),
        pytest.param({"remap_histogram": (1, 2)}, "", id="an odd histogram"),
        pytest.param({"remap_histogram": ()}, "", id="an empty histogram"),
        pytest.param({"memory_temperature": 120}, "", id="hot memory of no known limit"),
        pytest.param({"c2c_states": (1,) * 10}, "", id="C2C links up"),
        pytest.param({"c2c_states": (1,) * 9 + (0,)}, "C2CLinkDown", id="one C2C link down"),
        pytest.param({"c2c_states": (1,) * 9 + (None,)}, "", id="one C2C link unread"),
        pytest.param({"c2c_states": (0,) * 10}, "", id="no C2C link used"),
        pytest.param({"c2c_states": ()}, "", id="no C2C links"),
        pytest.param({"c2c_states": (1, 1, 7)}, "C2CLinkDown", id="a C2C state nobody knows"),
        pytest.param({"nvlink_states": (1,) * 17 + (9,)}, "NVLinkStateUnknown",
                     id="an NVLink state nobody knows"),
        pytest.param({"fabric_state": 0}, "", id="no fabric to miss"),
        pytest.param({"fabric_health_summary": 4}, "FabricDegraded",
                     id="a fabric summary nobody knows"),
        pytest.param({"clock_event_reasons": 0x04, "power": 700.0}, "", id="at its power limit"),
        pytest.param({"nvlink_crc_errors": 10**9}, "", id="a large first value is no rate"),
        *(pytest.param({"fabric_health_mask": mask}, "", id=f"mask {mask:#x}")
          for mask in (0xAA, 0x1AA, 0x00)),
        *(pytest.param({"fabric_health_mask": mask}, "FabricDegraded", id=f"mask {mask:#x}")
          for mask in (0xA9, 0xA6, 0x9A, 0x6A, 0x2AA, 0xAB)),
        *(pytest.param({"fabric_health_mask": mask, "fabric_health_summary": 1}, found,
                       id=f"mask {mask:#x}")
          for mask, found in (
              (0x10AA, ""), (0x20AA, "FabricPartitionUnassigned"), (0x30AA, ""),
              (0x40AA, ""), (0x80AA, "FabricManagerDisconnected"), (0xC0AA, ""),
          )),
        pytest.param({"clock_event_reasons": 0x400}, "ReliabilitySlowdown",
                     id="slowed for its reliability"),
        pytest.param({"clock_event_reasons": 0x200}, "", id="at the limit of the board"),
        pytest.param({"nvlink_states": (1,) * 17 + (3,)}, "NVLinkTrafficDisabled",
                     id="an NVLink without traffic"),
        pytest.param({"nvlink_states": (3,) * 18, "fabric_health_mask": 0x20AA},
                     "FabricPartitionUnassigned", id="no traffic without a partition"),
        pytest.param({"nvlink_raw_ber": 9e-4}, "", id="bits that FEC corrects"),
        pytest.param({"fabric_health_mask": 0xA9, "fabric_health_summary": 1}, "",
                     id="the driver's summary wins over the mask"),
        pytest.param(heat(45, 95, 0), "", id="no margin left at 45 degrees"),
        pytest.param(heat(45, None, -3), "", id="the same, no slowdown temperature known"),
        pytest.param(heat(45, None, 0, 94), "TemperatureMargin", id="the same, hot memory"),
        pytest.param(heat(110, 95, 20), "TemperatureMargin", id="over slowdown, margin of 20"),
        pytest.param(heat(93, 95, -1), "TemperatureMargin", id="both near the end"),
        pytest.param(heat(88, None, 0), "TemperatureMargin", id="warm enough to believe it"),
        pytest.param(heat(None, None, 0), "TemperatureMargin", id="nothing to check it by"),
        pytest.param(heat(255, 95, 20), "", id="a temperature that nothing survives"),
        pytest.param(heat(0, None, -1), "TemperatureMargin", id="a temperature of no meaning"),
        pytest.param(heat(60, 95, 20), "", id="both fine"),
    ],
)  # fmt: skip
def test_what_a_gpu_reads_for_minutes(world: World, reads: dict[str, Value], found: str) -> None:
    world.will_read(0, **reads)
    world.advance(120, polling=True)
    assert world.reasons == ({found} if found else set())
    assert {i.row.level for i in world.active} <= {"Report"}


def test_a_clock_event_reason_of_most_gpus_is_no_fault_of_one(world: World) -> None:
    for gpu in range(5):
        world.will_read(gpu, clock_event_reasons=0x400)
    world.advance(120, polling=True)
    assert not world.active, "4 of 7 others"
    world.will_read(4, clock_event_reasons=0)
    world.advance(120, polling=True)
    assert world.reasons == {"ReliabilitySlowdown"}
    assert "(reliability), the same on 3 of 7 other GPUs" in str(world.active)
    for gpu in range(8):
        world.will_read(gpu, clock_event_reasons=0)
    world.advance(60, polling=True)
    assert not world.active


def test_a_single_gpu_is_compared_with_none() -> None:
    world = World(1).start()
    world.will_read(0, clock_event_reasons=0x400)
    world.advance(120, polling=True)
    assert not world.active


def test_a_shared_fabric_assigns_partitions_on_demand(world: World) -> None:
    world.annotate("fabric-mode", "shared")
    world.will_read(0, fabric_health_mask=0x20AA)
    world.advance(120, polling=True)
    assert not world.active


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
    assert world.assessment().health is Health.HEALTHY
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
    assert world.outcome() == "Degraded Report Investigate"
    world.values[0][Signal.MEMORY_TEMPERATURE] = 94
    world.advance(300, polling=True)
    assert world.reasons == {"MemoryTemperature"}, "between the two sides nothing changes"
    world.values[0][Signal.MEMORY_TEMPERATURE] = 85
    world.advance(60, polling=True)
    assert not world.active


def test_the_limits_come_from_the_rules_file() -> None:
    text = (
        b"apiVersion: gpuward.io/v1alpha1\nkind: Rules\n"
        b"thresholds: {MemoryTemperature: {value: 5}}\n"
    )
    world = World(rules=parse_rules(text)).start()
    world.values[0] |= {Signal.MEMORY_MAX_TEMPERATURE: 95, Signal.MEMORY_TEMPERATURE: 91}
    world.advance(60, polling=True)
    assert world.reasons == {"MemoryTemperature"}


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
    """Replays: x16 at generation 5 allows 1.92 per lane and minute, so 7.68 in 15 s."""
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
    """Slow down for half of each minute, ten minutes long."""
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
