"""Follows a file or FIFO that holds one `/dev/kmsg` record per line.

For demonstrations, tests and hosts that export their kernel log through a file. Survives
rotation, truncation and lines that arrive in pieces; a line without an end is dropped at the
kernel's own bound. Runs in one thread and hands facts to a sink, as the device reader does.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time

from agent.kernel_log.device import PROGRESS_EVERY_S
from agent.kernel_log.record import MAX_RECORD_BYTES, Reading, Sieve, Sink, parse_record
from rules.judge.observation import KernelRead

CHUNK_BYTES = 256 * 1024
LOOK_EVERY_S = 0.05
"""How often a regular file is looked at: the kernel does not wake a poll on one."""


class Lines:
    """Cuts chunks into whole lines; a line beyond the bound is skipped and counted."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False
        self.oversized = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Every line that `chunk` completes."""
        *whole, rest = (self._rest + chunk).split(b"\n")
        if whole and self._skipping:
            del whole[0]
            self._skipping = False
        if len(rest) > MAX_RECORD_BYTES:
            self.oversized += not self._skipping
            self._skipping, rest = True, b""
        self._rest = rest
        return whole

    def forget(self) -> None:
        """The file was replaced: what is left of its last line will never be completed."""
        self._rest, self._skipping = b"", False


class KmsgFile:
    """The reader of a followed file or FIFO. `start` raises OSError when it cannot be opened.

    What a regular file holds at the start is look-back; a FIFO has no past. `after` as in
    `KmsgDevice`: it is only compared with records of the look-back, since files may be written by
    anybody and their sequences may start again.
    """

    def __init__(self, path: str, sieve: Sieve, sink: Sink, *, after: int = -1) -> None:
        self._path = path
        self._sieve = sieve
        self._sink = sink
        self._reading = Reading(sink)
        self._after = after
        self._lines = Lines()
        self._sequence = after
        self._reported: int | None = None
        self._reported_at = 0.0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the file and start following it."""
        self._open()
        self._lookback_end = 0 if self._fifo else os.fstat(self._fd).st_size
        self._offset_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="kernel-log", daemon=True)
        self._thread.start()

    def read_now(self) -> None:
        """Nothing to do: the file is looked at often enough."""

    def close(self) -> None:
        """Stop following and close the file."""
        self._stopping = True
        if self._thread is None:
            return
        os.write(self._wake_write, b"x")
        self._thread.join()
        for fd in (self._fd, self._wake_read, self._wake_write):
            os.close(fd)

    def _open(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._fifo = stat.S_ISFIFO(os.stat(self._path).st_mode)  # noqa: PTH116 - the agent's reader speaks in descriptors throughout
        # A FIFO opened for writing too does not end when its last writer leaves.
        self._fd = os.open(self._path, flags | (os.O_RDWR if self._fifo else os.O_RDONLY))
        self._read = 0

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if self._fifo:
            poller.register(self._fd, select.POLLIN)
        wait_s = PROGRESS_EVERY_S if self._fifo else LOOK_EVERY_S
        while not self._stopping:
            try:
                self._drain()
                if not self._fifo:
                    self._follow_rotation()
                self._reading.worked()
            except OSError:
                # A file system that went away: the name is opened again when it is back.
                self._reading.failed()
            self._report_progress()
            poller.poll(wait_s * 1000)

    def _drain(self) -> None:
        while not self._stopping:
            past = self._lookback_end - self._read
            lookback = past > 0
            try:
                chunk = os.read(self._fd, min(past, CHUNK_BYTES) if lookback else CHUNK_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            self._read += len(chunk)
            before = self._lines.oversized
            for line in self._lines.feed(chunk):
                self._examine(line, lookback=lookback)
            self._sieve.counts.malformed += self._lines.oversized - before

    def _examine(self, raw: bytes, *, lookback: bool) -> None:
        self._sieve.counts.read += 1
        header = parse_record(raw)
        if header is None:
            self._sieve.counts.malformed += bool(raw)
            return
        if lookback and header.sequence <= self._after:
            return
        self._sequence = header.sequence
        if not self._sieve.worth_parsing(raw):
            return
        now = time.time()
        at = min(now, self._offset_s + header.since_boot_s) if lookback else now
        seen = self._sieve.fact(raw, sequence=header.sequence, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)

    def _follow_rotation(self) -> None:
        """Begin again when the name points to another file or the file became shorter."""
        try:
            named = os.stat(self._path)  # noqa: PTH116 - compared with fstat of a descriptor
        except OSError:
            # Between two names of a rotation: the old file stays open until the new one is there.
            return
        ours = os.fstat(self._fd)
        if (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino):
            if ours.st_size >= self._read:
                return
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._read = 0
        else:
            self._drain()
            old = self._fd
            try:
                self._open()
            except OSError:
                return
            os.close(old)
        self._lookback_end = 0
        self._lines.forget()

    def _report_progress(self) -> None:
        now = time.monotonic()
        if self._reported is not None and (
            self._sequence == self._reported or now - self._reported_at < PROGRESS_EVERY_S
        ):
            return
        self._reported, self._reported_at = self._sequence, now
        boot_id = self._sieve.boot_id
        self._sink(KernelRead(at=time.time(), boot_id=boot_id, sequence=self._sequence))
