"""Read records in the format of `/dev/kmsg` from the device, a file or a FIFO.

Each reader runs in one thread and passes facts to a sink. It must not block the kernel or stop at
a bad record. It uses a record's own time only for records from before the start. The sequence
number defines the order of records, because the clock may be adjusted.
"""

import errno
import os
import select
import stat
import threading
import time
from abc import abstractmethod
from collections.abc import Callable

from agent.sources import kernel_record
from agent.sources.kernel_record import KernelLogReader, Reading, RecordFilter, Sink
from rules.judge.observation import KernelGap, KernelRead
from rules.kernel_log import scan

Read = Callable[[int, int], bytes]
"""`os.read`, or a replacement in tests."""

PROGRESS_EVERY_S = 30.0
"""How often progress without a finding is reported."""

LARGEST_BUFFER_BYTES = 64 * 1024
RETRY_S = 5.0
"""Retry interval for a device that cannot be read; its source is Down meanwhile."""

CHUNK_BYTES = 256 * 1024
POLL_EVERY_S = 0.05
"""Polling interval of a regular file: poll(2) does not report growth."""


class _Reader(KernelLogReader):
    """A thread that reads records until it is closed.

    `after` is the last sequence of this boot that an earlier process assessed (-1: none); records
    up to it are not reported again. `start` raises OSError if the log cannot be opened.
    """

    def __init__(
        self, path: str, record_filter: RecordFilter, sink: Sink, *, after: int = -1
    ) -> None:
        self._path = path
        self._record_filter = record_filter
        self._sink = sink
        self._reading = Reading(sink)
        self._after = after
        self._sequence = after
        self._reported: int | None = None
        self._reported_at = 0.0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the log and start reading it."""
        self._open()
        self._offset_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="kernel-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading and close the files."""
        self._stopping = True
        if self._thread is None:
            return
        os.write(self._wake_write, b"x")
        self._thread.join()
        self._release()
        for fd in (self._wake_read, self._wake_write):
            os.close(fd)

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def _release(self) -> None: ...

    def _report(self, raw: bytes, sequence: int, since_boot_s: float, *, lookback: bool) -> None:
        """Filter one record; a record from before the start keeps its own time."""
        at = time.time()
        if lookback:
            at = min(at, self._offset_s + since_boot_s)
        seen = self._record_filter.fact(raw, sequence=sequence, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)

    def _report_progress(self) -> None:
        now = time.monotonic()
        if self._reported is not None and (
            self._sequence == self._reported or now - self._reported_at < PROGRESS_EVERY_S
        ):
            return
        self._reported, self._reported_at = self._sequence, now
        boot_id = self._record_filter.boot_id
        self._sink(KernelRead(at=time.time(), boot_id=boot_id, sequence=self._sequence))


class Lookback:
    """Finds out which records are from before the start, by sequence and without a race.

    A second descriptor is positioned at the end of the ring. The first record that it returns is
    the first one after the start.
    """

    def __init__(self, path: str, read: Read = os.read) -> None:
        self._read = read
        self._fd: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            # The log cannot be positioned: all its records are new.
            self.end()
        self._first_new: int | None = None

    @property
    def over(self) -> bool:
        """Whether all further records are new."""
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
        """End the lookback, because the reader has read all old records."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _first_after_start(self, fd: int) -> int | None:
        for _ in range(16):
            try:
                header = kernel_record.parse_record(self._read(fd, kernel_record.MAX_RECORD_BYTES))
            except BlockingIOError:
                return None
            except OSError:
                # EPIPE: overwritten; the next read returns the oldest record.
                continue
            if header is not None:
                return header.sequence
        return None


class KmsgDevice(_Reader):
    """Reads a character device in the format of `/dev/kmsg`."""

    def __init__(
        self,
        path: str,
        record_filter: RecordFilter,
        sink: Sink,
        *,
        after: int = -1,
        read: Read = os.read,
        retry_s: float = RETRY_S,
    ) -> None:
        super().__init__(path, record_filter, sink, after=after)
        self._read = read
        self._retry_s = retry_s
        self._last = b""
        self._buffer_bytes = kernel_record.MAX_RECORD_BYTES

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lookback = Lookback(self._path, self._read)

    def _release(self) -> None:
        self._lookback.end()
        os.close(self._fd)

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
                # Wait here, because poll reports a failing device as readable.
                wake_only.poll(self._retry_s * 1000)
                continue
            self._lookback.end()
            self._sequence = self._sequence_of(self._last)
            self._report_progress()
            poller.poll(PROGRESS_EVERY_S * 1000)

    def _drain(self) -> None:
        """Read until the kernel has no more records.

        The inner loop is the hot path of a log storm.
        """
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
                        if scan.worth_parsing(raw):
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
            self._record_filter.counts.read += count

    def _examine(self, raw: bytes) -> None:
        header = kernel_record.parse_record(raw)
        if header is None:
            self._record_filter.counts.malformed += 1
        elif header.sequence > self._after:
            lookback = self._lookback.covers(header.sequence)
            self._report(raw, header.sequence, header.since_boot_s, lookback=lookback)

    def _step_over(self, error: OSError) -> None:
        """Handle the errors that a device returns in normal operation; raise all others."""
        if error.errno == errno.EPIPE:
            self._count_gap()
        elif error.errno == errno.EINVAL and self._buffer_bytes < LARGEST_BUFFER_BYTES:
            # The record is larger than the buffer; the kernel has moved past it.
            self._record_filter.counts.malformed += 1
            self._buffer_bytes *= 2
        elif error.errno != errno.EINTR:
            raise error

    def _count_gap(self) -> None:
        """Report how many records were overwritten, from the next record's sequence."""
        before = self._sequence_of(self._last)
        try:
            raw = self._read(self._fd, self._buffer_bytes)
        except OSError:
            # Overwritten again: the next attempt finds the complete gap.
            return
        self._record_filter.counts.read += 1
        self._last = raw
        oldest = self._sequence_of(raw)
        lost = oldest - before - 1
        if before >= 0 and lost > 0:
            self._record_filter.counts.lost += lost
            self._sink(
                KernelGap(
                    at=time.time(),
                    lost=lost,
                    boot_id=self._record_filter.boot_id,
                    sequence=oldest - 1,
                )
            )
        if scan.worth_parsing(raw):
            self._examine(raw)

    def _sequence_of(self, raw: bytes) -> int:
        header = kernel_record.parse_record(raw) if raw else None
        return header.sequence if header is not None else self._sequence


class Lines:
    """Splits chunks into complete lines; a line that is too long is skipped and counted."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False
        self.oversized = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return every line that `chunk` completes."""
        *complete, rest = (self._rest + chunk).split(b"\n")
        if complete and self._skipping:
            del complete[0]
            self._skipping = False
        if len(rest) > kernel_record.MAX_RECORD_BYTES:
            self.oversized += not self._skipping
            self._skipping, rest = True, b""
        self._rest = rest
        return complete


class KmsgFile(_Reader):
    """Reads a FIFO, or a file that grows.

    The lookback of a regular file is its content at the start; a FIFO has none. `after` only
    applies to the lookback, because the sequences of such a file may start again. A file that was
    replaced or became shorter is read from its start.
    """

    def _open(self) -> None:
        self._fifo = stat.S_ISFIFO(os.stat(self._path).st_mode)  # noqa: PTH116 - kind of file
        # A FIFO that is also open for writing does not end when its last writer closes it.
        access = os.O_RDWR if self._fifo else os.O_RDONLY
        self._fd = os.open(self._path, access | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lines = Lines()
        self._position = 0
        self._lookback_end = 0 if self._fifo else os.fstat(self._fd).st_size

    def _release(self) -> None:
        os.close(self._fd)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if self._fifo:
            poller.register(self._fd, select.POLLIN)
        wait_s = PROGRESS_EVERY_S if self._fifo else POLL_EVERY_S
        while not self._stopping:
            try:
                self._drain()
                if not self._fifo and self._was_replaced():
                    self._drain()
                    self._reopen()
                    continue
                self._reading.worked()
            except OSError:
                # The file system is not available: the file is opened again when it is back.
                self._reading.failed()
            self._report_progress()
            poller.poll(wait_s * 1000)

    def _was_replaced(self) -> bool:
        """Whether the path is another file, or the file became shorter."""
        ours = os.fstat(self._fd)
        try:
            named = os.stat(self._path)  # noqa: PTH116 - compared with a descriptor
        except FileNotFoundError:
            return False  # between two names of a rotation
        return ours.st_size < self._position or not os.path.samestat(named, ours)

    def _reopen(self) -> None:
        before = self._fd
        self._open()
        os.close(before)
        self._lookback_end = 0

    def _drain(self) -> None:
        while not self._stopping:
            past = self._lookback_end - self._position
            lookback = past > 0
            try:
                chunk = os.read(self._fd, min(past, CHUNK_BYTES) if lookback else CHUNK_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            self._position += len(chunk)
            before = self._lines.oversized
            for line in self._lines.feed(chunk):
                self._examine(line, lookback=lookback)
            self._record_filter.counts.malformed += self._lines.oversized - before

    def _examine(self, raw: bytes, *, lookback: bool) -> None:
        self._record_filter.counts.read += 1
        header = kernel_record.parse_record(raw)
        if header is None:
            self._record_filter.counts.malformed += bool(raw)
            return
        if lookback and header.sequence <= self._after:
            return
        self._sequence = header.sequence
        if scan.worth_parsing(raw):
            self._report(raw, header.sequence, header.since_boot_s, lookback=lookback)
