"""Opens the kernel log the way the configuration says, and reads it once more for evidence.

The main loop owns the reader that `open_kernel_log` returns. `/dev/kmsg` and files are read in
`kmsg`. Where the device cannot be opened, the kernel's ring is read here, through `syslog(2)`:
that needs CAP_SYSLOG and no device. The call has neither sequence numbers nor a way to wait, so
the entire ring is read every 15 s and at once when asked (an NVML Xid event), and what was there
before is recognised by its bytes.
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
from agent.sources.kernel_record import KernelLogReader, Reading, Sieve, Sink
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
    """The state of the source after opening; `reader` is None unless it is Up."""

    reader: KernelLogReader | None
    state: SourceState
    reason: str
    sentence: str


def boot_id(path: Path = BOOT_ID_PATH) -> str:
    """The kernel's id of this boot, as the node's status spells it."""
    return path.read_text(encoding="ascii").strip()


def open_kernel_log(
    mode: str,
    sieve: Sieve,
    sink: Sink,
    *,
    after: int = -1,
) -> OpenedLog:
    """Start the reader that `mode` names: a path, `syslog` or `off`.

    `/dev/kmsg` itself falls back to `syslog(2)` when it cannot be opened; any other path does
    not, since it was asked for by name.
    """
    if mode == OFF:
        return OpenedLog(
            reader=None,
            state=SourceState.ABSENT,
            reason="Off",
            sentence="the kernel log is off: faults that only it shows are not observed",
        )
    if mode == SYSLOG:
        return _open_ring(sieve, sink, because="")
    try:
        reader = _reader_of(mode, sieve, sink, after=after)
        reader.start()
    except OSError as error:
        because = f"{mode} cannot be opened ({error.strerror})"
        if mode == DEFAULT_PATH:
            return _open_ring(sieve, sink, because=f"{because}; ")
        return OpenedLog(
            reader=None, state=SourceState.DOWN, reason="CannotOpen", sentence=because
        )
    return OpenedLog(
        reader=reader, state=SourceState.UP, reason="", sentence=f"reading the kernel log {mode}"
    )


def _reader_of(path: str, sieve: Sieve, sink: Sink, *, after: int) -> KernelLogReader:
    # Any character device is read as the kernel's own is (1:11 is the number of /dev/kmsg).
    if stat.S_ISCHR(os.stat(path).st_mode):  # noqa: PTH116 - only the kind of file matters
        return KmsgDevice(path, sieve, sink, after=after)
    return KmsgFile(path, sieve, sink, after=after)


def _open_ring(sieve: Sieve, sink: Sink, *, because: str) -> OpenedLog:
    try:
        ring = KernelRing(sieve, sink)
        ring.start()
    except OSError as error:
        return OpenedLog(
            reader=None,
            state=SourceState.ABSENT,
            reason="NoKernelLog",
            sentence=f"{because}syslog(2) is refused ({error.strerror}): run with /dev/kmsg or"
            " the capability SYSLOG to see the driver's log",
        )
    return OpenedLog(
        reader=ring,
        state=SourceState.UP,
        reason="",
        sentence=f"{because}reading the kernel log through syslog(2) every 15 s",
    )


READ_ALL = 3
SIZE_BUFFER = 10
"""Actions of syslog(2)."""

READ_EVERY_S = 15.0
TAIL_BYTES = (4096, 512)
"""How much of the last read is searched for in the next one: lines carry their time, so a few
of them are unique; the shorter tail helps when the ring has almost turned over."""

FULL_SHARE = 4
"""A ring that turned over holds at least one part in so many of its size as text: it is full when
its data or its descriptors (one per 32 bytes) are. Source: kernel/printk/printk.c."""

_TIME = re.compile(rb"<\d{1,6}>\[ *(\d{1,12}\.\d{1,6})\]")


def ring_size() -> int:
    """How many bytes the kernel's ring can hold. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = int(libc.klogctl(SIZE_BUFFER, None, 0))
    if size < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return size


def read_ring() -> bytes:
    """The entire kernel ring as text. Raises OSError (EPERM without CAP_SYSLOG)."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = ring_size()
    buffer = ctypes.create_string_buffer(size)
    length = libc.klogctl(READ_ALL, buffer, size)
    if length < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[:length]


def news(before: bytes, ring: bytes, holds: int = 0) -> tuple[bytes, bool]:
    """What `ring` has behind `before`, and whether something may be missing.

    `before` is what `kept` returned of the read before; `holds` as in `ring_size`. Where the two
    share nothing, a full ring has turned over; one that is far from full was cleared
    (`dmesg --clear`), and what it holds now is all there is.
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
    """What must be remembered of a read to know the next one's news.

    Without the kernel's time (`printk.time=0`) lines repeat, and only all of them tell how often.
    """
    return ring[-TAIL_BYTES[0] :] if _dated(ring) else ring


def _behind_undated(before: bytes, ring: bytes, holds: int) -> tuple[bytes, bool]:
    """The same by all lines: the longest end of the last read that this one begins with."""
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
    """Whether the kernel puts its time before the last line."""
    last = ring.rfind(b"\n", 0, -1) + 1
    return _TIME.match(ring, last) is not None


class KernelRing(KernelLogReader):
    """The reader of the ring. `start` raises OSError when the kernel refuses."""

    def __init__(self, sieve: Sieve, sink: Sink) -> None:
        self._sieve = sieve
        self._sink = sink
        self._reading = Reading(sink)
        self._before = b""
        self._holds = 0
        self._offset_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read the ring once, so that a refusal is seen, and keep reading."""
        ring, self._holds = read_ring(), ring_size()
        self._thread = threading.Thread(
            target=self._run, args=(ring,), name="kernel-log", daemon=True
        )
        self._thread.start()

    def read_now(self) -> None:
        """The driver says that there is a line to be read."""
        self._wake.set()

    def close(self) -> None:
        """Stop reading."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, ring: bytes) -> None:
        self.take(ring, lookback=True)
        self._sink(KernelRead(at=time.time(), boot_id=self._sieve.boot_id, sequence=-1))
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
        """Report what is new in one read of the ring."""
        fresh, gap = news(self._before, ring, self._holds)
        self._before = kept(ring)
        now = time.time()
        if gap:
            # The ring turned over between two reads; how much was lost cannot be known.
            self._sieve.counts.lost += 1
            self._sink(KernelGap(at=now, lost=1, boot_id=self._sieve.boot_id))
        for line in fresh.split(b"\n"):
            if not line:
                continue
            self._sieve.counts.read += 1
            # The kernel puts a priority before every line; one without says not who wrote it.
            if line.startswith(b"<") and scan.worth_parsing(line):
                self._examine(line, now=now, lookback=lookback)

    def _examine(self, line: bytes, *, now: float, lookback: bool) -> None:
        at = now
        if lookback and (since_boot := _TIME.match(line)):
            at = min(now, self._offset_s + float(since_boot[1]))
        seen = self._sieve.fact(line, sequence=-1, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)


_MOST_RECORDS: Final = 200_000
"""A kernel buffer of 16 MiB holds fewer; a device that never ends must end for us."""
_FILE_TAIL_BYTES: Final = 2 << 20


class NoRereadError(Exception):
    """The log cannot be read again; the text is a clause that says why."""


def messages(mode: str, *, accept_user: bool = False) -> Iterator[KernelMessage]:
    """Every message of the log that `mode` names (as `--kmsg` does). Raises NoRereadError."""
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
    """The records of a device, or the last lines of a file."""
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
