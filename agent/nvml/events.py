"""The driver's event set of all GPUs, rebuilt without the lost one.

Run by the child. One lost GPU fails every wait on a set at once and for ever, so after a failure
the set is freed and built again a second later from the GPUs that still register.
"""

import time
from typing import Any

import pynvml as nvml

from agent.nvml import inventory, poller
from agent.nvml.inventory import Caller, Failed, Gpu
from rules.catalog.signals import EventKind
from rules.judge.observation import GpuEvent

REBUILD_AFTER_S = 1.0
NO_INSTANCE = 0xFFFFFFFF
TIMEOUT = 10


class GpuEvents:
    """Events of all GPUs. `build` first; `wait` gives one event or nothing."""

    def __init__(self, call: Caller, branch: int) -> None:
        self._call = call
        self._set: Any = None
        self._gpus: dict[int, Gpu] = {}
        self._rebuild_at: float | None = None
        self._enumerated: list[Gpu] = []
        self._rows = {
            getattr(nvml, row.constant): row
            for row in poller.EVENTS
            if row.branch <= branch and hasattr(nvml, row.constant)
        }

    @property
    def waiting(self) -> bool:
        """There is a set with at least one GPU to wait on."""
        return self._set is not None and bool(self._gpus)

    @property
    def failed(self) -> bool:
        """A wait failed and the set was returned to service; it is built again in a second."""
        return self._rebuild_at is not None

    def build(self, gpus: list[Gpu]) -> None:
        """Register every GPU for the events it supports, and only those."""
        self.free()
        self._enumerated = gpus
        self._rebuild_at = None
        made = self._call("nvmlEventSetCreate", nvml.nvmlEventSetCreate)
        if isinstance(made, Failed):
            return
        self._set = made
        for gpu in gpus:
            mask = gpu.device.events & sum(self._rows)
            if gpu.handle is None or not mask:
                continue
            registered = self._call(
                "nvmlDeviceRegisterEvents",
                nvml.nvmlDeviceRegisterEvents,
                gpu.handle,
                mask,
                self._set,
                gpu=gpu.key,
            )
            if not isinstance(registered, Failed):
                self._gpus[inventory.handle_value(gpu.handle)] = gpu

    def rebuild_if_due(self, now: float) -> None:
        """Build again after a failed wait, once its second has passed."""
        if self._rebuild_at is not None and now >= self._rebuild_at:
            self.build(self._enumerated)

    def wait(self, timeout_ms: int, now: float) -> GpuEvent | None:
        """The next event within the time; None without one, or when the set failed."""
        try:
            data = nvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except nvml.NVMLError as error:
            if error.value != TIMEOUT:
                # Raises where the driver is gone; anything else costs the set.
                self._call("nvmlEventSetWait_v2", _raise, error)
                self.free()
                self._rebuild_at = now + REBUILD_AFTER_S
            return None
        row = self._rows.get(data.eventType)
        gpu = self._gpus.get(inventory.handle_value(data.device))
        if row is None:
            return None
        return GpuEvent(
            at=time.time(),
            kind=row.kind,
            # NVML fills it in for an Xid alone; of all else it says nothing, not even zero.
            data=int(data.eventData) if row.kind is EventKind.XID else 0,
            gpu=gpu.device.uuid if gpu else "",
            pci=gpu.device.pci if gpu else "",
            gi=_instance(data.gpuInstanceId),
            ci=_instance(data.computeInstanceId),
        )

    def free(self) -> None:
        """Give the set back."""
        if self._set is not None:
            self._call("nvmlEventSetFree", nvml.nvmlEventSetFree, self._set)
        self._set = None
        self._gpus = {}


def _instance(number: int) -> int | None:
    return None if number == NO_INSTANCE else int(number)


def _raise(error: Exception) -> None:
    raise error
