"""The driver's event set of all GPUs.

Used by the child. One lost GPU makes every wait on the set fail. After a failure the set is freed
and built again a second later from the GPUs that still register. With GPU Operational Events the
same set returns records of both kinds.
"""

import time
from typing import Any

import pynvml as nvml

from agent.nvml import inventory, poller
from agent.nvml.inventory import Caller, Failed, Gpu
from agent.nvml.messages import Note
from rules.catalog.signals import EventKind
from rules.judge.observation import GpuEvent

REBUILD_AFTER_S = 1.0
NO_INSTANCE = 0xFFFFFFFF
TIMEOUT = 10


class GpuEvents:
    """Events of all GPUs. Call `build` first; `wait` returns one event or None.

    `operational`: also register for GPU Operational Events, if the driver branch has them.
    """

    def __init__(self, call: Caller, branch: int, *, operational: bool = False) -> None:
        self._call = call
        self._set: Any = None
        self._gpus: dict[int, Gpu] = {}
        self._goe: Any = None
        """The module of GPU Operational Events while they are used."""
        if operational:
            # Imported here: most children need none of it and must stay small.
            from agent.nvml import operational_events

            self._goe = operational_events if operational_events.exist(branch) else None
        self._structured = False
        """Whether a GPU of the set is registered for them."""
        self._rebuild_at: float | None = None
        self._enumerated: list[Gpu] = []
        self._rows = {
            getattr(nvml, row.constant): row
            for row in poller.EVENTS
            if row.branch <= branch and hasattr(nvml, row.constant)
        }

    @property
    def wait_call(self) -> str:
        """The name of the NVML function that `wait` calls."""
        return "nvmlEventSetWait_v3" if self._structured else "nvmlEventSetWait_v2"

    @property
    def waiting(self) -> bool:
        """Whether there is a set with at least one GPU to wait on."""
        return self._set is not None and bool(self._gpus)

    @property
    def failed(self) -> bool:
        """Whether a wait failed and the set was freed; it is built again after a second."""
        return self._rebuild_at is not None

    def build(self, gpus: list[Gpu]) -> None:
        """Register every GPU for the events that it supports."""
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
                if self._goe:
                    accepted = self._goe.register(self._call, self._set, gpu)
                    self._structured = self._structured or accepted

    def rebuild_if_due(self, now: float) -> None:
        """Build the set again a second after a failed wait."""
        if self._rebuild_at is not None and now >= self._rebuild_at:
            self.build(self._enumerated)

    def wait(self, timeout_ms: int, now: float) -> GpuEvent | None:
        """Return the next event; None on timeout or if the set failed."""
        try:
            if self._structured:
                return self._read(self._goe.wait(self._set, timeout_ms))
            data = nvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except nvml.NVMLError as error:
            if self._structured and error.value in self._goe.NOT_HERE:
                text = f"{self.wait_call} returned {error.value}. GPU Operational Events are off."
                self._call.send(Note(text))
                self._goe = None
            if error.value != TIMEOUT:
                # Raises if the driver is gone; any other error frees the set.
                self._call(self.wait_call, _raise, error)
                self.free()
                self._rebuild_at = now + REBUILD_AFTER_S
            return None
        return self._event(data, self._gpus.get(inventory.handle_value(data.device)))

    def _read(self, record: Any) -> GpuEvent | None:
        """Return the event of a record of either kind."""
        uuid = self._goe.gpu_of(record)
        gpu = next((each for each in self._gpus.values() if each.device.uuid == uuid), None)
        if not self._goe.is_operational(record):
            return self._event(record, gpu)
        event: GpuEvent | None = self._goe.decode(self._call, self._set, record, gpu)
        return event

    def _event(self, data: Any, gpu: Gpu | None) -> GpuEvent | None:
        row = self._rows.get(data.eventType)
        if row is None:
            return None
        return GpuEvent(
            at=time.time(),
            kind=row.kind,
            # NVML only sets the data of an Xid; for other events it is undefined.
            data=int(data.eventData) if row.kind is EventKind.XID else 0,
            gpu=gpu.device.uuid if gpu else "",
            pci=gpu.device.pci if gpu else "",
            gi=_instance(data.gpuInstanceId),
            ci=_instance(data.computeInstanceId),
        )

    def free(self) -> None:
        """Free the set."""
        if self._set is not None:
            self._call("nvmlEventSetFree", nvml.nvmlEventSetFree, self._set)
        self._set = None
        self._gpus = {}
        self._structured = False


def _instance(number: int) -> int | None:
    return None if number == NO_INSTANCE else int(number)


def _raise(error: Exception) -> None:
    raise error
