"""Polls with real pynvml code over simulated nodes, and their schedule."""

import itertools
from typing import Any

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.nvml.events import GpuEvents
from agent.nvml.inventory import Absent, DriverGoneError
from agent.nvml.life import FAST_PERIODS, Schedule
from agent.nvml.messages import OF_EVERY_GPU, POLL_S
from agent.nvml.poller import Tier
from agent.nvml.reads import READS, topology
from hack.sim.driver import NODES, install, set_gpu, set_node
from hack.sim.driver.library import CALLS
from hack.sim.driver.numbers import SYMBOLS
from rules.catalog.signals import Signal
from tests.support.agent.nvml_collector import SIMULATED, Collector, on
from tests.support.scenario.examples import examples


@on(*SIMULATED)
@pytest.mark.parametrize("branch", [530, 535, 550, 565, 570, 575, 580, 590, 595, 610, 615])
def test_rows_are_not_used_below_their_driver_branch(collector, branch):
    set_node(collector.path, driver={"version": f"{branch}.1", "cuda": "12.0", "nvml": "1"})
    collector = Collector(collector.path)
    collector.sent.clear()
    values = collector.poll()
    too_new = {symbol for symbol, first in SYMBOLS.items() if first > branch}
    assert not too_new & set(collector.calls())
    unknown = [s for s, v in values.items() if v == Absent(2) or v == Absent(13)]
    assert unknown == []
    assert (Signal.RECOVERY_ACTION in values) is (branch >= 565)
    assert 20 <= values[Signal.TEMPERATURE] <= 50
    assert 5 < values[Signal.POWER] < 1100, "watts"


def test_signals_follow_the_node(collector):
    set_gpu(
        collector.path,
        3,
        temperature={"gpu": 91, "memory": 88, "margin": -4, "slowdown_margin": -2},
        ecc={
            "volatile": {"sram_uncorrected": 2, "dram_uncorrected": 1},
            "sram_threshold_exceeded": True,
        },
        remap={"uncorrectable": 8, "failure": True, "histogram": [639, 0, 0, 0, 1]},
        pcie={"width": 8, "replays": 5, "fatal": 1},
        nvlink={"count": 18, "down": [7], "crc": {3: 5, 4: 6}, "recoveries": {3: 1}},
        clock_events=["hw_thermal"],
        clock_event_nanoseconds={"hw_thermal": 7_000_000_000},
        fabric={"health_mask": 0xA9, "health_summary": 2},
        inforom={"valid": False},
        recovery_action=4,
    )
    values = collector.poll(3)
    expected = {
        Signal.TEMPERATURE: 91,
        Signal.MEMORY_TEMPERATURE: 88,
        Signal.THERMAL_MARGIN: -4,
        Signal.SLOWDOWN_MARGIN: -2,
        Signal.ECC_UNCORRECTED_VOLATILE: 3,
        Signal.DRAM_UNCORRECTED_VOLATILE: 1,
        Signal.SRAM_UNCORRECTED_VOLATILE: 2,
        Signal.SRAM_THRESHOLD_EXCEEDED: 1,
        Signal.REMAPPED_ROWS_UNCORRECTABLE: 8,
        Signal.REMAP_FAILURE: 1,
        Signal.REMAP_HISTOGRAM: (639, 0, 0, 0, 1),
        Signal.PCIE_WIDTH: 8,
        Signal.PCIE_WIDTH_MAX: 16,
        Signal.PCIE_REPLAYS: 5,
        Signal.PCIE_FATAL_ERRORS: 1,
        Signal.NVLINK_CRC_ERRORS: 11,
        Signal.NVLINK_RECOVERIES: 1,
        Signal.NVLINK_STATES: (*[1] * 7, 0, *[1] * 10),
        Signal.CLOCK_EVENT_REASONS: 0x40,
        Signal.HW_THERMAL_SLOWDOWN_TIME: 7_000_000_000,
        Signal.FABRIC_HEALTH_MASK: 0xA9,
        Signal.FABRIC_HEALTH_SUMMARY: 2,
        Signal.INFOROM_VALID: 0,
        Signal.RECOVERY_ACTION: 4,
    }
    assert {signal: values[signal] for signal in expected} == expected


NEWEST = {"version": "615.1", "cuda": "13.3", "nvml": "13.615.1"}
NEW_FACTS: list[tuple[Signal, int, Any, Any]] = [
    # signal, first branch, value from it on, value before (None: not read)
    (Signal.UNREPAIRABLE_MEMORY, 590, 1, None),
    (Signal.NVLINK_RAW_BER, 595, 3e-5, None),
    (Signal.NVLINK_RETRANSMITTED_BLOCKS, 595, 12, None),
    (Signal.FABRIC_HEALTH_MASK, 595, 0x20AA, 0xAA),
    (Signal.FABRIC_HEALTH_MASK, 615, 0xA0AA, 0x20AA),
    (Signal.BANK_REMAPS_ACTIVE, 615, 3, None),
    (Signal.BANK_REMAP_PENDING, 615, 1, None),
    (Signal.BANK_GROUPS_EXHAUSTED, 615, 2, None),
    (Signal.CLOCK_EVENT_REASONS, 615, 0x600, 0),
    (Signal.NVLINK_STATES, 615, (1, 3, *[1] * 16), (1,) * 18),
    (Signal.FABRIC_HEALTH_SUMMARY, 580, 3, None),
    (Signal.FABRIC_CLIQUE, 615, 7, 7),
]


@on("b200-8-nvlink5")
@pytest.mark.parametrize(("signal", "branch", "value", "before"), NEW_FACTS)
def test_a_fact_of_a_new_driver_is_read_from_its_branch_on(
    collector, signal, branch, value, before
):
    set_gpu(
        collector.path,
        3,
        repair={"unrepairable_memory": True},
        banks={"active": 3, "pending": True, "groups_exhausted": 2},
        clock_events=["board_limit", "reliability"],
        nvlink__raw_ber={5: 3 << 8 | 5, 6: 1 << 8 | 9},
        nvlink__retransmitted_blocks={5: 5, 6: 7},
        nvlink__traffic_disabled=[1],
        fabric__health_mask=0xA0AA,
        fabric__health_summary=3,
        fabric__clique=7,
    )
    for number, expected in ((branch, value), (branch - 5, before)):
        set_node(collector.path, driver={**NEWEST, "version": f"{number}.1"})
        found = Collector(collector.path).poll(3).get(signal)
        wanted = pytest.approx(expected) if isinstance(expected, float) else expected
        assert found == wanted, number


@on("gb200-4-nvl72")
@pytest.mark.parametrize(
    ("missing", "errors"),
    [
        ([], {}),
        (["nvmlDeviceGetGpuFabricInfo_v4"], {}),
        ([], {"nvmlDeviceGetGpuFabricInfo_v4": 3}),
        ([], {"nvmlDeviceGetGpuFabricInfo_v4": 25}),
    ],
    ids=["v4", "without the symbol", "not supported", "another version"],
)
def test_the_fabric_is_read_by_the_newest_version_that_there_is(collector, missing, errors):
    before = {s: v for s, v in collector.poll(0).items() if s.startswith("fabric")}
    set_node(collector.path, driver=NEWEST, missing=missing)
    set_gpu(collector.path, 0, errors=errors)
    collector = Collector(collector.path)
    values = collector.poll(0)
    assert {s: v for s, v in values.items() if s.startswith("fabric")} == {
        **before,
        Signal.FABRIC_HEALTH_MASK: 0x50AA,
    }
    assert not collector.faults()
    found = topology(collector.call, collector.gpus, collector.branch)
    assert found.cliques[0] == before[Signal.FABRIC_CLIQUE]
    assert found.clusters[0] == before[Signal.FABRIC_CLUSTER]


@on("h100-8-nvswitch")
def test_the_second_version_of_the_fabric_is_the_last_resort(collector):
    set_node(collector.path, driver={**NEWEST, "version": "570.1"})
    collector = Collector(collector.path)
    values = READS["fabric_v4"](collector.gpus[0].handle, 18)
    assert values[Signal.FABRIC_STATE] == 3
    assert Signal.FABRIC_HEALTH_SUMMARY not in values


@on("h100-8-mig")
def test_mig_hides_row_remapping_which_is_absent_and_not_zero(collector):
    split, complete = collector.poll(0, Tier.MEDIUM), collector.poll(4, Tier.MEDIUM)
    assert split[Signal.REMAP_FAILURE] == Absent(pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert complete[Signal.REMAP_FAILURE] == 0


@pytest.mark.parametrize(
    ("fault", "presence", "code"),
    [
        ({"lost": True}, "lost", 15),
        ({"unplugged": True}, "lost", 15),
        ({"reset_required": True}, "reset_required", 16),
    ],
    ids=["lost", "unplugged", "reset required"],
)
def test_a_broken_gpu_is_one_call_a_round_and_no_readings(collector, fault, presence, code):
    set_gpu(collector.path, 3, **fault)
    collector.sent.clear()
    assert collector.poll(3, Tier.FAST) == {Signal.PRESENCE: presence}
    assert collector.faults() == [
        ("nvmlDeviceGetFieldValues", code, collector.gpus[3].device.uuid)
    ]
    assert len(collector.calls()) == 1
    assert collector.poll(3, Tier.MEDIUM) == {}
    assert collector.poll(4, Tier.FAST)[Signal.PRESENCE] == "present"


def test_one_failing_field_of_the_batch_costs_that_field(collector):
    set_gpu(collector.path, 0, errors={"NVML_FI_DEV_REMAPPED_FAILURE": 999})
    values = collector.poll(0, Tier.MEDIUM)
    assert values[Signal.REMAP_FAILURE] == Absent(999)
    assert values[Signal.REMAP_PENDING] == 0


@pytest.mark.parametrize(
    "edit", [{"driver_restart": 1}, {"errors": {"nvmlDeviceGetFieldValues": 18}}]
)
def test_an_unloaded_driver_ends_the_child(collector, edit):
    set_node(collector.path, **edit)
    with pytest.raises(DriverGoneError) as gone:
        collector.poll(0, Tier.FAST)
    assert gone.value.fact.gpu == ""


CODES = (2, 3, 4, 6, 7, 10, 13, 14, 15, 16, 17, 20, 21, 25, 26, 27, 29, 999)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(CALLS)), st.sampled_from(CODES), max_size=6),
    st.sampled_from(SIMULATED),
)
def test_failing_calls_do_not_affect_other_readings(errors, node):
    path = NODES / f"{node}.yaml"
    with install(path) as driver:
        healthy = Collector(path).poll()
        # In memory only: the file does not change.
        driver.library.node.gpus[0].errors.update(errors)
        only_gpu = len(driver.library.node.gpus) == 1
        if only_gpu and errors.get("nvmlDeviceGetHandleByIndex_v2") in OF_EVERY_GPU:
            with pytest.raises(DriverGoneError):
                Collector(path)
            return
        collector = Collector(path)
        values = collector.poll()
        events = GpuEvents(collector.call, collector.branch)
        events.build(collector.gpus)
        joined = topology(collector.call, collector.gpus, collector.branch)
    assert len(collector.gpus) == len(joined.gpus)
    if errors.get("nvmlDeviceValidateInforom") == 14:
        healthy[Signal.INFOROM_VALID] = 0
    if values.pop(Signal.PRESENCE) != healthy.pop(Signal.PRESENCE):
        assert set(errors.values()) & {15, 16}
    read = {signal: value for signal, value in values.items() if not isinstance(value, Absent)}
    assert read == {signal: healthy[signal] for signal in read}


@on("h200-1")
def test_fields_that_the_driver_skips_in_a_batch_are_asked_again(collector):
    values = collector.poll(tier=Tier.MEDIUM)
    assert values[Signal.C2C_ERRORS] == Absent(3)
    assert values[Signal.POWER_LIMIT] == values[Signal.POWER_LIMIT_DEFAULT] == 700.0
    assert collector.poll(tier=Tier.MEDIUM, now=1.0)[Signal.POWER_LIMIT] == 700.0


def taken(schedule, now):
    found = []
    while (poll := schedule.take(now)) is not None:
        found.append(poll)
    return found


def timeline(schedule, start, seconds):
    """(time, GPU, tier) of every poll taken exactly when due."""
    found = []
    while (due := schedule.next_due()) is not None and due <= start + seconds:
        index, tier = schedule.take(due)
        found.append((due - start, index, tier))
    return found


def test_everything_is_read_once_at_start():
    schedule = Schedule(8, 100.0, 0.5)
    assert sorted(taken(schedule, 100.0)) == sorted((i, tier) for i in range(8) for tier in Tier)
    assert (schedule.next_due() or 0.0) > 100.0


@pytest.mark.parametrize("jitter", [0.0, 0.3, 0.999])
def test_each_tier_keeps_its_period_and_the_load_is_flat(jitter):
    schedule = Schedule(8, 0.0, jitter)
    taken(schedule, 0.0)
    polls = timeline(schedule, 0.0, 7200)
    for tier, periods in FAST_PERIODS.items():
        period = periods * POLL_S
        for gpu in range(8):
            times = [at for at, index, t in polls if (index, t) == (gpu, tier)]
            assert all(
                later - earlier == pytest.approx(period)
                for earlier, later in itertools.pairwise(times)
            )
            assert len(times) in (int(7200 / period), int(7200 / period) + 1)
    fast = [at for at, _, tier in polls if tier is Tier.FAST and at < 600]
    assert min(b - a for a, b in itertools.pairwise(fast)) == pytest.approx(15 / 8)


def test_a_faster_fast_tier_quickens_the_others_alike():
    schedule = Schedule(1, 0.0, 0.5, fast_s=1.5)
    taken(schedule, 0.0)
    polls = timeline(schedule, 0.0, 60)
    fast = [at for at, _, tier in polls if tier is Tier.FAST]
    medium = [at for at, _, tier in polls if tier is Tier.MEDIUM]
    assert (len(fast), len(medium)) == (40, 10)


def test_missed_periods_are_skipped_not_made_up_for():
    schedule = Schedule(1, 0.0, 0.0)
    taken(schedule, 0.0)
    assert sorted(taken(schedule, 1000.0)) == [(0, Tier.FAST), (0, Tier.MEDIUM)]
    assert 1000.0 < (schedule.next_due() or 0.0) <= 1015.0


def test_an_early_poll_is_at_least_a_second_after_the_last():
    schedule = Schedule(2, 0.0, 0.0)
    taken(schedule, 0.0)
    schedule.bring_forward(1, Tier.MEDIUM, 0.2)
    assert schedule.take(0.2) is None
    assert schedule.next_due() == 1.0
    assert taken(schedule, 1.0) == [(1, Tier.MEDIUM)]
    before = schedule.next_due()
    assert before is not None
    schedule.bring_forward(0, Tier.FAST, before + 100)
    assert schedule.next_due() == before, "never later than it was due anyway"
