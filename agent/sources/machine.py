"""Look at this machine on a timer, PCI bus and host, and listen to udev about the bus.

The main loop owns one `MachineSense`; facts go to its sink. With a simulated NVML the bus is the
simulated one, so that both views come from the same description.
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

LOOK_EVERY_S = 15.0
"""Presence is in the fastest tier: a GPU that left the bus without a word is noticed in this time.
"""
SLOW_EVERY_LOOKS = 4
"""Processes are walked once a minute: some 10 ms of CPU on a host with a thousand of them."""
OUT_OF_SIGHT = "ProcessesOutOfSight"
"""Why the host is Absent in a pod with process numbers of its own; ports are seen there, too."""
TOO_MANY = "TooManyProcesses"
FEWER_FOR_LOOKS = 5
"""A host around the limit stays Absent until so many looks in a row were below it."""
SETTLE_S = 0.5
"""After an announcement the bus is given this long: one GPU leaving is several announcements."""


class Machine(NamedTuple):
    """Where the bus and the host are read."""

    functions: Callable[[], tuple[facts.PciFunction, ...]]
    host: Callable[[float], facts.HostSeen] = host_seen
    """Given the wall time."""


REAL = Machine(functions=pci_functions)


def simulated(path: str) -> Machine:
    """The machine that a simulated node's file describes.

    Raises ImportError outside a checkout, OSError and ValueError for a file that is no such node.
    """
    # Imported here: a real machine has no use for it.
    from agent.nvml.child import simulated_driver

    driver = simulated_driver()
    file = driver.NodeFile(path)
    return Machine(
        functions=lambda: tuple(driver.functions_of(file.current())),
        host=lambda at: driver.host_of(file.current(), host_identity(at)),
    )


class MachineCollector:
    """The looking thread; `put` receives facts that differ from the last ones."""

    def __init__(
        self,
        put: Callable[[MachineFact], None],
        machine: Machine = REAL,
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._put = put
        self._every_s = every_s
        self._machine = machine
        self._wake = threading.Event()
        self._stopping = False
        self._looks = 0
        self._crowded_looks = 0
        self._said: dict[facts.SourceName, tuple[facts.SourceState, str]] = {}
        self._thread = threading.Thread(target=self._run, name="machine", daemon=True)

    def start(self) -> None:
        """Look now and then on a timer."""
        self._thread.start()

    def look_now(self) -> None:
        """Something was announced about the bus."""
        self._wake.set()

    def close(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self.look()
            if self._wake.wait(self._every_s * random.uniform(0.9, 1.1)) and not self._stopping:
                time.sleep(SETTLE_S)
                self._wake.clear()

    def look(self) -> None:
        """One check at everything that is due."""
        slow = self._looks % SLOW_EVERY_LOOKS == 0
        try:
            functions = self._machine.functions()
            self._put(facts.PciSeen(at=time.time(), functions=functions))
            self._say(facts.SourceName.PCI, facts.SourceState.UP, "")
        except (OSError, ValueError) as error:
            if is_exhausted(error):
                self._say(facts.SourceName.PCI, facts.SourceState.DOWN, "OutOfFiles")
            else:
                # No PCI bus in this machine, or a simulated node whose file is being written.
                self._say(facts.SourceName.PCI, facts.SourceState.ABSENT, "NoPciBus")
        if slow:
            self._look_at_host()
        self._looks += 1

    def _look_at_host(self) -> None:
        try:
            seen = self._machine.host(time.time())
        except (OSError, ValueError):
            # A simulated node whose file is being written, or `exhausted`: polled next time.
            return
        self._crowded_looks = (
            FEWER_FOR_LOOKS if seen.too_many_processes else max(0, self._crowded_looks - 1)
        )
        if self._crowded_looks:
            seen = replace(seen, services={}, too_many_processes=True)
            self._say(facts.SourceName.HOST, facts.SourceState.ABSENT, TOO_MANY)
        elif not seen.services:
            self._say(facts.SourceName.HOST, facts.SourceState.ABSENT, OUT_OF_SIGHT)
        else:
            self._say(facts.SourceName.HOST, facts.SourceState.UP, "")
        self._put(seen)

    def _say(self, source: facts.SourceName, state: facts.SourceState, reason: str) -> None:
        if self._said.get(source) != (state, reason):
            self._said[source] = (state, reason)
            self._put(
                facts.SourceChanged(at=time.time(), source=source, state=state, reason=reason)
            )


NVIDIA_ID = "10DE:"
ACTIONS = frozenset({"add", "remove", "bind", "unbind", "change"})
ARRIVALS = frozenset({"add", "bind"})
POLL_S = 30.0
REOPEN_S = 1.0
"""A burst is over by then; the bus is polled every 15 s anyway."""
UDEV_ERRORS = (OSError, ValueError, OverflowError, MemoryError)
"""What pyudev makes of errno: EINVAL, EOVERFLOW and ENOMEM are no OSError."""
MOST_AT_ONCE = 10_000
"""Announcements that count as one, so that a stream without end is reported, too."""


class UdevError(Exception):
    """There is no udev here; the text says why, in one sentence."""


class UdevMonitor:
    """The listening thread. Raises UdevError from `start`.

    `on_change` is called from the thread with whether a function came or was bound, `on_lost`
    with the error when announcements were lost, before the `on_change` that makes up for them.
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
            raise UdevError(f"udev cannot be listened to ({error})") from error
        threading.Thread(target=self._run, args=(monitor,), name="udev", daemon=True).start()

    def close(self) -> None:
        """Ask the thread to end; it does at the next announcement."""
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
        """A monitor that missed nothing since it was opened."""
        while not self._stopping.wait(REOPEN_S):
            try:
                return _open()
            except UDEV_ERRORS:
                # Out of file descriptors or memory: tried again.
                continue
        return monitor


def _open() -> pyudev.Monitor:
    """Raises ImportError and UDEV_ERRORS."""
    # Imported here: pyudev loads libudev, which a host without udev does not have.
    import pyudev

    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    monitor.filter_by("pci")
    monitor.start()
    return monitor


def _announced(monitor: pyudev.Monitor) -> bool | None:
    """Wait for announcements about GPUs: whether one came or was bound; None where there is
    none. Raises UDEV_ERRORS.
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
    """Whether an announcement is about an NVIDIA function."""
    return action in ACTIONS and properties.get("PCI_ID", "").upper().startswith(NVIDIA_ID)
