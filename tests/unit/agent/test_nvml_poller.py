"""Enumeration, topology and polls: real pynvml code over simulated nodes, in this process."""

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.nvml.caller import Caller, DriverGoneError
from agent.nvml.events import GpuEvents, SystemEvents
from agent.nvml.inventory import (
    driver_branch,
    enumerate_gpus,
    excluded,
    normal_pci,
    virtualization,
)
from agent.nvml.messages import Absent, Calling, EventKind, Fault, Tier
from agent.nvml.poller import Poller
from agent.nvml.topology import topology
from hack.sim.driver import NODES, install, push_event, set_gpu, set_node
from hack.sim.driver.library import CALLS
from hack.sim.driver.since import SYMBOLS
from rules.signals import Signal

SIMULATED = sorted(path.stem for path in NODES.glob("*.yaml"))


class Sense:
    """What the child does, step by step: enumerate, poll, wait; and what it said on the way."""

    def __init__(self, path):
        pynvml.nvmlInit()
        self.path = path
        self.said = []
        self.call = Caller(self.said.append)
        self.branch = driver_branch(pynvml.nvmlSystemGetDriverVersion())
        self.gpus = enumerate_gpus(self.call, [])
        self.poller = Poller(self.call, self.branch)

    def poll(self, gpu=0, tier=None, now=0.0):
        """The readings of one tier, or of all together."""
        tiers = Tier if tier is None else [tier]
        values = {}
        for one in tiers:
            values |= self.poller.poll(self.gpus[gpu], one, now).values
        return values

    def calls(self):
        return [message.call for message in self.said if isinstance(message, Calling)]

    def faults(self):
        return [(m.call, m.code, m.gpu) for m in self.said if isinstance(m, Fault)]


@pytest.fixture
def sense(tmp_path, request):
    node = getattr(request, "param", "h100-8-nvswitch")
    path = tmp_path / "node.yaml"
    path.write_bytes((NODES / f"{node}.yaml").read_bytes())
    with install(path):
        yield Sense(path)


def on(*nodes):
    return pytest.mark.parametrize("sense", nodes, indirect=True)


def test_the_inventory_of_a_gpu(sense):
    device = sense.gpus[3].device
    assert (device.index, device.uuid) == (3, "GPU-6f2a1d33-8c1e-4b57-9f60-0a41c2d7e103")
    assert (device.pci, device.serial) == ("0000:61:00.0", "1654023010004")
    assert (device.product, device.vbios) == ("NVIDIA H100 80GB HBM3", "96.00.A5.00.01")
    assert (device.architecture, device.module_id, device.minor) == (9, 1, 3)
    assert (device.numa, device.links, device.mig_mode) == (0, 18, False)
    assert sense.gpus[5].device.numa == 1


@on("h100-8-mig")
def test_mig_is_counted(sense):
    found = [(gpu.device.mig_mode, gpu.device.mig_instances) for gpu in sense.gpus[:4]]
    assert found == [(True, 3), (True, 7), (True, 0), (False, 0)]


@pytest.mark.parametrize(
    ("sense", "row", "remote", "clique"),
    [
        ("h100-8-nvswitch", ["X", *["NV18"] * 7], ["switch"] * 18, 0),
        ("b200-8-nvlink5", ["X", *["NV18"] * 7], ["switch"] * 18, 0),
        ("a100-4-partial-nvlink", ["X", "NV12", "SYS", "SYS"], ["gpu"] * 12, None),
        ("l40s-8-pcie", ["X", "PIX", "PXB", "PHB", *["SYS"] * 4], [], None),
        ("t4-1", ["X"], [], None),
    ],
    indirect=["sense"],
)
def test_topology_is_spelled_as_nvidia_smi_does(sense, row, remote, clique):
    found = topology(sense.call, sense.gpus, sense.branch)
    assert found.links[0] == row
    assert [line[i] for i, line in enumerate(found.links)] == ["X"] * len(row)
    assert found.remote[0] == remote
    assert found.cliques[0] == clique
    assert found.clusters[0] == ""


def test_topology_does_not_change_when_a_link_is_down(sense):
    before = topology(sense.call, sense.gpus, sense.branch)
    set_gpu(sense.path, 3, nvlink__down=[0, 7], nvlink__count=18)
    assert topology(sense.call, sense.gpus, sense.branch) == before


@on("h100-8-nvswitch")
def test_a_cluster_is_named_when_there_is_one(sense):
    set_gpu(sense.path, 0, fabric={"cluster": "11223344-5566-7788-99aa-bbccddeeff00", "clique": 7})
    found = topology(sense.call, sense.gpus, sense.branch)
    assert (found.clusters[0], found.cliques[0]) == ("11223344-5566-7788-99aa-bbccddeeff00", 7)


@on(*SIMULATED)
def test_a_healthy_node_of_every_kind_reads_healthy(sense):
    for gpu in range(len(sense.gpus)):
        values = sense.poll(gpu)
        assert values[Signal.PRESENCE] == "present"
        assert values[Signal.INFOROM_VALID] == 1
        assert 20 <= values[Signal.TEMPERATURE] <= 50
        assert values[Signal.ECC_UNCORRECTED_VOLATILE] == 0
        assert values[Signal.POWER] == pytest.approx(sense_watts(sense, gpu))
        for signal in (Signal.RECOVERY_ACTION, Signal.REMAP_FAILURE, Signal.RETIREMENT_PENDING):
            assert values.get(signal, 0) in (0, Absent(3))
        assert set(values.get(Signal.NVLINK_STATES, [1])) == {1}
    assert sense.faults() == []


def sense_watts(sense, gpu):
    return pynvml.nvmlDeviceGetPowerUsage(sense.gpus[gpu].handle) / 1000


@on(*SIMULATED)
@pytest.mark.parametrize("branch", [530, 535, 550, 565, 570, 575, 580, 590, 615])
def test_nothing_is_asked_below_its_branch(sense, branch):
    set_node(sense.path, driver={"version": f"{branch}.1", "cuda": "12.0", "nvml": "1"})
    sense = Sense(sense.path)
    sense.said.clear()
    values = sense.poll()
    too_new = {symbol for symbol, first in SYMBOLS.items() if first > branch}
    assert not too_new & set(sense.calls())
    unknown = [s for s, v in values.items() if v == Absent(2) or v == Absent(13)]
    assert unknown == []
    assert (Signal.RECOVERY_ACTION in values) is (branch >= 565)
    assert isinstance(values[Signal.TEMPERATURE], int)


def test_signals_follow_the_node(sense):
    set_gpu(
        sense.path,
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
    values = sense.poll(3)
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
        Signal.REMAP_HISTOGRAM: [639, 0, 0, 0, 1],
        Signal.PCIE_WIDTH: 8,
        Signal.PCIE_WIDTH_MAX: 16,
        Signal.PCIE_REPLAYS: 5,
        Signal.PCIE_FATAL_ERRORS: 1,
        Signal.NVLINK_CRC_ERRORS: 11,
        Signal.NVLINK_RECOVERIES: 1,
        Signal.NVLINK_STATES: [*[1] * 7, 0, *[1] * 10],
        Signal.CLOCK_EVENT_REASONS: 0x40,
        Signal.HW_THERMAL_SLOWDOWN_TIME: 7_000_000_000,
        Signal.FABRIC_HEALTH_MASK: 0xA9,
        Signal.FABRIC_HEALTH_SUMMARY: 2,
        Signal.INFOROM_VALID: 0,
        Signal.RECOVERY_ACTION: 4,
    }
    assert {signal: values[signal] for signal in expected} == expected


@on("b200-8-nvlink5")
def test_nvlink5_counts_packets_and_symbols(sense):
    set_gpu(
        sense.path,
        0,
        nvlink__receive_errors={2: 3},
        nvlink__recoveries_failed={2: 1},
        nvlink__symbol_errors={1: 10, 2: 20},
        nvlink__count=18,
    )
    values = sense.poll(0, Tier.MEDIUM)
    assert values[Signal.NVLINK_RECEIVE_ERRORS] == 3
    assert values[Signal.NVLINK_RECOVERIES_FAILED] == 1
    assert values[Signal.NVLINK_SYMBOL_ERRORS] == 30
    assert Signal.NVLINK_CRC_ERRORS not in values


@on("t4-1")
def test_turing_retires_pages(sense):
    set_gpu(sense.path, 0, retired_pages={"double_bit": 61, "pending": True})
    values = sense.poll(0, Tier.MEDIUM)
    assert values[Signal.RETIRED_PAGES_DOUBLE_BIT] == 61
    assert values[Signal.RETIREMENT_PENDING] == 1
    assert Signal.REMAP_FAILURE not in values


@on("h100-8-mig")
def test_mig_hides_row_remapping_which_is_absent_and_not_zero(sense):
    split, whole = sense.poll(0, Tier.MEDIUM), sense.poll(4, Tier.MEDIUM)
    assert split[Signal.REMAP_FAILURE] == Absent(pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert whole[Signal.REMAP_FAILURE] == 0


@pytest.mark.parametrize(
    ("fault", "word", "code"),
    [
        ({"lost": True}, "lost", 15),
        ({"unplugged": True}, "lost", 15),
        ({"reset_required": True}, "reset_required", 16),
    ],
    ids=["lost", "unplugged", "reset required"],
)
def test_a_broken_gpu_is_one_call_a_round_and_no_readings(sense, fault, word, code):
    set_gpu(sense.path, 3, **fault)
    sense.said.clear()
    assert sense.poll(3, Tier.FAST) == {Signal.PRESENCE: word}
    assert sense.faults() == [("nvmlDeviceGetFieldValues", code, sense.gpus[3].device.uuid)]
    assert len(sense.calls()) == 1
    assert sense.poll(3, Tier.MEDIUM) == {}
    assert sense.poll(4, Tier.FAST)[Signal.PRESENCE] == "present"


def test_what_a_gpu_does_not_have_is_not_asked_for_an_hour(sense):
    set_gpu(sense.path, 0, errors={"nvmlDeviceGetMarginTemperature": 3})
    first = sense.poll(0, Tier.FAST, now=0.0)
    sense.said.clear()
    second = sense.poll(0, Tier.FAST, now=15.0)
    assert first[Signal.THERMAL_MARGIN] == second[Signal.THERMAL_MARGIN] == Absent(3)
    assert "nvmlDeviceGetMarginTemperature" not in sense.calls()
    set_gpu(sense.path, 0, errors={})
    assert sense.poll(0, Tier.FAST, now=3601.0)[Signal.THERMAL_MARGIN] == 51


@pytest.mark.parametrize("code", [6, 10, 27])
def test_what_is_not_there_right_now_is_asked_again_next_time(sense, code):
    set_gpu(sense.path, 0, errors={"nvmlDeviceGetMarginTemperature": code})
    assert sense.poll(0, Tier.FAST)[Signal.THERMAL_MARGIN] == Absent(code)
    set_gpu(sense.path, 0, errors={})
    assert sense.poll(0, Tier.FAST, now=15.0)[Signal.THERMAL_MARGIN] == 51


def test_an_unknown_error_of_one_call_costs_that_reading_only_and_is_told(sense):
    set_gpu(sense.path, 0, errors={"nvmlDeviceGetMarginTemperature": 999})
    values = sense.poll(0, Tier.FAST)
    assert values[Signal.THERMAL_MARGIN] == Absent(999)
    assert values[Signal.TEMPERATURE] == 36
    assert sense.faults() == [("nvmlDeviceGetMarginTemperature", 999, sense.gpus[0].device.uuid)]


def test_one_failing_field_of_the_batch_costs_that_field(sense):
    set_gpu(sense.path, 0, errors={"NVML_FI_DEV_REMAPPED_FAILURE": 999})
    values = sense.poll(0, Tier.MEDIUM)
    assert values[Signal.REMAP_FAILURE] == Absent(999)
    assert values[Signal.REMAP_PENDING] == 0


@pytest.mark.parametrize(
    "edit", [{"driver_restart": 1}, {"errors": {"nvmlDeviceGetFieldValues": 18}}]
)
def test_a_driver_that_went_away_ends_the_process(sense, edit):
    set_node(sense.path, **edit)
    with pytest.raises(DriverGoneError) as gone:
        sense.poll(0, Tier.FAST)
    assert gone.value.fault.gpu == ""


CODES = (2, 3, 4, 6, 7, 10, 13, 14, 15, 16, 17, 20, 21, 25, 26, 27, 29, 999)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(CALLS)), st.sampled_from(CODES), max_size=6),
    st.sampled_from(SIMULATED),
)
def test_whatever_calls_fail_the_rest_is_read_and_nothing_is_made_up(errors, node):
    path = NODES / f"{node}.yaml"
    with install(path) as driver:
        healthy = Sense(path).poll()
        # In memory only: the shipped file stays as it is.
        driver.library.node.gpus[0].errors.update(errors)
        sense = Sense(path)
        values = sense.poll()
        events = GpuEvents(sense.call, sense.branch)
        events.build(sense.gpus)
        joined = topology(sense.call, sense.gpus, sense.branch)
    assert len(sense.gpus) == len(joined.gpus)
    if errors.get("nvmlDeviceValidateInforom") == 14:
        healthy[Signal.INFOROM_VALID] = 0
    if values.pop(Signal.PRESENCE) != healthy.pop(Signal.PRESENCE):
        assert set(errors.values()) & {15, 16}
    read = {signal: value for signal, value in values.items() if not isinstance(value, Absent)}
    assert read == {signal: healthy[signal] for signal in read}


def test_a_gpu_that_is_lost_while_enumerated_keeps_what_was_known(sense):
    set_gpu(sense.path, 3, lost=True)
    again = enumerate_gpus(sense.call, sense.gpus)
    assert again[3].device == sense.gpus[3].device
    pynvml.nvmlShutdown()
    fresh = Sense(sense.path)
    assert (fresh.gpus[3].device.uuid, fresh.gpus[3].handle) == ("", None)
    assert len(fresh.gpus) == 8


def test_text_that_is_not_utf8_is_escaped(sense):
    set_gpu(sense.path, 0, name=r"NVIDIA \xff\xfe")
    assert enumerate_gpus(sense.call, [])[0].device.product == r"NVIDIA \xff\xfe"


@pytest.mark.parametrize("kind", ["none", "passthrough", "vgpu"])
def test_a_guest_is_recognised(sense, kind):
    set_node(sense.path, virtualization=kind)
    set_gpu(sense.path, 0, lost=True)
    assert virtualization(sense.call, sense.gpus) == kind


def test_excluded_devices_are_named(sense):
    set_node(sense.path, excluded=["0000:AB:00.0"])
    assert excluded(sense.call) == ["0000:ab:00.0"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("", ""),
        ("not:an:address", ""),
        ("1:2", ""),
    ],
)
def test_pci_addresses(given, expected):
    assert normal_pci(given) == expected


@pytest.mark.parametrize(
    ("version", "branch"),
    [("580.95.05", 580), ("470", 470), ("", 0), ("r580.1", 0), ("\u0664\u0665.1", 0)],
)
def test_driver_branches(version, branch):
    assert driver_branch(version) == branch


@pytest.fixture
def events(sense):
    events = GpuEvents(sense.call, sense.branch)
    events.build(sense.gpus)
    return events


def test_an_event_names_its_gpu(sense, events):
    push_event(sense.path, "xid", 3, 79)
    event = events.wait(1, 0.0)
    assert (event.kind, event.data, event.pci) == (EventKind.XID, 79, "0000:61:00.0")
    assert (event.gpu, event.gi, event.ci) == (sense.gpus[3].device.uuid, None, None)
    assert events.wait(1, 0.0) is None


def test_the_set_is_built_without_the_lost_gpu_after_a_second(sense, events):
    set_gpu(sense.path, 3, lost=True)
    assert events.wait(1, 100.0) is None
    assert events.failed
    assert not events.waiting
    events.rebuild_if_due(100.9)
    assert not events.waiting
    events.rebuild_if_due(101.0)
    assert events.waiting
    push_event(sense.path, "recovery_action", 5, 1)
    event = events.wait(1, 101.0)
    assert (event.kind, event.data) == (EventKind.RECOVERY_ACTION, 1)


@on("t4-1", "a100-4-partial-nvlink")
def test_old_gpus_register_for_what_they_support(sense, events):
    assert events.waiting
    push_event(sense.path, "xid", 0, 48)
    assert events.wait(1, 0.0).data == 48


def test_without_any_event_support_there_is_nothing_to_wait_for(sense):
    for gpu in range(8):
        set_gpu(sense.path, gpu, events_supported=[])
    events = GpuEvents(sense.call, sense.branch)
    events.build(enumerate_gpus(sense.call, []))
    assert not events.waiting
    assert not events.failed


def test_system_events(sense):
    system = SystemEvents(sense.call, sense.branch)
    push_event(sense.path, "driver_unbind", data=7)
    assert [(event.kind, event.data) for event in system.take()] == [(EventKind.DRIVER_UNBIND, 7)]
    system.free()
    assert system.take() == []


@on("a100-4-partial-nvlink")
def test_an_old_driver_has_no_system_events(sense):
    sense.said.clear()
    assert SystemEvents(sense.call, sense.branch).take() == []
    assert sense.calls() == []
