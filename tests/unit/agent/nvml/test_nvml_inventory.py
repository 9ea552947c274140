"""Enumeration, topology and event sets: real pynvml code over simulated nodes, in this process."""

import pynvml
import pytest
from msgspec.structs import replace

from agent.nvml.events import GpuEvents
from agent.nvml.inventory import (
    enumerate_gpus,
    excluded,
    virtualization,
)
from agent.nvml.reads import topology
from hack.sim.driver import push_event, set_gpu, set_node
from rules.catalog.signals import EventKind
from rules.text.pci_address import full_address
from tests.support.agent.nvml_collector import Collector, on


def test_the_inventory_of_a_gpu(collector):
    device = collector.gpus[3].device
    assert (device.index, device.uuid) == (3, "GPU-6f2a1d33-8c1e-4b57-9f60-0a41c2d7e103")
    assert (device.pci, device.serial) == ("0000:61:00.0", "1654023010004")
    assert (device.product, device.vbios) == ("NVIDIA H100 80GB HBM3", "96.00.A5.00.01")
    assert (device.architecture, device.module_id, device.minor) == (9, 1, 3)
    assert (device.numa, device.links, device.mig_mode) == (0, 18, False)
    assert collector.gpus[5].device.numa == 1


@on("h100-8-mig")
def test_mig_mode_is_read(collector):
    assert [gpu.device.mig_mode for gpu in collector.gpus[:4]] == [True, True, True, False]


@pytest.mark.parametrize(
    ("collector", "row", "remote", "clique"),
    [
        ("h100-8-nvswitch", ("X", *["NV18"] * 7), ("switch",) * 18, 0),
        ("b200-8-nvlink5", ("X", *["NV18"] * 7), ("switch",) * 18, 0),
        ("a100-4-partial-nvlink", ("X", "NV12", "SYS", "SYS"), ("gpu",) * 12, None),
        ("l40s-8-pcie", ("X", "PIX", "PXB", "PHB", *["SYS"] * 4), (), None),
        ("t4-1", ("X",), (), None),
    ],
    indirect=["collector"],
)
def test_topology_is_spelled_as_nvidia_smi_does(collector, row, remote, clique):
    found = topology(collector.call, collector.gpus, collector.branch)
    assert found.links[0] == row
    assert [line[i] for i, line in enumerate(found.links)] == ["X"] * len(row)
    assert found.remotes[0] == remote
    assert found.cliques[0] == clique
    assert found.clusters[0] == ""


def test_topology_does_not_change_when_a_link_is_down(collector):
    before = topology(collector.call, collector.gpus, collector.branch)
    set_gpu(collector.path, 3, nvlink__down=[0, 7], nvlink__count=18)
    after = topology(collector.call, collector.gpus, collector.branch)
    assert replace(after, at=before.at) == before


@on("h100-8-nvswitch")
def test_a_cluster_is_named_when_there_is_one(collector):
    set_gpu(
        collector.path, 0, fabric={"cluster": "11223344-5566-7788-99aa-bbccddeeff00", "clique": 7}
    )
    found = topology(collector.call, collector.gpus, collector.branch)
    assert (found.clusters[0], found.cliques[0]) == ("11223344-5566-7788-99aa-bbccddeeff00", 7)


def test_a_gpu_that_is_lost_while_enumerated_keeps_what_was_known(collector):
    set_gpu(collector.path, 3, lost=True)
    again = enumerate_gpus(collector.call, collector.gpus)
    assert again[3].device == collector.gpus[3].device
    pynvml.nvmlShutdown()
    fresh = Collector(collector.path)
    assert (fresh.gpus[3].device.uuid, fresh.gpus[3].handle) == ("", None)
    assert len(fresh.gpus) == 8


def test_text_that_is_not_utf8_is_escaped(collector):
    set_gpu(collector.path, 0, name=r"NVIDIA \xff\xfe")
    assert enumerate_gpus(collector.call, [])[0].device.product == r"NVIDIA \xff\xfe"


@pytest.mark.parametrize("kind", ["none", "passthrough", "vgpu"])
def test_a_guest_is_recognised(collector, kind):
    set_node(collector.path, virtualization=kind)
    set_gpu(collector.path, 0, lost=True)
    assert virtualization(collector.call, collector.gpus) == kind


def test_excluded_devices_are_named(collector):
    set_node(collector.path, excluded=["0000:AB:00.0"])
    assert excluded(collector.call) == ["0000:ab:00.0"]


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
    assert full_address(given) == expected


@pytest.fixture
def events(collector):
    events = GpuEvents(collector.call, collector.branch)
    events.build(collector.gpus)
    return events


def test_an_event_names_its_gpu(collector, events):
    push_event(collector.path, "xid", 3, 79)
    event = events.wait(1, 0.0)
    assert (event.kind, event.data, event.pci) == (EventKind.XID, 79, "0000:61:00.0")
    assert (event.gpu, event.gi, event.ci) == (collector.gpus[3].device.uuid, None, None)
    assert events.wait(1, 0.0) is None


def test_the_set_is_built_without_the_lost_gpu_after_a_second(collector, events):
    set_gpu(collector.path, 3, lost=True)
    assert events.wait(1, 100.0) is None
    assert events.failed
    assert not events.waiting
    events.rebuild_if_due(100.9)
    assert not events.waiting
    events.rebuild_if_due(101.0)
    assert events.waiting
    push_event(collector.path, "recovery_action", 5, 1)
    event = events.wait(1, 101.0)
    assert event.kind is EventKind.RECOVERY_ACTION


def test_only_an_xid_brings_a_number(collector, events):
    push_event(collector.path, "recovery_action", 5, 1)
    push_event(collector.path, "gpu_unavailable", 5, 79)
    push_event(collector.path, "xid", 5, 79)
    pushed = [events.wait(1, 0.0) for _ in range(3)]
    assert [event.data for event in pushed] == [0, 0, 79]


@on("t4-1", "a100-4-partial-nvlink")
def test_old_gpus_register_for_what_they_support(collector, events):
    assert events.waiting
    push_event(collector.path, "xid", 0, 48)
    assert events.wait(1, 0.0).data == 48


def test_without_any_event_support_there_is_nothing_to_wait_for(collector):
    for gpu in range(8):
        set_gpu(collector.path, gpu, events_supported=[])
    events = GpuEvents(collector.call, collector.branch)
    events.build(enumerate_gpus(collector.call, []))
    assert not events.waiting
    assert not events.failed
