"""Hears the kernel announce that a PCI function came, went, was bound or unbound.

One thread over pyudev's netlink monitor. It judges nothing: each announcement about an NVIDIA
function makes the host sensing thread look at the bus again, at once instead of in 15 s, and one
of a new or newly bound function makes NVML count its GPUs afresh.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

NVIDIA_ID = "10DE:"
ACTIONS = frozenset({"add", "remove", "bind", "unbind", "change"})
ARRIVALS = frozenset({"add", "bind"})


class UdevError(Exception):
    """There is no udev here; the text says why, in one sentence."""


class UdevMonitor:
    """The listening thread. Raises UdevError from `start`.

    `on_change` is called from the thread with whether a function came or was bound.
    """

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        self._on_change = on_change
        self._stopping = threading.Event()

    def start(self) -> None:
        """Open the netlink socket and listen."""
        try:
            # Imported here: pyudev loads libudev, which a host without udev does not have.
            import pyudev

            self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
            self._monitor.filter_by("pci")
            self._monitor.start()
        except (ImportError, OSError) as error:
            raise UdevError(f"udev cannot be listened to ({error})") from error
        threading.Thread(target=self._run, name="udev", daemon=True).start()

    def close(self) -> None:
        """Ask the thread to end; it does at the next announcement."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            device = self._monitor.poll(timeout=30.0)
            if device is not None and concerns_gpus(device.action, device.properties):
                self._on_change(device.action in ARRIVALS)


def concerns_gpus(action: str | None, properties: Mapping[str, str]) -> bool:
    """Whether an announcement is about an NVIDIA function."""
    return action in ACTIONS and properties.get("PCI_ID", "").upper().startswith(NVIDIA_ID)
