"""GPU Operational Events: real pynvml code over the simulated driver of R615 and R580."""

import itertools

import pytest

from agent.nvml.events import GpuEvents
from agent.nvml.messages import Note
from hack.sim.driver import push_event, set_gpu, set_node
from rules.catalog.signals import EventKind
from tests.support.agent.nvml_collector import Collector

R615 = {"version": "615.65.01", "cuda": "13.3", "nvml": "13.615.71"}
V2, V3 = "nvmlEventSetWait_v2", "nvmlEventSetWait_v3"


def new_driver(collector, **node):
    set_node(collector.path, driver=R615, **node)
    return Collector(collector.path)


def built(collector):
    events = GpuEvents(collector.call, collector.branch, operational=True)
    events.build(collector.gpus)
    return events


@pytest.fixture
def newer(collector):
    return new_driver(collector)


@pytest.fixture
def events(newer):
    return built(newer)


def notes(collector):
    return [message.text for message in collector.sent if isinstance(message, Note)]


def test_an_event_names_its_gpu_its_xid_and_itself(newer, events):
    assert events.wait_call == V3
    push_event(newer.path, "operational", 3, 185, module="GPU-RAS", code=0x3D, severity=20)
    event = events.wait(1, 0.0)
    assert (event.kind, event.data) == (EventKind.OPERATIONAL, 185)
    assert (event.gpu, event.pci) == (newer.gpus[3].device.uuid, "0000:61:00.0")
    assert event.detail == "GPU-RAS 0x003d, category 2, corrected"
    assert events.wait(1, 0.0) is None


def test_events_of_the_older_kind_come_through_the_same_set(newer, events):
    push_event(newer.path, "operational", 5, 79)
    push_event(newer.path, "xid", 5, 79)
    push_event(newer.path, "recovery_action", 5, 2)
    found = [events.wait(1, 0.0) for _ in range(3)]
    assert [(e.kind, e.data) for e in found] == [
        (EventKind.OPERATIONAL, 79),
        (EventKind.XID, 79),
        (EventKind.RECOVERY_ACTION, 0),
    ]
    assert {(e.gpu, e.gi, e.ci) for e in found} == {(newer.gpus[5].device.uuid, None, None)}


def test_an_older_driver_costs_no_call_more(collector):
    collector.sent.clear()
    plain = GpuEvents(collector.call, collector.branch)
    plain.build(collector.gpus)
    usual = collector.calls()
    collector.sent.clear()
    events = built(collector)
    assert (collector.calls(), events.wait_call) == (usual, V2)
    push_event(collector.path, "operational", 3, 79)
    push_event(collector.path, "xid", 3, 79)
    assert events.wait(1, 0.0).kind is EventKind.XID


def test_off_registers_for_none(newer):
    events = GpuEvents(newer.call, newer.branch)
    events.build(newer.gpus)
    assert events.wait_call == V2
    assert not any("Operational" in call for call in newer.calls())


@pytest.mark.parametrize(
    ("fields", "data", "found"),
    [
        ({"severity": 40}, 0, 0),
        ({"severity": 30}, 0, 0),
        ({"severity": 20}, 0, None),
        ({"severity": 10}, 63, 63),
        ({"log_level": 20}, 63, None),
        ({"group_attributes": 1}, 94, 94),
        ({"group_attributes": 2}, 94, None),
        ({"group_attributes": 4}, 94, None),
    ],
    ids=["fatal", "recoverable", "corrected", "informational, an Xid", "diagnostic", "recovered",
         "previous session", "simulated"],
)  # fmt: skip
def test_only_events_of_use_are_passed_on(newer, events, fields, data, found):
    push_event(newer.path, "operational", 0, data, **fields)
    event = events.wait(1, 0.0)
    assert (event.data if event else None) == found
    assert bool(notes(newer)) is (fields.get("group_attributes", 0) in (2, 4))


def test_a_module_without_a_terminator_and_with_control_characters_is_one_line(newer, events):
    push_event(newer.path, "operational", 0, 79, module="GPU\n\x1bRAS-0" + r"\xff\xfe2345")
    detail = events.wait(1, 0.0).detail
    assert detail.startswith("GPU\\x0a\\x1bRAS-0\ufffd\ufffd2345 ")


@pytest.mark.parametrize("code", [3, 4])
def test_a_driver_that_accepts_no_gpu_is_waited_on_as_before(collector, code):
    errors = {"nvmlEventSetRegisterGpuOperationalEvents_v1": code}
    newer = new_driver(collector, errors=errors)
    events = built(newer)
    assert events.wait_call == V2
    push_event(newer.path, "xid", 3, 79)
    assert events.wait(1, 0.0).data == 79


@pytest.mark.parametrize("code", [2, 3, 13, 25])
def test_a_wait_that_does_not_exist_turns_them_off(newer, events, code):
    set_node(newer.path, errors={V3: code})
    assert events.wait(1, 100.0) is None
    (text,) = notes(newer)
    assert text == f"{V3} returned {code}. GPU Operational Events are off."
    events.rebuild_if_due(101.0)
    assert events.wait_call == V2
    push_event(newer.path, "xid", 3, 79)
    assert events.wait(1, 101.0).data == 79


def test_a_lost_gpu_leaves_the_events_of_the_others(newer, events):
    set_gpu(newer.path, 3, lost=True)
    assert events.wait(1, 100.0) is None
    events.rebuild_if_due(101.0)
    assert events.wait_call == V3
    push_event(newer.path, "operational", 5, 74)
    assert events.wait(1, 101.0).data == 74


@pytest.mark.parametrize(
    "call",
    [
        "nvmlEventSetGetContextCount_v1",
        "nvmlEventSetGetContextInfo_v1",
        "nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1",
    ],
)
def test_a_context_that_cannot_be_read_costs_the_xid_only(newer, events, call):
    set_node(newer.path, errors={call: 999})
    push_event(newer.path, "operational", 3, 79, severity=40)
    event = events.wait(1, 0.0)
    assert (event.data, event.gpu) == (0, newer.gpus[3].device.uuid)


def test_an_endless_list_of_contexts_is_bounded(newer, events):
    push_event(newer.path, "operational", 3, 0, contexts=1 << 31)
    newer.sent.clear()
    assert events.wait(1, 0.0).data == 0
    asked = itertools.filterfalse(lambda call: "ContextInfo" not in call, newer.calls())
    assert len(list(asked)) == 16
