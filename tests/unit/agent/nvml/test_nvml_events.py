"""Event sets: real pynvml code over simulated nodes, in this process."""

from __future__ import annotations

import pytest

from agent.nvml.events import GpuEvents, SystemEvents
from agent.nvml.inventory import enumerate_gpus
from hack.sim.driver import push_event, set_gpu
from rules.catalog.signals import EventKind
from tests.support.agent.nvml_sense import on


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
    assert event.kind is EventKind.RECOVERY_ACTION


def test_only_an_xid_brings_a_number(sense, events):
    push_event(sense.path, "recovery_action", 5, 1)
    push_event(sense.path, "gpu_unavailable", 5, 79)
    push_event(sense.path, "xid", 5, 79)
    pushed = [events.wait(1, 0.0) for _ in range(3)]
    assert [event.data for event in pushed] == [0, 0, 79]


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
