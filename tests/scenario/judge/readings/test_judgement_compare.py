"""Without NVML, the same checks apply to the page of dcgm-exporter."""

from collections.abc import Callable

import pytest

from agent.sources.dcgm import read_page
from rules.catalog.reasons import REASONS
from rules.catalog.signals import Signal, signal_table
from rules.judge.facts.checks import FLAGS, GAUGES
from rules.judge.health_status import Health
from tests.support.scenario.judgement_world import World, pci, uuid

PAGE_EVERY_S = 15

ONE: dict[str, Callable[[int, int], dict[str, float]]] = {
    "RowRemapFailure": lambda bad, _: {"ROW_REMAP_FAILED": bad},
    "RowRemapPending": lambda bad, _: {"ROW_REMAP_PENDING": bad},
    "RowRemapMany": lambda bad, _: {"ROW_REMAP_UNCORRECTABLE_TOTAL": bad * 512},
    "EccUncorrectableVolatile": lambda bad, _: {"ECC_DBE_VOL_TOTAL": bad},
    "EccSramThreshold": lambda bad, _: {"SRAM_EXCEEDED": bad},
    "RetiredPagesPending": lambda bad, _: {"PAGE_RETIRED_PENDING": bad},
    "RetiredPagesMany": lambda bad, _: {"PAGE_RETIRED_DBE_TOTAL": bad * 63},
    "MemoryUnrepairable": lambda bad, _: {"MEMORY_UNREPAIRABLE": bad},
    "MemorySparesExhausted": lambda bad, _: {"BANK_REMAP_AVAIL_NONE": bad},
    "InfoRomCorrupt": lambda bad, _: {"INFOROM_VALID": 1 - bad},
    "ThermalSlowdown": lambda bad, _: {"CLOCKS_EVENT_REASONS": bad * 0x40},
    "PowerBrake": lambda bad, _: {"CLOCKS_EVENT_REASONS": bad * 0x80},
    "HardwareSlowdown": lambda bad, _: {"CLOCKS_EVENT_REASONS": bad * 0x08},
    "ReliabilitySlowdown": lambda bad, _: {"CLOCKS_EVENT_REASONS": bad * 0x400},
    "TemperatureMargin": lambda bad, _: {"GPU_TEMP_MARGIN_CELSIUS": 30 - bad * 31},
    "MemoryTemperature": lambda bad, _: {
        "MEMORY_TEMP_CELSIUS": 40 + bad * 60,
        "MEMORY_MAX_OP_TEMP_CELSIUS": 95,
    },
    "PCIeWidthDegraded": lambda bad, _: {
        "PCIE_LINK_WIDTH": 16 - bad * 8,
        "PCIE_MAX_LINK_WIDTH": 16,
    },
    "PCIeGenDegraded": lambda bad, _: {
        "PCIE_LINK_GEN": 5 - bad * 4,
        "PCIE_MAX_LINK_GEN": 5,
        "GPU_UTIL_RATIO": 0.9,
        "GPU_PSTATE": 0,
    },
    "PCIeReplayRate": lambda bad, n: {
        "PCIE_REPLAY_TOTAL": bad * n * 100,
        "PCIE_LINK_GEN": 5,
        "PCIE_LINK_WIDTH": 16,
    },
    "NVLinkRecoveryFailed": lambda bad, _: {"NVLINK_RECOVERY_FAILED_TOTAL": bad},
    "NVLinkErrorRate": lambda bad, n: {"NVLINK_CRC_ERROR_TOTAL": bad * n * 5000},
    "NVLinkBitErrors": lambda bad, _: {"NVLINK_SYMBOL_BER_RAW": (1 << 8 | 9) if bad else 0xFFF},
    "C2CErrorRate": lambda bad, n: {"C2C_LINK_ERROR_INTR": bad * n * 5000},
    "FabricStateFailed": lambda bad, _: {"FABRIC_MANAGER_STATUS": 3 + bad},
    "PowerLimitLow": lambda bad, _: {
        "BOARD_POWER_LIMIT_ENFORCED_WATTS": 700 - 350 * bad,
        "BOARD_POWER_LIMIT_DEFAULT_WATTS": 700,
    },
    "FabricRegistrationPending": lambda bad, _: {"FABRIC_MANAGER_STATUS": 3 - bad},
    "FabricDegraded": lambda bad, _: {"FABRIC_HEALTH_MASK": 0xAA - bad},
    "FabricManagerDisconnected": lambda bad, _: {"FABRIC_HEALTH_MASK": 0x40AA + bad * 0x4000},
    "FabricPartitionUnassigned": lambda bad, _: {"FABRIC_HEALTH_MASK": 0x10AA + bad * 0x1000},
}
"""The series of each check: fields without their prefix, `bad` 0 or 1, `n` the page's number."""

NOT_EXPORTED = {
    "NVLinkDown",
    "NVLinkStateUnknown",
    "NVLinkTrafficDisabled",
    "C2CLinkDown",
    "RepairPending",
}
"""Checks without a series in dcgm-exporter: absent, never good."""


def page_of(reason: str, *, bad: int, count: int, old: bool) -> str:
    """A page of 8 GPUs, of which GPU 3 is bad, in the new or the old spelling."""
    older = {info.dcgm[0]: info.dcgm[-1] for info in signal_table().values() if info.dcgm}
    lines = []
    for gpu in range(8):
        for name, number in ONE[reason](bad if gpu == 3 else 0, count).items():
            field = f"DCGM_FI_DEV_{name}"
            if old:
                field = older.get(field, field)
                number = number * 100 if name.endswith("_RATIO") else number
            label = f'gpu="{gpu}",UUID="{uuid(gpu)}",pci_bus_id="0000{pci(gpu).upper()}.0"'
            lines.append(f"{field}{{{label}}} {number}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("old", [False, True], ids=["4.6", "before 4.6"])
@pytest.mark.parametrize("reason", sorted(ONE))
def test_without_nvml_the_page_is_judged_by_the_same_judges(reason: str, *, old: bool) -> None:
    world = World(nvml=False).start()
    for count in range(10):
        world.advance(PAGE_EVERY_S)
        world.poll_pci()
        seen, bad_lines = read_page(page_of(reason, bad=0, count=count, old=old), world.now)
        assert bad_lines == 0
        world.see(seen)
    assert not world.incidents
    for count in range(10, 20):
        world.advance(PAGE_EVERY_S)
        world.poll_pci()
        seen, _ = read_page(page_of(reason, bad=1, count=count, old=old), world.now)
        world.see(seen)
    incident = world.only()
    row = REASONS[reason]
    assert (incident.row.reason, incident.row.severity) == (reason, row.severity)
    assert incident.gpus == (uuid(3),)
    assert incident.sources == ("dcgm-exporter",)


def test_every_check_is_either_fed_by_the_page_or_known_to_be_absent() -> None:
    checks = {check.reason for check in (*FLAGS, *GAUGES)}
    assert checks == set(ONE) | NOT_EXPORTED


def test_a_page_with_only_temperatures_is_not_all_checks_pass() -> None:
    world = World(nvml=False).start()
    page = "".join(
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",UUID="{uuid(gpu)}"}} 40\n' for gpu in range(8)
    )
    seen, _ = read_page(page, world.now)
    world.see(seen)
    judged = world.assessment()
    assert (judged.health, judged.reason) == (Health.UNKNOWN, "TooLittleSeen")
    assert judged.gpus_healthy is None
    assert set(world.state.gpus[uuid(0)].values) == {Signal.TEMPERATURE}
