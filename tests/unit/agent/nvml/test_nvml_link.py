"""The link with a real child process over the simulated driver."""

import os
import queue
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agent.nvml.link import NvmlLink, interpreter
from agent.nvml.messages import Note, NvmlStatus, SourceReason
from agent.nvml.supervisor import State
from hack.sim.driver import NODES, push_event, set_gpu, set_node
from rules.catalog.signals import Signal
from rules.judge.observation import (
    CallFailed,
    GpuEvent,
    Inventory,
    Readings,
    SourceState,
    TopologySeen,
)
from tests.support.run.warm_start import WarmProcess

ROOT = Path(__file__).resolve().parents[4]
TIMEOUT_S = 20.0
"""Timeout for expected messages, which normally arrive much earlier."""


class Listener:
    """A link, and the messages that it has sent."""

    def __init__(self, mode, start_process, **options):
        self.event_queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.messages = []
        self.children = []
        """The children, oldest first."""
        self._start_process = start_process
        self.link = NvmlLink(
            mode, self.event_queue.put, start_process=self._start_child, **options
        )

    def _start_child(self, *arguments, **options):
        self.children.append(self._start_process(*arguments, **options))
        return self.children[-1]

    def until(self, kind, accept=lambda message: True):
        """Return the next accepted message of this kind; keep all messages before it."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            try:
                message = self.event_queue.get(timeout=end - time.monotonic())
            except queue.Empty:
                break
            self.messages.append(message)
            if isinstance(message, kind) and accept(message):
                return message
        raise AssertionError(f"no {kind.__name__} came; heard {self.messages[-5:]}")

    def status(self, state):
        return self.until(NvmlStatus, lambda status: status.state is state)


@pytest.fixture
def started():
    """Start links to forked children; close those that still run after the test."""
    yield from starting(WarmProcess)


@pytest.fixture
def started_again():
    """Start links to children with their own interpreter, as the agent does."""
    yield from starting(subprocess.Popen)


def starting(start_process):
    listeners = []

    def start(mode, start_process=start_process, **options):
        listener = Listener(mode, start_process, **options)
        listeners.append(listener)
        listener.link.start()
        return listener

    yield start
    for listener in listeners:
        listener.link.close(10.0)


def test_it_sends_inventory_and_readings_and_ends_when_asked(started_again, path):
    heard = started_again(f"sim:{path}")
    hello = heard.until(Inventory)
    assert (hello.driver, len(hello.gpus)) == ("580.95.05", 8)
    heard.until(TopologySeen)
    polled = {(m.gpu, s) for m in heard.messages if isinstance(m, Readings) for s in m.values}
    of_each_tier = (Signal.PRESENCE, Signal.REMAP_FAILURE, Signal.INFOROM_VALID)
    assert polled >= {(device.uuid, signal) for device in hello.gpus for signal in of_each_tier}
    assert [m.state for m in heard.messages if isinstance(m, NvmlStatus)] == [SourceState.UP]
    (child,) = heard.children
    assert heard.link.close(10.0) is True
    assert not Path(f"/proc/{child.pid}").exists(), "ended and reaped"


def test_the_child_inherits_nothing_but_its_pipes(started_again, path, tmp_path):
    secret = os.open(tmp_path / "kubeconfig", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(secret, True)
    try:
        heard = started_again(f"sim:{path}")
        heard.until(Inventory)
        table = Path(f"/proc/{heard.children[0].pid}/fd")
        targets = [str(entry.readlink()) for entry in table.iterdir()]
    finally:
        os.close(secret)
    assert {target.split(":")[0] for target in targets} == {"pipe"}


def test_what_is_read_first_is_read_again_soon(started, path):
    set_gpu(path, 4, remap__failure=True)
    heard = started(f"sim:{path}")
    for _ in ("first seen", "confirmed"):
        heard.until(Readings, lambda m: m.values.get(Signal.REMAP_FAILURE) == 1)


def test_an_xid_is_sent_at_once_and_the_gpu_read_again(started, path):
    heard = started(f"sim:{path}")
    heard.until(TopologySeen)
    set_gpu(path, 3, recovery_action=1)
    push_event(path, "xid", 3, 62)
    event = heard.until(GpuEvent)
    assert (event.data, event.pci) == (62, "0000:61:00.0")
    again = heard.until(Readings, lambda m: m.gpu == event.gpu and Signal.PRESENCE in m.values)
    assert again.values[Signal.RECOVERY_ACTION] == 1


def test_an_operational_event_is_sent_at_once_and_the_gpu_read_again(started_again, path):
    set_node(path, driver={"version": "615.65.01", "cuda": "13.3", "nvml": "13.615.71"})
    heard = started_again(f"sim:{path}", goe="auto")
    heard.until(TopologySeen)
    set_gpu(path, 3, recovery_action=6)
    push_event(path, "operational", 3, 79, module="GPU-BUS", code=3)
    event = heard.until(GpuEvent)
    assert (event.data, event.detail) == (79, "GPU-BUS 0x0003, category 2, fatal")
    again = heard.until(Readings, lambda m: m.gpu == event.gpu and Signal.PRESENCE in m.values)
    assert again.values[Signal.RECOVERY_ACTION] == 6


def test_a_lost_gpu_is_found_and_confirmed_while_the_others_still_send_events(started, path):
    heard = started(f"sim:{path}")
    heard.until(TopologySeen)
    set_gpu(path, 3, lost=True)

    def lost(message):
        return message.values.get(Signal.PRESENCE) == "lost"

    first, second = heard.until(Readings, lost), heard.until(Readings, lost)
    assert first.pci == second.pci == "0000:61:00.0"
    push_event(path, "xid", 5, 31)
    assert heard.until(GpuEvent).pci == "0000:c3:00.0"
    set_gpu(path, 3, lost=False)
    heard.link.request_refresh()
    heard.until(Readings, lambda m: m.pci == "0000:61:00.0" and not lost(m))


def test_a_gpu_that_was_dead_at_the_start_is_lost_until_it_enumerates(started, path):
    set_gpu(path, 3, lost=True)
    heard = started(f"sim:{path}")
    hello = heard.until(Inventory)
    assert [device.uuid == "" for device in hello.gpus].index(True) == 3
    for _ in ("first seen", "confirmed"):
        lost = heard.until(Readings, lambda m: m.values.get(Signal.PRESENCE) == "lost")
        assert (lost.gpu, lost.pci) == ("", "")
    set_gpu(path, 3, lost=False)
    heard.link.request_refresh()
    again = heard.until(Inventory)
    assert again.gpus[3].pci == "0000:61:00.0"


def test_a_driver_that_gives_every_gpu_an_unknown_error_is_left_for_a_fresh_child(started, path):
    heard = started(f"sim:{path}", poll_s=0.5)
    heard.until(TopologySeen)
    calls = ("FieldValues", "TemperatureV", "MarginTemperature", "CurrentClocksEventReasons")
    set_node(path, errors={f"nvmlDeviceGet{call}": 999 for call in calls})
    fault = heard.until(CallFailed, lambda fault: fault.gpu == "")
    assert fault.code == 999
    set_node(path, errors={})
    heard.until(Inventory)
    assert len(heard.children) == 2


def test_a_child_that_hangs_for_good_is_killed_reaped_and_only_then_replaced(started, path):
    heard = started(f"sim:{path}", state=State(overdue_s=1.0, kill_after_s=2.0))
    heard.until(TopologySeen)
    set_gpu(path, 3, hang_s={"nvmlDeviceGetFieldValues": 45})
    push_event(path, "xid", 3, 31)
    assert heard.status(SourceState.DOWN).reason is SourceReason.CALL_HUNG
    set_gpu(path, 3, hang_s={})
    died = heard.until(NvmlStatus, lambda status: status.reason is SourceReason.CHILD_DIED)
    assert died.state is SourceState.DOWN
    assert "hung and was killed" in died.message
    assert not Path(f"/proc/{heard.children[0].pid}").exists()
    heard.status(SourceState.UP)
    assert len(heard.children) == 2


def test_closing_does_not_wait_for_a_hung_child(started, path):
    heard = started(f"sim:{path}", state=State(overdue_s=1.0))
    heard.until(TopologySeen)
    (child,) = heard.children
    set_gpu(path, 3, hang_s={"nvmlDeviceGetFieldValues": 4})
    push_event(path, "xid", 3, 31)
    heard.status(SourceState.DOWN)
    assert heard.link.close(0.1) is False
    assert child.wait(TIMEOUT_S) == 0, "its standard input closed: it left in order"


def test_a_driver_restart_does_not_change_the_source_state(started, path):
    heard = started(f"sim:{path}")
    heard.until(TopologySeen)
    set_node(path, driver_restart=1)
    heard.until(Inventory)
    heard.until(TopologySeen)
    assert len(heard.children) == 2
    assert [m.state for m in heard.messages if isinstance(m, NvmlStatus)] == [SourceState.UP]


def test_a_mig_change_is_enumerated_again(started, path):
    heard = started(f"sim:{path}")
    heard.until(TopologySeen)
    set_gpu(path, 2, mig={"enabled": True, "instances": [{"uuid": "MIG-1", "gi": 1}]})
    push_event(path, "mig_config_change", 2)
    hello = heard.until(Inventory)
    assert hello.gpus[2].mig_mode is True


def test_a_node_without_a_gpu_is_not_an_error_and_finds_one_on_refresh(started, tmp_path):
    path = tmp_path / "one.yaml"
    shutil.copy(NODES / "h100-1.yaml", path)
    set_gpu(path, 0, unplugged=True)
    heard = started(f"sim:{path}")
    assert heard.until(Inventory).gpus == ()
    heard.until(TopologySeen)
    set_gpu(path, 0, unplugged=False)
    heard.link.reinitialise()
    assert [device.product for device in heard.until(Inventory).gpus] == ["NVIDIA H100 PCIe"]
    heard.until(TopologySeen)
    assert [m.state for m in heard.messages if isinstance(m, NvmlStatus)] == [SourceState.UP]


def test_a_child_that_cannot_be_started_is_reported_and_retried(started_again, path):
    programs = iter(["/nonexistent/python"])

    def start(command, **options):
        return subprocess.Popen([next(programs, command[0]), *command[1:]], **options)

    heard = started_again(f"sim:{path}", start_process=start)
    assert "cannot be started" in heard.until(Note).text
    heard.status(SourceState.DOWN)
    heard.status(SourceState.UP)


def test_the_child_does_not_import_from_the_working_directory(
    started_again, path, tmp_path, monkeypatch
):
    for module in ("agent", "msgspec", "enum"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    started_again(f"sim:{path}").status(SourceState.UP)


def test_entries_of_the_import_path_that_are_not_strings_are_ignored(tmp_path):
    _, environment = interpreter(["", "/somewhere", tmp_path])
    assert environment["PYTHONPATH"].split(os.pathsep)[1:] == ["/somewhere"]
