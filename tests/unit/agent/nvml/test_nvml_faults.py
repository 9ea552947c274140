"""From the node's description through pynvml and the poller to the incident, for each polled
fault.
"""

from typing import Any

import pytest

from hack.sim.driver import set_gpu, set_node
from tests.support.agent.nvml_collector import SIMULATED, Collector, Judged, on, polled

H100, B200, T4, GB200 = "h100-8-nvswitch", "b200-8-nvlink5", "t4-1", "gb200-4-nvl72"
NEWEST = {"version": "615.1", "cuda": "13.3", "nvml": "13.615.1"}
A100 = "a100-4-partial-nvlink"
R610 = {"version": "610.1", "cuda": "13.2", "nvml": "13.610.1"}
R570 = {"version": "570.1", "cuda": "12.8", "nvml": "12.570.1"}

FAULTS: list[tuple[str, dict[str, Any] | None, dict[str, Any], str]] = [
    # node, driver, edit of one GPU, what is found
    (H100, None, {"remap__failure": True}, "RowRemapFailure Fatal Drain"),
    (H100, None, {"remap__pending": True}, "RowRemapPending Info Report"),
    (H100, None, {"remap__histogram": [639, 0, 0, 0, 1]}, "MemorySparesExhausted Degraded Report"),
    (H100, None, {"remap__histogram": [0, 0, 0, 640, 0]}, ""),
    (H100, None, {"remap__uncorrectable": 512}, "RowRemapMany Degraded Report"),
    (H100, None, {"repair__channel_pending": True}, "RepairPending Info Report"),
    (H100, None, {"repair__tpc_pending": True}, "RepairPending Info Report"),
    (H100, R570, {"repair__tpc_pending": True}, ""),
    (H100, NEWEST, {"repair__unrepairable_memory": True}, "MemoryUnrepairable Fatal Drain"),
    (H100, None, {"repair__unrepairable_memory": True}, ""),
    (B200, NEWEST, {"banks__groups_exhausted": 1}, "MemorySparesExhausted Degraded Report"),
    (B200, NEWEST, {"banks__pending": True}, "RowRemapPending Info Report"),
    (B200, None, {"banks__groups_exhausted": 1}, ""),
    (T4, None, {"retired_pages__pending": True}, "RetiredPagesPending Degraded Report"),
    (T4, None, {"retired_pages__double_bit": 63}, "RetiredPagesMany Degraded Report"),
    (H100, None, {"ecc": {"sram_threshold_exceeded": True}}, "EccSramThreshold Degraded Cordon"),
    (
        H100,
        None,
        {"ecc": {"volatile": {"dram_uncorrected": 1}}},
        "EccUncorrectableVolatile Degraded Report",
    ),
    (H100, None, {"temperature__memory": 95}, "MemoryTemperature Degraded Report"),
    (H100, None, {"temperature__memory": 94}, ""),
    (
        H100,
        None,
        {"temperature__gpu": 89, "temperature__margin": -2},
        "TemperatureMargin Degraded Report",
    ),
    (H100, None, {"temperature__margin": -2}, ""),
    (B200, None, {"nvlink__effective_ber": {3: 1 << 8 | 9}}, "NVLinkBitErrors Degraded Report"),
    (B200, None, {"nvlink__symbol_ber": {3: 2 << 8 | 12}}, "NVLinkBitErrors Degraded Report"),
    (B200, None, {"nvlink__effective_ber": {3: 0xFFF, 4: 5 << 8 | 15}}, ""),
    (H100, None, {"clock_events": ["hw_thermal"]}, "ThermalSlowdown Degraded Report"),
    (H100, None, {"clock_events": ["power_brake"]}, "PowerBrake Degraded Report"),
    (H100, None, {"clock_events": ["sw_power_cap"]}, ""),
    (H100, NEWEST, {"clock_events": ["reliability"]}, "ReliabilitySlowdown Degraded Report"),
    (H100, NEWEST, {"clock_events": ["board_limit"]}, ""),
    (H100, R610, {"clock_events": ["reliability"]}, ""),
    (H100, None, {"pcie__width": 4}, "PCIeWidthDegraded Degraded Report"),
    (H100, None, {"nvlink__down": [7]}, "NVLinkDown Degraded Cordon"),
    (B200, NEWEST, {"nvlink__traffic_disabled": [7]}, "NVLinkTrafficDisabled Degraded Report"),
    (B200, R610, {"nvlink__traffic_disabled": [7]}, ""),
    (B200, NEWEST, {"nvlink__raw_ber": {3: 9 << 8 | 4}}, ""),
    (GB200, None, {"c2c__states": [1, 1, 0, 1, 1]}, "C2CLinkDown Degraded Report"),
    (GB200, None, {"c2c__states": [0, 0, 0, 0, 0]}, ""),
    (H100, None, {"fabric__health_summary": 3}, "FabricDegraded Degraded Report"),
    (H100, R570, {"fabric__health_mask": 0xA9}, "FabricDegraded Degraded Report"),
    (GB200, NEWEST, {"fabric__health_mask": 0x90AA}, "FabricManagerDisconnected Degraded Report"),
    (GB200, NEWEST, {"fabric__health_mask": 0x60AA}, "FabricPartitionUnassigned Degraded Report"),
    (GB200, R610, {"fabric__health_mask": 0x90AA}, ""),
    (GB200, R570, {"fabric__health_mask": 0xA0AA}, ""),
    (H100, NEWEST, {"fabric__health_summary": 2}, "FabricDegraded Degraded Report"),
    (H100, None, {"fabric__state": 1}, "FabricStateFailed Degraded Cordon"),
    (H100, None, {"inforom": {"valid": False}}, "InfoRomCorrupt Degraded Report"),
    (H100, None, {"recovery_action": 1}, "RecoveryActionResetGPU Fatal Drain"),
    (H100, None, {"recovery_action": 4}, "RecoveryActionDrainAndReset Degraded Cordon"),
    (H100, NEWEST, {"recovery_action": 6}, "RecoveryActionBusReset Fatal Drain"),
    (H100, NEWEST, {"recovery_action": 7}, "RecoveryActionSystemReboot Fatal Drain"),
]
GROWING = [
    (H100, "pcie__replays", 200, "PCIeReplayRate Degraded Report"),
    (H100, "pcie__replays", 5, ""),
    (H100, "nvlink__crc", {3: 3000}, "NVLinkErrorRate Degraded Report"),
    (B200, "nvlink__recoveries", {3: 2}, "NVLinkErrorRate Degraded Report"),
    (B200, "nvlink__receive_errors", {3: 2}, "NVLinkErrorRate Degraded Report"),
    (B200, "nvlink__malformed", {3: 2}, "NVLinkErrorRate Degraded Report"),
    (B200, "nvlink__dropped", {3: 2}, "NVLinkErrorRate Degraded Report"),
    (B200, "nvlink__remote_errors", {3: 2}, "NVLinkErrorRate Degraded Report"),
    (A100, "nvlink__crc_data", {3: 3000}, "NVLinkErrorRate Degraded Report"),
    (B200, "nvlink__symbol_errors", {3: 5000}, ""),
    (GB200, "c2c__errors", 3000, "C2CErrorRate Degraded Report"),
    (GB200, "c2c__errors", 10, ""),
    (
        H100,
        "clock_event_nanoseconds",
        {"hw_thermal": 8_000_000_000},
        "ThermalSlowdown Degraded Report",
    ),
    (H100, "clock_event_nanoseconds", {"hw_thermal": 500_000_000}, ""),
    (
        H100,
        "clock_event_nanoseconds",
        {"power_brake": 8_000_000_000},
        "PowerBrake Degraded Report",
    ),
]


def found_on(collector, judged, gpu):
    """Reason, severity and level of each active incident; all are about that GPU."""
    active = [i for i in judged.judgement.state.incidents if i.active]
    assert {gpu for i in active for gpu in i.gpus} <= {collector.gpus[gpu].device.uuid}
    return {f"{i.row.reason} {i.row.severity} {i.row.level}" for i in active}


@on(*SIMULATED)
def test_every_shipped_node_is_judged_healthy(collector):
    judged = Judged(collector.path)
    polled(collector, judged, rounds=6)
    assert judged.health() == ("Healthy", "AllChecksPassing")
    assert judged.findings() == set()


@pytest.mark.parametrize(
    ("collector", "driver", "edit", "expected"),
    FAULTS,
    indirect=["collector"],
    ids=[
        f"{node}-{(driver or {}).get('version', '')}-{next(iter(edit))}-{expected.split(' ')[0]}"
        for node, driver, edit, expected in FAULTS
    ],
)
def test_a_fault_of_the_node_becomes_its_incident(collector, driver, edit, expected):
    if driver is not None:
        set_node(collector.path, driver=driver)
        collector = Collector(collector.path)
    judged = Judged(collector.path)
    # Longer runs of the shipped nodes are tested above.
    polled(collector, judged, rounds=4 if driver else 1)
    assert judged.findings() == set(), "healthy before"
    gpu = min(3, len(collector.gpus) - 1)
    set_gpu(collector.path, gpu, **edit)
    polled(collector, judged)
    assert found_on(collector, judged, gpu) == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("collector", "field", "step", "expected"),
    GROWING,
    indirect=["collector"],
    ids=[f"{node}-{field}-{expected.split(' ')[0]}" for node, field, _, expected in GROWING],
)
def test_a_counter_that_grows_too_fast_becomes_its_incident(collector, field, step, expected):
    judged = Judged(collector.path)

    def grow(number):
        value = (
            {key: each * number for key, each in step.items()}
            if isinstance(step, dict)
            else step * number
        )
        set_gpu(collector.path, 3, **{field: value})

    polled(collector, judged, rounds=8, before_each=grow)
    assert found_on(collector, judged, 3) == ({expected} if expected else set())
