"""Frames, and the table of signals."""

import msgspec
import pynvml
import pytest

from agent.nvml.messages import Calling, Framer, FromChild, frame
from agent.nvml.poller import CALLS, EVENTS, FIELDS
from rules.catalog.signals import Signal
from rules.judge.observation import CallFailed, Readings

MESSAGES: list[FromChild] = [
    Calling(call="nvmlDeviceGetTemperatureV", gpu="GPU-1", within_s=2.0),
    CallFailed(at=1.0, call="nvmlInitWithFlags", code=9, of_driver=True),
    Readings(
        at=1.0,
        gpu="GPU-1",
        pci="0000:1b:00.0",
        values={
            Signal.TEMPERATURE: 40,
            Signal.POWER: 70.5,
            Signal.FABRIC_CLUSTER: "abc",
            Signal.NVLINK_STATES: (1, None, 0),
            Signal.REMAP_FAILURE: None,
        },
    ),
]


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
def test_messages_survive_any_cut_of_the_stream(size):
    stream = b"".join(frame(message) for message in MESSAGES)
    framer, bodies = Framer(), []
    for start in range(0, len(stream), size):
        bodies += framer.feed(stream[start : start + size])
    assert [msgspec.msgpack.decode(body, type=FromChild) for body in bodies] == MESSAGES


def test_a_length_beyond_the_bound_is_refused():
    with pytest.raises(ValueError, match="4294967295 bytes"):
        Framer().feed(b"\xff\xff\xff\xff")


def test_the_poll_table_covers_every_signal_but_presence():
    asked = {row.signal for row in FIELDS} | {s for row in CALLS for s in row.signals}
    assert set(Signal) - asked == {Signal.PRESENCE}


def test_the_poll_table_names_what_the_binding_has():
    names = [row.constant for table in (FIELDS, EVENTS) for row in table]
    assert [name for name in names if not hasattr(pynvml, name)] == []
    binding = vars(pynvml)
    assert [row.symbol for row in CALLS if row.symbol not in binding] == []


def test_no_two_rows_ask_one_gpu_for_the_same_signal():
    for branch in (535, 550, 565, 570, 575, 580, 590, 615):
        for architecture in range(5, 11):
            asked = [
                row.signal
                for row in FIELDS
                if row.branch <= branch and row.first <= architecture <= row.last
            ]
            asked += [
                signal
                for row in CALLS
                if row.branch <= branch < row.until and row.first <= architecture <= row.last
                for signal in row.signals
            ]
            assert len(asked) == len(set(asked)), (branch, architecture)
