"""What polling comes to mean: the recovery action, flags, counters, gauges, rates."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.incident import Incident
from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World


@pytest.fixture
def world() -> World:
    return World().start()


def reasons(world: World) -> set[str]:
    return {incident.row.reason for incident in world.active}


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
    assert world.says() == expected
    assert world.published().status.gpus[0].recovery_action


def test_draining_p2p_means_little_without_nvlink() -> None:
    world = World(switched=False).start()
    world.asked(3)
    assert world.says() == "Degraded Report DrainP2P"


def test_a_pushed_recovery_action_acts_at_once(world: World) -> None:
    world.asked(1)
    assert world.says() == "Fatal Drain ResetGPU"


def test_one_odd_poll_of_the_recovery_action_is_forgotten(world: World) -> None:
    world.readings(0, recovery_action=2)
    world.advance(15)
    world.readings(0, recovery_action=0)
    world.advance(60, polling=True)
    assert not world.incidents


def test_the_latest_recovery_action_wins(world: World) -> None:
    world.asked(4)
    world.asked(2)
    assert world.says() == "Fatal Drain RestartNode"


def test_polling_the_action_that_a_line_told_adds_no_incident(world: World) -> None:
    world.xid(95)
    world.action_line(1)
    world.will_read(0, recovery_action=1)
    world.advance(60, polling=True)
    assert world.says() == "Fatal Drain ResetGPU"


def test_a_row_remap_failure_takes_one_re_read_and_another_node(world: World) -> None:
    world.readings(0, remap_failure=1)
    assert not world.active
    world.advance(60)
    world.poll_one(0)
    assert world.says() == "Fatal Drain ReplaceNode"
    assert world.verdict().reason == "RowRemapFailure"


def test_64_with_the_failure_flag_asks_for_another_node(world: World) -> None:
    world.xid(64)
    assert world.says() == "Fatal Drain ResetGPU"
    world.will_read(0, remap_failure=1)
    world.advance(45, polling=True)
    assert world.says() == "Fatal Drain ReplaceNode"
    assert world.only().xids == (64,)


def test_a_pending_remap_alone_is_a_record(world: World) -> None:
    world.will_read(0, remap_pending=1)
    world.advance(60, polling=True)
    assert world.says() == "Info Report ResetGPU"
    assert world.verdict().health is Health.HEALTHY
    assert world.published().status.gpus[0].reset_pending


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
    assert world.verdict().health is Health.DEGRADED


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
    assert world.says() == "Degraded Report Investigate"
    assert world.verdict().reason == "ThermalSlowdown"
    assert "temperature_celsius=86" in str(world.active), "whoever reads it wants to know how hot"
    world.will_read(0, clock_event_reasons=0)
    world.advance(30, polling=True)
    assert world.active
    world.advance(15, polling=True)
    assert not world.active
    assert named(world, "ThermalSlowdown").closed_by == "State"


@pytest.mark.parametrize(
    ("reading", "value", "said"),
    [
        ("clock_event_reasons", 0x48, "(hardware slowdown, heat, in hardware)"),
        ("fabric_health_mask", 0x11, "(bandwidth degraded, route unhealthy)"),
    ],
)
def test_evidence_of_a_bit_mask_says_what_its_bits_mean(
    world: World, reading: str, value: int, said: str
) -> None:
    world.will_read(0, **{reading: value})
    world.advance(90, polling=True)
    assert any(f"{reading}={value:#x} {said}" in line for i in world.active for line in i.evidence)


def test_a_short_peak_is_no_slowdown(world: World) -> None:
    for _ in range(4):
        world.readings(0, clock_event_reasons=0x40)
        world.advance(15)
        world.readings(0, clock_event_reasons=0)
        world.advance(15)
        world.readings(0, clock_event_reasons=0)
        world.advance(15)
    assert not world.incidents


def test_power_capping_is_no_finding(world: World) -> None:
    world.will_read(0, clock_event_reasons=0x04)
    world.advance(300, polling=True)
    assert not world.incidents


def test_the_margin_has_hysteresis(world: World) -> None:
    world.values[0][Signal.THERMAL_MARGIN] = -2
    world.values[0][Signal.SLOWDOWN_MARGIN] = -2
    world.advance(60, polling=True)
    assert reasons(world) == {"TemperatureMargin"}
    world.values[0][Signal.THERMAL_MARGIN] = 0
    world.advance(300, polling=True)
    assert reasons(world) == {"TemperatureMargin"}
    world.values[0][Signal.THERMAL_MARGIN] = 12
    world.advance(60, polling=True)
    assert not world.active


def test_volatile_ecc_errors_stay_until_a_reset(world: World) -> None:
    world.will_read(0, ecc_uncorrected_volatile=2)
    world.advance(60, polling=True)
    assert reasons(world) == {"EccUncorrectableVolatile"}
    world.advance(3600, polling=True)
    assert reasons(world) == {"EccUncorrectableVolatile"}
    world.will_read(0, ecc_uncorrected_volatile=0)
    world.advance(60, polling=True)
    assert not world.active


@pytest.mark.parametrize(
    ("signal", "value", "reason"),
    [
        (Signal.SRAM_THRESHOLD_EXCEEDED, 1, "EccSramThreshold"),
        (Signal.RETIREMENT_PENDING, 1, "RetiredPagesPending"),
        (Signal.UNREPAIRABLE_MEMORY, 1, "MemoryUnrepairable"),
        (Signal.INFOROM_VALID, 0, "InfoRomCorrupt"),
        (Signal.REMAPPED_ROWS_UNCORRECTABLE, 512, "RowRemapMany"),
    ],
)
def test_flags_take_exactly_one_re_read(
    world: World, signal: Signal, value: int, reason: str
) -> None:
    world.values[0][signal] = value
    world.poll_one(0)
    assert not world.active
    world.advance(15)
    world.poll_one(0)
    assert reasons(world) == {reason}


def test_an_absent_value_is_neither_good_nor_bad(world: World) -> None:
    for signal in Signal:
        if signal is not Signal.PRESENCE:
            world.values[0][signal] = None
    world.advance(300, polling=True)
    assert not world.incidents
    assert world.verdict().health is Health.HEALTHY


def test_a_narrow_link_is_found(world: World) -> None:
    world.values[0] |= {Signal.PCIE_WIDTH: 8, Signal.PCIE_WIDTH_MAX: 16}
    world.advance(60, polling=True)
    assert reasons(world) == {"PCIeWidthDegraded"}


@pytest.mark.parametrize(
    ("use", "state", "found"),
    [(5, 0, False), (95, 0, True), (95, 2, True), (5, 2, False), (95, 5, False), (95, 8, False)],
)
def test_a_low_generation_counts_under_load_only(
    world: World, use: int, state: int, *, found: bool
) -> None:
    world.values[0] |= {
        Signal.PCIE_GENERATION: 1,
        Signal.PCIE_GENERATION_MAX: 5,
        Signal.UTILIZATION: use,
        Signal.PERFORMANCE_STATE: state,
    }
    world.advance(60, polling=True)
    assert [str(i.row.level) for i in world.active] == ["Report"] * found


def test_links_of_the_design_that_are_down_are_found(world: World) -> None:
    world.values[0][Signal.NVLINK_STATES] = (1,) * 18
    world.advance(60, polling=True)
    assert not world.active
    world.values[0][Signal.NVLINK_STATES] = (1,) * 16 + (0, 0)
    world.advance(60, polling=True)
    assert reasons(world) == {"NVLinkDown"}
    assert "2 of the design's links down (links 16, 17)" in str(world.active)


def test_with_mig_on_links_are_off_by_design(world: World) -> None:

    world.inventory[0] = replace(world.inventory[0], mig_mode=True, mig_instances=7)
    world.enumerate()
    world.values[0][Signal.NVLINK_STATES] = (0,) * 18
    world.advance(60, polling=True)
    assert not world.active


def grow(world: World, signal: Signal, per_poll: int, polls: int) -> None:
    for _ in range(polls):
        value = world.values[0].get(signal, 0)
        assert isinstance(value, int)
        world.values[0][signal] = value + per_poll
        world.advance(15, polling=True)


def test_a_rate_of_link_errors_is_found(world: World) -> None:
    grow(world, Signal.NVLINK_CRC_ERRORS, 3000, 6)
    assert reasons(world) == {"NVLinkErrorRate"}


def test_a_large_first_value_is_no_rate(world: World) -> None:
    world.values[0][Signal.NVLINK_CRC_ERRORS] = 10**9
    world.advance(300, polling=True)
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


def test_domain_findings_report_only() -> None:
    world = World(4, driver="580.1", architecture=10).start()
    for gpu in range(4):
        world.values[gpu][Signal.FABRIC_HEALTH_SUMMARY] = 3
    world.advance(120, polling=True)
    assert {(i.row.level, i.scope) for i in world.active} == {("Report", "Domain")}
    assert world.verdict().health is Health.DEGRADED


def test_without_nvml_dcgm_exporter_is_the_source() -> None:
    world = World(nvml=False).start()
    page = {f"GPU-{n}": {Signal.REMAP_FAILURE: 0} for n in range(8)}
    world.dcgm(page)
    assert world.verdict().health is Health.HEALTHY
    page["GPU-3"] = {Signal.REMAP_FAILURE: 1}
    for _ in range(2):
        world.advance(15)
        world.dcgm(page)
    assert world.says() == "Fatal Drain ReplaceNode"
    world.source(SourceName.DCGM, SourceState.DOWN, "Refused")
    assert world.verdict().health is Health.UNHEALTHY


def test_without_nvml_a_gpu_that_vanishes_from_page_and_bus_is_lost() -> None:
    world = World(nvml=False).start()
    page = {gpu.uuid: {Signal.TEMPERATURE: 40} for gpu in world.inventory}
    addresses = {gpu.uuid: gpu.pci for gpu in world.inventory}
    world.dcgm(page, pci=addresses)
    del page[world.inventory[3].uuid]
    world.config_space[3] = False
    for _ in range(3):
        world.advance(15)
        world.dcgm(page, pci=addresses)
        world.look_at_pci()
    assert [i.gpus for i in world.active if i.row.reason == "GPULost"] == [
        (world.inventory[3].uuid,)
    ]


def test_without_nvml_a_series_that_vanishes_alone_is_degraded() -> None:
    world = World(nvml=False).start()
    page = {gpu.uuid: {Signal.TEMPERATURE: 40} for gpu in world.inventory}
    world.dcgm(page)
    del page[world.inventory[3].uuid]
    for _ in range(3):
        world.advance(15)
        world.dcgm(page)
    assert world.says() == "Degraded Report Investigate"


def test_a_failing_exporter_without_nvml_is_unknown_never_a_drain() -> None:
    world = World(nvml=False).start()
    world.dcgm({"GPU-0": {}})
    world.source(SourceName.DCGM, SourceState.DOWN)
    assert world.verdict().health is Health.UNKNOWN
    assert not world.active


def test_beside_nvml_dcgm_exporter_is_compared_not_believed(world: World) -> None:
    page = {gpu.uuid: {Signal.REMAP_FAILURE: 1} for gpu in world.inventory}
    for _ in range(5):
        world.dcgm(page)
        world.advance(15)
    assert not world.active
    del page[world.inventory[7].uuid]
    world.dcgm(page)
    view = world.state.sources[SourceName.DCGM]
    assert (view.state, view.reason) == (SourceState.UP, "DiffersFromNVML")


def test_a_page_of_another_node_is_refused(world: World) -> None:
    world.dcgm({"GPU-of-somebody-else": {}})
    view = world.state.sources[SourceName.DCGM]
    assert (view.state, view.reason) == (SourceState.DOWN, "ForeignPage")


def test_a_sticky_xid_is_no_event_but_its_change_is() -> None:
    world = World(nvml=False)
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 79})
    world.advance(30)
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 79})
    assert not world.incidents
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 95})
    assert world.says() == "Fatal Drain ResetGPU"


def test_a_lower_xid_of_another_mig_instance_is_an_event_too() -> None:
    world = World(nvml=False)
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.dcgm({"GPU-0": {}}, instance_xids={("GPU-0", 1): 94, ("GPU-0", 2): 0})
    world.dcgm({"GPU-0": {}}, instance_xids={("GPU-0", 1): 94, ("GPU-0", 2): 79})
    assert world.only().xids == (79,)
    mig = world.published().status.incidents[0].mig
    assert mig is not None
    assert mig.gi == 2
