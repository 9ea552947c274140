"""Poll PCI bus and host of this machine, and listen to udev for PCI changes.

The agent owns one `MachineCollector`. With a simulated NVML the PCI bus is simulated too, from the
same description.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from agent.sources.host import host_identity, host_seen, is_exhausted, pci_functions
from rules.judge import observation as facts

if TYPE_CHECKING:
    import pyudev


MachineFact = facts.PciSeen | facts.HostSeen | facts.SourceChanged

POLL_EVERY_S = 15.0
"""A GPU that left the bus without a udev event is detected within this time."""
SLOW_EVERY_POLLS = 4
"""Processes are read once a minute: about 10 ms of CPU on a host with a thousand of them."""
OUT_OF_SIGHT = "ProcessesOutOfSight"
"""Why source `host` is Absent in a pod with its own PID namespace; it still reads NIC ports."""
TOO_MANY = "TooManyProcesses"
FEWER_FOR_POLLS = 5
"""A host with too many processes stays Absent until this many consecutive polls find fewer."""
SETTLE_S = 0.5
"""Wait this long after a udev event: the removal of one GPU causes several events."""


class Machine(NamedTuple):
    """The functions that read PCI bus and host."""

    functions: Callable[[], tuple[facts.PciFunction, ...]]
    host: Callable[[float], facts.HostSeen] = host_seen
    """Takes the wall time."""


REAL = Machine(functions=pci_functions)


def simulated(path: str) -> Machine:
    """Return the machine that a node description file defines.

    Raises ImportError outside a checkout, OSError and ValueError for an invalid file.
    """
    # Imported here: a real machine does not need it.
    from agent.nvml.child import simulated_driver

    driver = simulated_driver()
    file = driver.NodeFile(path)
    return Machine(
        functions=lambda: tuple(driver.functions_of(file.current())),
        host=lambda at: driver.host_of(file.current(), host_identity(at)),
    )


class MachineCollector:
    """Polls the machine in a thread and passes facts to `put`."""

    def __init__(
        self,
        put: Callable[[MachineFact], None],
        machine: Machine = REAL,
        every_s: float = POLL_EVERY_S,
    ) -> None:
        self._put = put
        self._every_s = every_s
        self._machine = machine
        self._wake = threading.Event()
        self._stopping = False
        self._polls = 0
        self._crowded_polls = 0
        self._reported: dict[facts.SourceName, tuple[facts.SourceState, str]] = {}
        self._thread = threading.Thread(target=self._run, name="machine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def poll_now(self) -> None:
        """Poll soon: the PCI bus has changed."""
        self._wake.set()

    def close(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self.poll()
            if self._wake.wait(self._every_s * random.uniform(0.9, 1.1)) and not self._stopping:
                time.sleep(SETTLE_S)
                self._wake.clear()

    def poll(self) -> None:
        """Read the PCI bus, and the host if it is due."""
        slow = self._polls % SLOW_EVERY_POLLS == 0
        try:
            functions = self._machine.functions()
            self._put(facts.PciSeen(at=time.time(), functions=functions))
            self._report_source(facts.SourceName.PCI, facts.SourceState.UP, "")
        except (OSError, ValueError) as error:
            if is_exhausted(error):
                self._report_source(facts.SourceName.PCI, facts.SourceState.DOWN, "OutOfFiles")
            else:
                # No PCI bus in this machine, or a simulated node's file is being written.
                self._report_source(facts.SourceName.PCI, facts.SourceState.ABSENT, "NoPciBus")
        if slow:
            self._poll_host()
        self._polls += 1

    def _poll_host(self) -> None:
        try:
            fact = self._machine.host(time.time())
        except (OSError, ValueError):
            # Out of resources, or a simulated node's file is being written: the next poll retries.
            return
        self._crowded_polls = (
            FEWER_FOR_POLLS if fact.too_many_processes else max(0, self._crowded_polls - 1)
        )
        if self._crowded_polls:
            fact = replace(fact, services={}, too_many_processes=True)
            self._report_source(facts.SourceName.HOST, facts.SourceState.ABSENT, TOO_MANY)
        elif not fact.services:
            self._report_source(facts.SourceName.HOST, facts.SourceState.ABSENT, OUT_OF_SIGHT)
        else:
            self._report_source(facts.SourceName.HOST, facts.SourceState.UP, "")
        self._put(fact)

    def _report_source(
        self, source: facts.SourceName, state: facts.SourceState, reason: str
    ) -> None:
        if self._reported.get(source) != (state, reason):
            self._reported[source] = (state, reason)
            self._put(
                facts.SourceChanged(at=time.time(), source=source, state=state, reason=reason)
            )


NVIDIA_ID = "10DE:"
ACTIONS = frozenset({"add", "remove", "bind", "unbind", "change"})
ARRIVALS = frozenset({"add", "bind"})
POLL_S = 30.0
REOPEN_S = 1.0
"""Wait before udev is reopened, so that a burst of events can end."""
UDEV_ERRORS = (OSError, ValueError, OverflowError, MemoryError)
"""Errors of pyudev: EINVAL, EOVERFLOW and ENOMEM are not OSErrors."""
MOST_AT_ONCE = 10_000
"""Maximum number of events in one change, so that an endless stream is reported too."""


class UdevError(Exception):
    """udev is not available; the text is a sentence with the cause."""


class UdevMonitor:
    """Listens to udev in a thread. `start` raises UdevError.

    The thread calls `on_change` with whether a function was added or bound. After lost events it
    calls `on_lost` with the error and then `on_change`.
    """

    def __init__(
        self, on_change: Callable[[bool], None], on_lost: Callable[[Exception], None]
    ) -> None:
        self._on_change = on_change
        self._on_lost = on_lost
        self._stopping = threading.Event()

    def start(self) -> None:
        """Open the netlink socket and listen."""
        try:
            monitor = _open()
        except (ImportError, *UDEV_ERRORS) as error:
            raise UdevError(f"udev is not available ({error}).") from error
        threading.Thread(target=self._run, args=(monitor,), name="udev", daemon=True).start()

    def close(self) -> None:
        """Stop the thread, which ends at the next event or timeout."""
        self._stopping.set()

    def _run(self, monitor: pyudev.Monitor) -> None:
        while not self._stopping.is_set():
            try:
                arrived = _announced(monitor)
            except UDEV_ERRORS as error:
                self._on_lost(error)
                monitor = self._reopened(monitor)
                arrived = True
            if arrived is not None and not self._stopping.is_set():
                self._on_change(arrived)

    def _reopened(self, monitor: pyudev.Monitor) -> pyudev.Monitor:
        """Return a new monitor, which has lost no events."""
        while not self._stopping.wait(REOPEN_S):
            try:
                return _open()
            except UDEV_ERRORS:
                # Out of file descriptors or memory: try again.
                continue
        return monitor


def _open() -> pyudev.Monitor:
    """Return a started monitor of PCI events. Raises ImportError and UDEV_ERRORS."""
    # Imported here: pyudev loads libudev, which a host without udev does not have.
    import pyudev

    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    monitor.filter_by("pci")
    monitor.start()
    return monitor


def _announced(monitor: pyudev.Monitor) -> bool | None:
    """Wait for udev events and return whether a GPU was added or bound; None without GPU events.

    Raises UDEV_ERRORS.
    """
    arrived: bool | None = None
    device = monitor.poll(timeout=POLL_S)
    for _ in range(MOST_AT_ONCE):
        if device is None:
            break
        if concerns_gpus(device.action, device.properties):
            arrived = bool(arrived) or device.action in ARRIVALS
        device = monitor.poll(timeout=0)
    return arrived


def concerns_gpus(action: str | None, properties: Mapping[str, str]) -> bool:
    """Whether a udev event is about an NVIDIA function."""
    return action in ACTIONS and properties.get("PCI_ID", "").upper().startswith(NVIDIA_ID)
