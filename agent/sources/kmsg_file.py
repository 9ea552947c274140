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

from agent.sources.kernel_record import MAX_RECORD_BYTES, Reading, Sieve, Sink, parse_record
from agent.sources.kmsg_device import PROGRESS_EVERY_S
from rules.judge.observation import KernelRead
from rules.kernel_log.scan import worth_parsing

REMEMBERED_BYTES = 256
"""The end of what was read is compared before more is read: records hold their number and time,
so a text that was cut and grew again differs there."""


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
        """The text was replaced: what is left of its last line will never be completed."""
        self._rest, self._skipping = b"", False


class FollowedFile:
    """A descriptor of a file or FIFO, how far it was read, and its unfinished line.

    Raises OSError from the constructor when it cannot be opened, and from any call when the file
    system went away.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.fifo = stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - the agent's reader speaks in descriptors throughout
        # A FIFO opened for writing too does not end when its last writer leaves.
        self.fd = os.open(path, flags | (os.O_RDWR if self.fifo else os.O_RDONLY))
        self.lines = Lines()
        self.position = 0
        self._end = b""
        self._looked_at = (-1, -1)

    @property
    def size(self) -> int:
        """How many bytes the file holds now."""
        return os.fstat(self.fd).st_size

    def is_named(self, path: str) -> bool:
        """Whether `path` names this file. Raises OSError when it names nothing."""
        named, ours = os.stat(path), os.fstat(self.fd)  # noqa: PTH116 - compared with a descriptor
        return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)

    def began_anew(self) -> bool:
        """Whether the file was cut and written again, though it may be longer than before.

        If so, reading begins again at its start.
        """
        if self.fifo:
            return False
        seen = os.fstat(self.fd)
        looked_at = (seen.st_size, seen.st_mtime_ns)
        if looked_at == self._looked_at:
            return False
        self._looked_at = looked_at
        start = self.position - len(self._end)
        if seen.st_size >= self.position and (
            os.pread(self.fd, len(self._end), start) == self._end
        ):
            return False
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.position, self._end = 0, b""
        self.lines.forget()
        return True

    def read(self, most: int) -> bytes:
        """The next bytes, empty at the end of what there is."""
        try:
            chunk = os.read(self.fd, most)
        except BlockingIOError:
            return b""
        self.position += len(chunk)
        self._end = (self._end + chunk[-REMEMBERED_BYTES:])[-REMEMBERED_BYTES:]
        return chunk

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self.fd)


CHUNK_BYTES = 256 * 1024
LOOK_EVERY_S = 0.05
"""How often a regular file is looked at: the kernel does not wake a poll on one."""

LEAVING_FOR_S = 60.0
"""How long a rotated file is read beside its successor after its last line: a logger writes to
the file it has open until it is told. Source: gpuward; logrotate's scripts tell it in seconds."""


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
        self._leaving: FollowedFile | None = None
        self._leaving_until = 0.0
        self._sequence = after
        self._reported: int | None = None
        self._reported_at = 0.0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the file and start following it."""
        self._log = FollowedFile(self._path)
        self._lookback_end = 0 if self._log.fifo else self._log.size
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
        self._log.close()
        self._leave()
        for fd in (self._wake_read, self._wake_write):
            os.close(fd)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if self._log.fifo:
            poller.register(self._log.fd, select.POLLIN)
        wait_s = PROGRESS_EVERY_S if self._log.fifo else LOOK_EVERY_S
        while not self._stopping:
            try:
                self._look()
                self._reading.worked()
            except OSError:
                # A file system that went away: the name is opened again when it is back.
                self._reading.failed()
            self._report_progress()
            poller.poll(wait_s * 1000)

    def _look(self) -> None:
        """Read what there is: the file that a rotation left behind first, in the order of time."""
        if self._leaving is not None:
            self._drain_leaving(self._leaving)
        if self._log.began_anew():
            self._lookback_end = 0
        self._drain(self._log)
        if not self._log.fifo:
            self._follow_rotation()

    def _drain_leaving(self, log: FollowedFile) -> None:
        try:
            if self._drain(log):
                self._leaving_until = time.monotonic() + LEAVING_FOR_S
        except OSError:
            self._leaving_until = 0.0
        if time.monotonic() >= self._leaving_until:
            self._leave()

    def _leave(self) -> None:
        if self._leaving is not None:
            self._leaving.close()
            self._leaving = None

    def _drain(self, log: FollowedFile) -> bool:
        """Read `log` to its end; whether it held anything."""
        found = False
        while not self._stopping:
            past = self._lookback_end - log.position
            lookback = past > 0
            chunk = log.read(min(past, CHUNK_BYTES) if lookback else CHUNK_BYTES)
            if not chunk:
                break
            found = True
            before = log.lines.oversized
            for line in log.lines.feed(chunk):
                self._examine(line, lookback=lookback)
            self._sieve.counts.malformed += log.lines.oversized - before
        return found

    def _examine(self, raw: bytes, *, lookback: bool) -> None:
        self._sieve.counts.read += 1
        header = parse_record(raw)
        if header is None:
            self._sieve.counts.malformed += bool(raw)
            return
        if lookback and header.sequence <= self._after:
            return
        self._sequence = header.sequence
        if not worth_parsing(raw):
            return
        now = time.time()
        at = min(now, self._offset_s + header.since_boot_s) if lookback else now
        seen = self._sieve.fact(raw, sequence=header.sequence, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)

    def _follow_rotation(self) -> None:
        """Begin with another file when the name points to one; the old one is read on for a
        while.
        """
        try:
            if self._log.is_named(self._path):
                return
            successor = FollowedFile(self._path)
        except OSError:
            # Between two names of a rotation: the old file stays open until the new one is there.
            return
        self._drain(self._log)
        self._leave()
        self._leaving, self._log = self._log, successor
        self._leaving_until = time.monotonic() + LEAVING_FOR_S
        self._lookback_end = 0

    def _report_progress(self) -> None:
        now = time.monotonic()
        if self._reported is not None and (
            self._sequence == self._reported or now - self._reported_at < PROGRESS_EVERY_S
        ):
            return
        self._reported, self._reported_at = self._sequence, now
        boot_id = self._sieve.boot_id
        self._sink(KernelRead(at=time.time(), boot_id=boot_id, sequence=self._sequence))
