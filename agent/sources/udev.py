"""Listen for PCI functions that come, go, are bound or unbound.

One thread over pyudev's netlink monitor. It judges nothing: announcements about NVIDIA functions
make the host sensing thread poll the bus again, at once instead of in 15 s, and one of a new or
newly bound function makes NVML count its GPUs afresh. A burst counts as one announcement.

The kernel drops announcements that do not fit into the socket's buffer (ENOBUFS): then anything
may have come or gone, so the monitor is opened again and the bus is polled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyudev

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
