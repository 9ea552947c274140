"""Reads `/dev/kmsg`: one record per read, from the start of the kernel's ring, then as they come.

Runs in one thread of the agent and hands facts to a sink. It must never block the kernel, never
end on a bad record, and never use a record's own clock for anything but records from before it
started: the order of records is their sequence, which nothing can adjust.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Callable

from agent.sources.kernel_record import MAX_RECORD_BYTES, Reading, Sieve, Sink, parse_record
from rules.judge.observation import KernelGap, KernelRead
from rules.kernel_log.scan import worth_parsing

Read = Callable[[int, int], bytes]
"""`os.read`, or a kernel that a test plays."""

PROGRESS_EVERY_S = 30.0
"""How often progress without a finding is reported: it rides along with other writes."""

LARGEST_BUFFER_BYTES = 64 * 1024
RETRY_S = 5.0
"""A device that cannot be read is tried again this often, and its source is Down meanwhile."""


class Lookback:
    """Tells records from before the start from later ones, by sequence and without a race.

    A second descriptor waits at the end of the ring: the first record it yields is the first one
    written after the start. While it yields nothing, nothing has been written since.
    """

    def __init__(self, path: str, read: Read = os.read) -> None:
        self._read = read
        self._fd: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            # Not a kernel log that can be positioned: everything it yields is new.
            self.end()
        self._first_new: int | None = None

    @property
    def over(self) -> bool:
        """Whether every further record is new."""
        return self._fd is None

    def covers(self, sequence: int) -> bool:
        """Whether the record with this sequence was written before the start."""
        if self._fd is None:
            return False
        if self._first_new is None:
            self._first_new = self._first_after_start(self._fd)
        if self._first_new is None or sequence < self._first_new:
            return True
        self.end()
        return False

    def end(self) -> None:
        """The reader has caught up."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _first_after_start(self, fd: int) -> int | None:
        for _ in range(16):
            try:
                header = parse_record(self._read(fd, MAX_RECORD_BYTES))
            except BlockingIOError:
                return None
            except OSError:
                # EPIPE: overwritten already; the next read yields the oldest record still there.
                continue
            if header is not None:
                return header.sequence
        return None


class KmsgDevice:
    """The reader of a character device in the format of `/dev/kmsg`.

    `after` is the last sequence of this boot that an earlier run has judged (-1: none): such
    records are not reported again. Raises OSError from `start` when the device cannot be opened.
    """

    def __init__(
        self, path: str, sieve: Sieve, sink: Sink, *, after: int = -1, read: Read = os.read
    ) -> None:
        self._read = read
        self._path = path
        self._sieve = sieve
        self._sink = sink
        self._reading = Reading(sink)
        self._after = after
        self._last = b""
        self._last_sequence = after
        self._buffer_bytes = MAX_RECORD_BYTES
        self._reported_at = 0.0
        self._reported = -1
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the device and start reading it."""
        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lookback = Lookback(self._path, self._read)
        self._offset_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="kernel-log", daemon=True)
        self._thread.start()

    def read_now(self) -> None:
        """Nothing to do: the kernel wakes this reader."""

    def close(self) -> None:
        """Stop reading and release the device."""
        self._stopping = True
        if self._thread is None:
            return
        os.write(self._wake_write, b"x")
        self._thread.join()
        self._lookback.end()
        for fd in (self._fd, self._wake_read, self._wake_write):
            os.close(fd)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        wake_only = select.poll()
        wake_only.register(self._wake_read, select.POLLIN)
        while not self._stopping:
            try:
                self._drain()
                self._reading.worked()
            except OSError:
                self._reading.failed()
                # Not before this: a device that fails is readable all the time.
                wake_only.poll(RETRY_S * 1000)
                continue
            self._lookback.end()
            self._report_progress()
            poller.poll(PROGRESS_EVERY_S * 1000)

    def _drain(self) -> None:
        """Read until the kernel has no more. The inner loop is the hot path of a log storm."""
        fd, size = self._fd, self._buffer_bytes
        read = self._read
        count = 0
        raw = self._last
        try:
            while not self._stopping:
                try:
                    while True:
                        raw = read(fd, size)
                        count += 1
                        if worth_parsing(raw):
                            break
                except BlockingIOError:
                    return
                except OSError as error:
                    self._last = raw
                    self._step_over(error)
                    size = self._buffer_bytes
                    continue
                if not raw:
                    return
                self._last = raw
                self._examine(raw)
        finally:
            self._last = raw
            self._sieve.counts.read += count

    def _examine(self, raw: bytes) -> None:
        header = parse_record(raw)
        if header is None:
            self._sieve.counts.malformed += 1
            return
        if header.sequence <= self._after:
            return
        at = time.time()
        lookback = self._lookback.covers(header.sequence)
        if lookback:
            at = min(at, self._offset_s + header.since_boot_s)
        seen = self._sieve.fact(raw, sequence=header.sequence, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)

    def _step_over(self, error: OSError) -> None:
        """Go on after what the device answers in the normal course; raise anything else."""
        if error.errno == errno.EPIPE:
            self._count_gap()
        elif error.errno == errno.EINVAL and self._buffer_bytes < LARGEST_BUFFER_BYTES:
            # The record is larger than the buffer; the kernel has moved past it.
            self._sieve.counts.malformed += 1
            self._buffer_bytes *= 2
        elif error.errno != errno.EINTR:
            raise error

    def _count_gap(self) -> None:
        """Records were overwritten: the next record's sequence says how many."""
        before = self._sequence_of(self._last)
        try:
            raw = self._read(self._fd, self._buffer_bytes)
        except OSError:
            # Overwritten again meanwhile: the next attempt finds the whole gap.
            return
        self._sieve.counts.read += 1
        self._last = raw
        oldest = self._sequence_of(raw)
        lost = oldest - before - 1
        if before >= 0 and lost > 0:
            self._sieve.counts.lost += lost
            self._sink(
                KernelGap(
                    at=time.time(), lost=lost, boot_id=self._sieve.boot_id, sequence=oldest - 1
                )
            )
        if worth_parsing(raw):
            self._examine(raw)

    def _sequence_of(self, raw: bytes) -> int:
        header = parse_record(raw) if raw else None
        return header.sequence if header is not None else self._last_sequence

    def _report_progress(self) -> None:
        sequence = self._sequence_of(self._last)
        now = time.monotonic()
        first = self._reported_at == 0.0
        if not first and (
            sequence == self._reported or now - self._reported_at < PROGRESS_EVERY_S
        ):
            return
        self._reported_at, self._reported, self._last_sequence = now, sequence, sequence
        self._sink(KernelRead(at=time.time(), boot_id=self._sieve.boot_id, sequence=sequence))
