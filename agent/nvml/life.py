"""The NVML child: initialise NVML, poll, wait for events, follow orders, shut down.

Used by `child`. It has one thread, so a call that hangs stops the child. The parent detects and
reports that.
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
"""The longest wait in the driver at a time: the delay until an order is read."""
ANNOUNCE_S = 2.0
"""While waiting, the child reports to the parent this often."""
CONFIRM_AFTER_S = 2.0
"""A changed reading is read again after this, when a temporary state has passed."""
START_AGAIN_S = 60.0
FAST_PERIODS = {Tier.FAST: 1, Tier.MEDIUM: 4, Tier.SLOW: 240}
"""The period of each tier, in periods of the fastest."""
HURRY_APART_S = 1.0
"""The least time between polls, so that many events do not cause many polls."""

_decode = msgspec.msgpack.Decoder(messages.ToChild).decode


def _return_freed_memory() -> None:
    """Return freed memory to the system, with glibc only.

    Initialising the driver's library and reading the GPUs once frees 11 MiB on an H200 (R580). The
    C library would keep that memory until the child exits.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Schedule:
    """Due times of (GPU index, tier). `jitter` is a fraction of a period, 0 to 1.

    `fast_s` is the period of the fastest tier. All polls are due at start, then spread evenly over
    each period, so that each wake-up is short.
    """

    def __init__(
        self, count: int, now: float, jitter: float, fast_s: float = messages.POLL_S
    ) -> None:
        self._periods_s = {tier: fast_s * periods for tier, periods in FAST_PERIODS.items()}
        self._heap: list[tuple[float, int, Tier]] = [
            (now, index, tier) for tier in Tier for index in range(count)
        ]
        # One GPU after another, shifted by the jitter: nodes that boot together poll apart.
        self._slots = {
            (index, tier): now + self._periods_s[tier] * ((index + jitter) / count)
            for tier in Tier
            for index in range(count)
        }
        heapq.heapify(self._heap)
        self._taken: dict[tuple[int, Tier], float] = {}

    def next_due(self) -> float | None:
        """Return when the next poll is due; None without GPUs."""
        return self._heap[0][0] if self._heap else None

    def bring_forward(self, index: int, tier: Tier, at: float) -> None:
        """Bring one poll forward to `at`, at least a second after the previous one."""
        at = max(at, self._taken.get((index, tier), at - HURRY_APART_S) + HURRY_APART_S)
        self._heap = [
            (min(due, at), i, t) if (i, t) == (index, tier) else (due, i, t)
            for due, i, t in self._heap
        ]
        heapq.heapify(self._heap)

    def take(self, now: float) -> tuple[int, Tier] | None:
        """Return the most overdue poll and schedule its next one; None if none is due."""
        if not self._heap or self._heap[0][0] > now:
            return None
        _, index, tier = self._heap[0]
        self._taken[index, tier] = now
        period = self._periods_s[tier]
        due = self._slots[index, tier]
        if due <= now:
            # Skip missed periods (after a hang or a suspended machine).
            due += period * (int((now - due) / period) + 1)
        self._slots[index, tier] = due
        heapq.heapreplace(self._heap, (due, index, tier))
        return index, tier


class Child:
    """Runs from nvmlInit to nvmlShutdown on two pipes. `jitter` is a fraction of a period.

    `goe`: register for GPU Operational Events where the driver has them.
    """

    def __init__(
        self, orders: int, reports: int, jitter: float, poll_s: float, *, goe: bool = False
    ) -> None:
        self._orders = orders
        self._reports = reports
        self._jitter = jitter
        self._poll_s = poll_s
        self._goe = goe
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
        """Write one complete message to the parent."""
        self._announced_until = 0.0
        data = memoryview(messages.frame(message))
        while data:
            data = data[os.write(self._reports, data) :]

    def run(self) -> int:
        """Run the child and return its exit status."""
        try:
            return self._poll_until_finished()
        except DriverGoneError as gone:
            self.send(gone.fact)
            return messages.EXIT_REINITIALISE

    def _poll_until_finished(self) -> int:
        started = self._call(
            messages.INIT_CALL, nvml.nvmlInitWithFlags, nvml.NVML_INIT_FLAG_NO_GPUS
        )
        if isinstance(started, Failed):
            if started.code == messages.GPU_NOT_FOUND:
                return self._wait_without_gpus()
            self.send(DriverGoneError(started.call, started.code).fact)
            return EXIT_INIT_FAILED
        # Without a driver version only the oldest fields and calls are used.
        version = self._call.text("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion)
        self._branch = signals.driver_branch(version) or 0
        self._events = GpuEvents(self._call, self._branch, operational=self._goe)
        self._enumerate()
        _return_freed_memory()
        while not self._finished:
            self._poll_due()
            self._wait()
            self._read_orders(0.0)
            if self._refresh_wanted:
                self._enumerate()
        self._events.free()
        self._call("nvmlShutdown", nvml.nvmlShutdown)
        return self._status

    def _wait_without_gpus(self) -> int:
        """Wait for a GPU: NVML does not initialise without one. Return the exit status."""
        self.send(Inventory(at=time.time(), driver=""))
        again_at = time.monotonic() + START_AGAIN_S
        while not self._finished:
            self.send(messages.Calling(call="wait for orders", within_s=ANNOUNCE_S))
            self._read_orders(ANNOUNCE_S)
            if self._refresh_wanted or time.monotonic() >= again_at:
                return messages.EXIT_REINITIALISE
        return self._status

    def _enumerate(self) -> None:
        """Send the inventory, the readings of every tier and then the topology."""
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
            self._read_orders(0.0)

    def _poll(self, gpu: Gpu, tier: Tier) -> None:
        if gpu.handle is None:
            self._poll_missing(gpu, tier)
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
        reported = {
            name: None if isinstance(value, Absent) else value for name, value in values.items()
        }
        device = gpu.device
        self.send(Readings(at=time.time(), gpu=device.uuid, pci=device.pci, values=reported))
        self._confirm(device.index, tier, values)
        if tier is Tier.FAST:
            self._notice_silence(device.index, values)

    def _confirm(self, index: int, tier: Tier, values: dict[Signal, Value]) -> None:
        """Schedule a second reading soon after a value changed, to confirm it."""
        watched = {name: value for name, value in values.items() if name in poller.CONFIRMED}
        before = self._last.get((index, tier))
        self._last[index, tier] = watched
        if before == watched or (before is None and tier is Tier.SLOW):
            return
        self._schedule.bring_forward(index, tier, time.monotonic() + CONFIRM_AFTER_S)
        if before is None:
            return
        if before.get(Signal.PRESENCE, "present") != watched.get(Signal.PRESENCE, "present"):
            # A GPU that came back is not in the event set, and may be another GPU.
            self._refresh_wanted = watched[Signal.PRESENCE] == "present"

    def _poll_missing(self, gpu: Gpu, tier: Tier) -> None:
        """Report a GPU that did not enumerate at every fast poll until it does.

        A refusal of access does not tell whether the GPU is present.
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
        """Record a GPU that is missing. Raises DriverGoneError if all of them are."""
        if values[Signal.PRESENCE] != poller.MISSING:
            self._silent.discard(index)
            return
        if not self._silent:
            # Read the other GPUs at once: if all are missing, the driver is gone.
            for other in range(len(self._gpus)):
                if other != index:
                    self._schedule.bring_forward(other, Tier.FAST, time.monotonic())
        self._silent.add(index)
        if len(self._silent) == len(self._gpus):
            raise DriverGoneError("nvmlDeviceGetFieldValues", messages.UNKNOWN_ERROR)

    def _wait(self) -> None:
        """Wait for the next poll in slices: for events in the driver, or for orders only."""
        now = time.monotonic()
        self._events.rebuild_if_due(now)
        due = self._schedule.next_due()
        left_s = SLICE_S if due is None else min(SLICE_S, due - now)
        if left_s <= 0:
            return
        if now >= self._announced_until:
            call = self._events.wait_call if self._events.waiting else "wait for orders"
            self.send(messages.Calling(call=call, within_s=ANNOUNCE_S))
            self._announced_until = now + ANNOUNCE_S
        if not self._events.waiting:
            self._read_orders(left_s)
            return
        event = self._events.wait(max(1, int(left_s * 1000)), now)
        if event is not None:
            self._forward(event)
        elif self._events.failed:
            # A set mostly fails because a GPU was lost: poll all to find it.
            for index in range(len(self._gpus)):
                self._schedule.bring_forward(index, Tier.FAST, now)

    def _forward(self, event: GpuEvent) -> None:
        self.send(event)
        for gpu in self._gpus:
            # An event without a GPU may be about any of them.
            if event.gpu in ("", gpu.device.uuid):
                self._schedule.bring_forward(gpu.device.index, Tier.FAST, time.monotonic())
                self._schedule.bring_forward(gpu.device.index, Tier.MEDIUM, time.monotonic())
        if event.kind is EventKind.MIG_CONFIG_CHANGE:
            self._refresh_wanted = True

    def _read_orders(self, timeout_s: float) -> None:
        """Read the parent's orders; a closed pipe is an order to finish."""
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
