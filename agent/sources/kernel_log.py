"""Open the kernel log as configured, and read it again for evidence.

The main loop owns the reader that `open_kernel_log` returns. `kmsg` reads `/dev/kmsg` and files.
If the device cannot be opened, this module reads the kernel's ring buffer through `syslog(2)`,
which needs CAP_SYSLOG and no device. That call has no sequence numbers and cannot wait. So the
reader reads the entire ring every 15 s and after an NVML Xid event, and finds new text by
comparing it with the last read.
"""

import ctypes
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from agent.sources import kernel_record
from agent.sources.kernel_record import KernelLogReader, Reading, RecordFilter, Sink
from agent.sources.kmsg import KmsgDevice, KmsgFile
from rules.judge.evidence import KernelMessage
from rules.judge.observation import KernelGap, KernelRead, SourceState
from rules.kernel_log import scan, stamps
from rules.kernel_log.text import MAX_LINE, split_prefix

DEFAULT_PATH = "/dev/kmsg"
SYSLOG = "syslog"
OFF = "off"
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


class OpenedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the source after opening; `reader` is None unless the source is Up."""

    reader: KernelLogReader | None
    state: SourceState
    reason: str
    sentence: str


def boot_id(path: Path = BOOT_ID_PATH) -> str:
    """Return the kernel's ID of this boot, as in the node's status."""
    return path.read_text(encoding="ascii").strip()


def open_kernel_log(
    mode: str,
    record_filter: RecordFilter,
    sink: Sink,
    *,
    after: int = -1,
) -> OpenedLog:
    """Start the reader that `mode` names: a path, `syslog` or `off`.

    `/dev/kmsg` falls back to `syslog(2)` if it cannot be opened; other paths do not.
    """
    if mode == OFF:
        return OpenedLog(
            reader=None,
            state=SourceState.ABSENT,
            reason="Off",
            sentence="The kernel log is off. Faults that only it shows are not detected.",
        )
    if mode == SYSLOG:
        return _open_ring(record_filter, sink, because="")
    try:
        reader = _reader_of(mode, record_filter, sink, after=after)
        reader.start()
    except OSError as error:
        because = f"Cannot open the kernel log {mode} ({error.strerror})."
        if mode == DEFAULT_PATH:
            return _open_ring(record_filter, sink, because=f"{because} ")
        return OpenedLog(
            reader=None, state=SourceState.DOWN, reason="CannotOpen", sentence=because
        )
    return OpenedLog(
        reader=reader, state=SourceState.UP, reason="", sentence=f"Reading the kernel log {mode}."
    )


def _reader_of(
    path: str, record_filter: RecordFilter, sink: Sink, *, after: int
) -> KernelLogReader:
    # Every character device is read like /dev/kmsg (1:11).
    if stat.S_ISCHR(os.stat(path).st_mode):  # noqa: PTH116 - only the kind of file matters
        return KmsgDevice(path, record_filter, sink, after=after)
    return KmsgFile(path, record_filter, sink, after=after)


def _open_ring(record_filter: RecordFilter, sink: Sink, *, because: str) -> OpenedLog:
    try:
        ring = KernelRing(record_filter, sink)
        ring.start()
    except OSError as error:
        return OpenedLog(
            reader=None,
            state=SourceState.ABSENT,
            reason="NoKernelLog",
            sentence=f"{because}syslog(2) failed ({error.strerror}). Mount /dev/kmsg or add the"
            " capability SYSLOG.",
        )
    return OpenedLog(
        reader=ring,
        state=SourceState.UP,
        reason="",
        sentence=f"{because}Reading the kernel log through syslog(2) every 15 s.",
    )


READ_ALL = 3
SIZE_BUFFER = 10
"""Actions of syslog(2)."""

READ_EVERY_S = 15.0
TAIL_BYTES = (4096, 512)
"""How much of the last read is searched in the next one. Lines have a time, so a few of them are
unique. The shorter tail is for a ring that is almost overwritten."""

FULL_SHARE = 4
"""A ring that was overwritten has at least this part (1/N) of its size as text: it is full if its
data or its descriptors (one per 32 bytes) are. Source: kernel/printk/printk.c."""

_TIME = re.compile(rb"<\d{1,6}>\[ *(\d{1,12}\.\d{1,6})\]")


def ring_size() -> int:
    """Return the size of the kernel's ring in bytes. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = int(libc.klogctl(SIZE_BUFFER, None, 0))
    if size < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return size


def read_ring() -> bytes:
    """Return the text of the kernel's ring. Raises OSError (EPERM without CAP_SYSLOG)."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = ring_size()
    buffer = ctypes.create_string_buffer(size)
    length = libc.klogctl(READ_ALL, buffer, size)
    if length < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[:length]


def new_text(before: bytes, ring: bytes, holds: int = 0) -> tuple[bytes, bool]:
    """Return the text of `ring` after `before`, and whether text may be missing.

    `before` is the result of `kept` for the last read; `holds` is `ring_size`. If the two have
    nothing in common, a full ring was overwritten. A ring that is far from full was cleared
    (`dmesg --clear`), so nothing is missing.
    """
    if not before:
        return ring, False
    if not _dated(before):
        return _behind_undated(before, ring, holds)
    for size in TAIL_BYTES:
        piece = before[-size:]
        found = ring.rfind(piece)
        if found >= 0:
            return ring[found + len(piece) :], False
    return ring, _turned_over(ring, holds)


def kept(ring: bytes) -> bytes:
    """Return the part of a read that is needed to find new text in the next one.

    Without the kernel's time (`printk.time=0`) lines repeat, so all of them are needed.
    """
    return ring[-TAIL_BYTES[0] :] if _dated(ring) else ring


def _behind_undated(before: bytes, ring: bytes, holds: int) -> tuple[bytes, bool]:
    """Return the same without times: find the longest end of the last read that starts `ring`."""
    if ring.startswith(before):
        return ring[len(before) :], False
    if not _turned_over(ring, holds):
        return ring, False
    head = ring[: TAIL_BYTES[1]]
    found = before.find(head) if head else -1
    while found >= 0:
        if ring.startswith(before[found:]) and (found == 0 or before[found - 1 : found] == b"\n"):
            return ring[len(before) - found :], False
        found = before.find(head, before.find(b"\n", found) + 1 or len(before))
    return ring, True


def _turned_over(ring: bytes, holds: int) -> bool:
    return len(ring) * FULL_SHARE >= holds


def _dated(ring: bytes) -> bool:
    """Whether the last line starts with the kernel's time."""
    last = ring.rfind(b"\n", 0, -1) + 1
    return _TIME.match(ring, last) is not None


class KernelRing(KernelLogReader):
    """Reads the ring. `start` raises OSError if the kernel refuses."""

    def __init__(self, record_filter: RecordFilter, sink: Sink) -> None:
        self._record_filter = record_filter
        self._sink = sink
        self._reading = Reading(sink)
        self._before = b""
        self._holds = 0
        self._offset_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read the ring once, to detect a refusal, and start the thread."""
        ring, self._holds = read_ring(), ring_size()
        self._thread = threading.Thread(
            target=self._run, args=(ring,), name="kernel-log", daemon=True
        )
        self._thread.start()

    def read_now(self) -> None:
        """Read the ring at once: the driver reported a new line."""
        self._wake.set()

    def close(self) -> None:
        """Stop reading."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, ring: bytes) -> None:
        self.take(ring, lookback=True)
        self._sink(KernelRead(at=time.time(), boot_id=self._record_filter.boot_id, sequence=-1))
        while not self._stopping:
            self._wake.wait(READ_EVERY_S)
            self._wake.clear()
            if not self._stopping:
                self._read_again()

    def _read_again(self) -> None:
        try:
            ring = read_ring()
        except OSError:
            self._reading.failed()
            return
        self._reading.worked()
        self.take(ring, lookback=False)

    def take(self, ring: bytes, *, lookback: bool) -> None:
        """Report the new lines in one read of the ring."""
        fresh, gap = new_text(self._before, ring, self._holds)
        self._before = kept(ring)
        now = time.time()
        if gap:
            # The ring was overwritten between two reads; the number of lost lines is unknown.
            self._record_filter.counts.lost += 1
            self._sink(KernelGap(at=now, lost=1, boot_id=self._record_filter.boot_id))
        for line in fresh.split(b"\n"):
            if not line:
                continue
            self._record_filter.counts.read += 1
            # Every kernel line starts with its priority; the writer of other lines is unknown.
            if line.startswith(b"<") and scan.worth_parsing(line):
                self._examine(line, now=now, lookback=lookback)

    def _examine(self, line: bytes, *, now: float, lookback: bool) -> None:
        at = now
        if lookback and (since_boot := _TIME.match(line)):
            at = min(now, self._offset_s + float(since_boot[1]))
        seen = self._record_filter.fact(line, sequence=-1, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)


_MOST_RECORDS: Final = 200_000
"""Read at most this many records; a kernel buffer of 16 MiB has fewer."""
_FILE_TAIL_BYTES: Final = 2 << 20


class NoRereadError(Exception):
    """The log cannot be read again; the text is a clause with the cause."""


def messages(mode: str, *, accept_user: bool = False) -> Iterator[KernelMessage]:
    """Yield every message of the log that `mode` names (as in `--kmsg`). Raises NoRereadError."""
    if mode == OFF:
        raise NoRereadError("the kernel log is off (--kmsg off)")
    try:
        lines = read_ring().split(b"\n") if mode == SYSLOG else _lines_of(mode)
    except OSError as error:
        if mode == DEFAULT_PATH:
            return messages(SYSLOG, accept_user=accept_user)
        raise NoRereadError(f"the kernel log {mode} cannot be read: {error.strerror}") from error
    return _understood(lines, accept_user=accept_user)


def _lines_of(path: str) -> Iterable[bytes]:
    """Return the records of a device, or the last lines of a file."""
    kind = os.stat(path).st_mode  # noqa: PTH116 - only the kind of file matters
    if stat.S_ISCHR(kind):
        return _records(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if not stat.S_ISREG(kind):
        raise NoRereadError(f"{path} can be read only once")
    with open(path, "rb") as file:  # noqa: PTH123 - a path of /proc or /dev may be odd
        begin = max(0, file.seek(0, os.SEEK_END) - _FILE_TAIL_BYTES)
        file.seek(begin)
        lines = file.read(_FILE_TAIL_BYTES).split(b"\n")
    return lines[1:] if begin else lines


def _records(descriptor: int) -> Iterator[bytes]:
    try:
        for _ in range(_MOST_RECORDS):
            try:
                raw = os.read(descriptor, kernel_record.MAX_RECORD_BYTES)
            except BrokenPipeError:
                continue  # overwritten: the next read yields the oldest record still there
            except OSError:
                return  # BlockingIOError at the end of the ring
            if not raw:
                return
            yield raw.partition(b"\n")[0]
    finally:
        os.close(descriptor)


def _understood(lines: Iterable[bytes], *, accept_user: bool) -> Iterator[KernelMessage]:
    now = time.time()
    booted_at = now - time.clock_gettime(time.CLOCK_MONOTONIC)
    for line in filter(None, lines):
        text, user = split_prefix(line[:MAX_LINE])
        if user and not accept_user:
            continue
        if (header := kernel_record.parse_record(line)) is not None:
            since = header.since_boot_s
            yield KernelMessage(text=text, at=booted_at + since, since_boot_s=since)
        else:
            yield KernelMessage(text=text, at=stamps.stamp_of(line[:MAX_LINE], now).wall)
