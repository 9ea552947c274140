"""One life of the NVML child: initialise, poll, wait for events, take orders, shut down.

Run by `child`. One thread: a call that hangs, hangs everything, which the parent sees and says.
"""

import ctypes
import heapq
import os
import select
import time

import msgspec
import pynvml as nvml

from agent.nvml import inventory, messages, poller, reads
from agent.nvml.events import GpuEvents
from agent.nvml.inventory import Absent, Caller, DriverGoneError, Failed, Gpu, Value
from agent.nvml.poller import Poller, Tier
from rules.catalog import signals
from rules.catalog.signals import EventKind, Signal
from rules.judge.observation import GpuEvent, Inventory, Readings

EXIT_INIT_FAILED = 3
SLICE_S = 0.5
"""The longest wait in the driver at a time: how soon an order to let go is heard."""
ANNOUNCE_S = 2.0
"""While waiting, the parent hears this often that all is well."""
CONFIRM_AFTER_S = 2.0
"""A reading that changed is read again after this: long enough for a passing state to pass."""
START_AGAIN_S = 60.0
FAST_PERIODS = {Tier.FAST: 1, Tier.MEDIUM: 4, Tier.SLOW: 240}
"""The period of each tier in those of the fastest."""
HURRY_APART_S = 1.0
"""A storm of events must not become a storm of polls."""

_decode = msgspec.msgpack.Decoder(messages.ToChild).decode


def _return_freed_memory() -> None:
    """Return memory that was freed to the system; glibc alone can.

    Initialising the driver's library and reading the GPUs once frees 11 MiB on an H200 (R580),
    which the C library would keep for as long as the child lives.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Schedule:
    """Due times of (GPU index, tier). `jitter` is a fraction of a period, 0 to 1.

    `fast_s` is the period of the fastest tier. Everything is due once at start, then spread evenly
    over each period, which keeps every wake-up short.
    """

    def __init__(
        self, count: int, now: float, jitter: float, fast_s: float = messages.POLL_S
    ) -> None:
        self._periods_s = {tier: fast_s * periods for tier, periods in FAST_PERIODS.items()}
        self._heap: list[tuple[float, int, Tier]] = [
            (now, index, tier) for tier in Tier for index in range(count)
        ]
        # One GPU after another, and all shifted by the jitter: nodes booted together poll apart.
        self._slots = {
            (index, tier): now + self._periods_s[tier] * ((index + jitter) / count)
            for tier in Tier
            for index in range(count)
        }
        heapq.heapify(self._heap)
        self._taken: dict[tuple[int, Tier], float] = {}

    def next_due(self) -> float | None:
        """When the next poll is due; None without GPUs."""
        return self._heap[0][0] if self._heap else None

    def hurry(self, index: int, tier: Tier, at: float) -> None:
        """Bring one poll forward to `at`, but not closer than a second to the one before."""
        at = max(at, self._taken.get((index, tier), at - HURRY_APART_S) + HURRY_APART_S)
        self._heap = [
            (min(due, at), i, t) if (i, t) == (index, tier) else (due, i, t)
            for due, i, t in self._heap
        ]
        heapq.heapify(self._heap)

    def take(self, now: float) -> tuple[int, Tier] | None:
        """The most overdue poll, which is then due again a period later; None if none is due."""
        if not self._heap or self._heap[0][0] > now:
            return None
        _, index, tier = self._heap[0]
        self._taken[index, tier] = now
        period = self._periods_s[tier]
        due = self._slots[index, tier]
        if due <= now:
            # Missed periods (a hang, a suspended machine) are skipped, not made up for.
            due += period * (int((now - due) / period) + 1)
        self._slots[index, tier] = due
        heapq.heapreplace(self._heap, (due, index, tier))
        return index, tier


class Child:
    """From nvmlInit to nvmlShutdown, on two pipes. `jitter` is a fraction of a period, 0 to 1."""

    def __init__(self, orders: int, reports: int, jitter: float, poll_s: float) -> None:
        self._orders = orders
        self._reports = reports
        self._jitter = jitter
        self._poll_s = poll_s
        self._framer = messages.Framer()
        self._announced_until = 0.0
        self._call = Caller(self.send)
        self._gpus: list[Gpu] = []
        self._branch = 0
        self._silent: set[int] = set()
        self._last: dict[tuple[int, Tier], dict[Signal, Value]] = {}
        self._finished = False
        self._status = 0
        self._refresh_wanted = False

    def send(self, message: messages.FromChild) -> None:
        """Write one message to the parent, whole."""
        self._announced_until = 0.0
        data = memoryview(messages.frame(message))
        while data:
            data = data[os.write(self._reports, data) :]

    def run(self) -> int:
        """Live; the exit status."""
        try:
            return self._live()
        except DriverGoneError as gone:
            self.send(gone.fact)
            return messages.EXIT_REINITIALISE

    def _live(self) -> int:
        started = self._call(
            messages.INIT_CALL, nvml.nvmlInitWithFlags, nvml.NVML_INIT_FLAG_NO_GPUS
        )
        if isinstance(started, Failed):
            if started.code == messages.GPU_NOT_FOUND:
                return self._wait_without_gpus()
            self.send(DriverGoneError(started.call, started.code).fact)
            return EXIT_INIT_FAILED
        # Of a driver whose version cannot be read nothing new is asked.
        version = self._call.text("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion)
        self._branch = signals.driver_branch(version) or 0
        self._events = GpuEvents(self._call, self._branch)
        self._enumerate()
        _return_freed_memory()
        while not self._finished:
            self._poll_due()
            self._wait()
            self._hear(0.0)
            if self._refresh_wanted:
                self._enumerate()
        self._events.free()
        self._call("nvmlShutdown", nvml.nvmlShutdown)
        return self._status

    def _wait_without_gpus(self) -> int:
        """NVML would not even start without a GPU: it is asked again now and then, and on
        order.
        """
        self.send(Inventory(at=time.time(), driver=""))
        again_at = time.monotonic() + START_AGAIN_S
        while not self._finished:
            self.send(messages.Calling(call="wait for orders", within_s=ANNOUNCE_S))
            self._hear(ANNOUNCE_S)
            if self._refresh_wanted or time.monotonic() >= again_at:
                return messages.EXIT_REINITIALISE
        return self._status

    def _enumerate(self) -> None:
        """Say what there is, read every tier, and last say how the GPUs are joined."""
        self._refresh_wanted = False
        self._silent.clear()
        self._last.clear()
        self._gpus = inventory.enumerate_gpus(self._call, self._gpus)
        self.send(self._inventory())
        self._poller = Poller(self._call, self._branch)
        now = time.monotonic()
        self._schedule = Schedule(len(self._gpus), now, self._jitter, self._poll_s)
        self._events.build(self._gpus)
        self._poll_due()
        self.send(reads.topology(self._call, self._gpus, self._branch))

    def _inventory(self) -> Inventory:
        call = self._call
        return Inventory(
            at=time.time(),
            driver=call.text("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion),
            gpus=tuple(gpu.device for gpu in self._gpus),
            virtualization=inventory.virtualization(call, self._gpus),
            excluded=tuple(inventory.excluded(call)),
        )

    def _poll_due(self) -> None:
        while not self._finished:
            taken = self._schedule.take(time.monotonic())
            if taken is None:
                return
            index, tier = taken
            self._poll(self._gpus[index], tier)
            self._hear(0.0)

    def _poll(self, gpu: Gpu, tier: Tier) -> None:
        if gpu.handle is None:
            self._look_for(gpu, tier)
            return
        values = self._poller.poll(gpu, tier, time.monotonic())
        self._report(gpu, tier, values)
        mig = values.get(Signal.MIG_MODE)
        if (
            isinstance(mig, int)
            and gpu.device.mig_mode is not None
            and bool(mig) != gpu.device.mig_mode
        ):
            self._refresh_wanted = True

    def _report(self, gpu: Gpu, tier: Tier, values: dict[Signal, Value]) -> None:
        told = {
            name: None if isinstance(value, Absent) else value for name, value in values.items()
        }
        device = gpu.device
        self.send(Readings(at=time.time(), gpu=device.uuid, pci=device.pci, values=told))
        self._confirm(device.index, tier, values)
        if tier is Tier.FAST:
            self._notice_silence(device.index, values)

    def _confirm(self, index: int, tier: Tier, values: dict[Signal, Value]) -> None:
        """Read again soon what is new: it must not be believed, or waited for, on one reading."""
        watched = {name: value for name, value in values.items() if name in poller.CONFIRMED}
        before = self._last.get((index, tier))
        self._last[index, tier] = watched
        if before == watched or (before is None and tier is Tier.SLOW):
            return
        self._schedule.hurry(index, tier, time.monotonic() + CONFIRM_AFTER_S)
        if before is None:
            return
        if before.get(Signal.PRESENCE, "present") != watched.get(Signal.PRESENCE, "present"):
            # A GPU that came back has no place in the event set yet, and may be another one.
            self._refresh_wanted = watched[Signal.PRESENCE] == "present"

    def _look_for(self, gpu: Gpu, tier: Tier) -> None:
        """A GPU that did not enumerate: report it at every fast poll until it does.

        A driver that lets nobody at the GPU says nothing of whether it is there.
        """
        if tier is not Tier.FAST:
            return
        index = gpu.device.index
        found = self._call("nvmlDeviceGetHandleByIndex_v2", nvml.nvmlDeviceGetHandleByIndex, index)
        if not isinstance(found, Failed):
            self._refresh_wanted = True
            return
        self.send(found.of(gpu.device))
        if found.code not in messages.NO_ACCESS:
            self._report(
                gpu, tier, {Signal.PRESENCE: poller.PRESENCE.get(found.meaning, poller.MISSING)}
            )

    def _notice_silence(self, index: int, values: dict[Signal, Value]) -> None:
        """One GPU may be missing; a driver that has none of them left is gone itself."""
        if values[Signal.PRESENCE] != poller.MISSING:
            self._silent.discard(index)
            return
        if not self._silent:
            # The GPU or the driver: the others tell, before this one is read again.
            for other in range(len(self._gpus)):
                if other != index:
                    self._schedule.hurry(other, Tier.FAST, time.monotonic())
        self._silent.add(index)
        if len(self._silent) == len(self._gpus):
            raise DriverGoneError("nvmlDeviceGetFieldValues", messages.UNKNOWN_ERROR)

    def _wait(self) -> None:
        """Until the next poll, in slices: in the driver for events, or for orders without a
        set.
        """
        now = time.monotonic()
        self._events.rebuild_if_due(now)
        due = self._schedule.next_due()
        left_s = SLICE_S if due is None else min(SLICE_S, due - now)
        if left_s <= 0:
            return
        if now >= self._announced_until:
            call = "nvmlEventSetWait_v2" if self._events.waiting else "wait for orders"
            self.send(messages.Calling(call=call, within_s=ANNOUNCE_S))
            self._announced_until = now + ANNOUNCE_S
        if not self._events.waiting:
            self._hear(left_s)
            return
        event = self._events.wait(max(1, int(left_s * 1000)), now)
        if event is not None:
            self._tell(event)
        elif self._events.failed:
            # The set failed, which mostly means that a GPU was lost: find out which.
            for index in range(len(self._gpus)):
                self._schedule.hurry(index, Tier.FAST, now)

    def _tell(self, event: GpuEvent) -> None:
        self.send(event)
        for gpu in self._gpus:
            # An event that names no GPU may be about any of them.
            if event.gpu in ("", gpu.device.uuid):
                self._schedule.hurry(gpu.device.index, Tier.FAST, time.monotonic())
                self._schedule.hurry(gpu.device.index, Tier.MEDIUM, time.monotonic())
        if event.kind is EventKind.MIG_CONFIG_CHANGE:
            self._refresh_wanted = True

    def _hear(self, timeout_s: float) -> None:
        """Take the parent's orders; its end of the pipe closing is the order to finish."""
        ready, _, _ = select.select([self._orders], [], [], timeout_s)
        if not ready:
            return
        data = os.read(self._orders, 4096)
        if not data:
            self._finished = True
        for body in self._framer.feed(data):
            match _decode(body):
                case messages.Finish():
                    self._finished = True
                case messages.Refresh():
                    self._refresh_wanted = True
                case messages.Reinitialise():
                    self._finished = True
                    self._status = messages.EXIT_REINITIALISE
