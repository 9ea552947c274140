"""Reads the kernel's ring through `syslog(2)`, where `/dev/kmsg` cannot be opened.

Needs CAP_SYSLOG and no device. The call has neither sequence numbers nor a way to wait, so the
whole ring is read every 15 s and at once when asked (an NVML Xid event), and what was there before
is recognised by its bytes. Runs in one thread and hands facts to a sink.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time

from agent.sources.kernel_record import Reading, Sieve, Sink
from rules.judge.observation import KernelGap, KernelRead
from rules.kernel_log.scan import worth_parsing

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
    """The whole kernel ring as text. Raises OSError (EPERM without CAP_SYSLOG)."""
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


class KernelRing:
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
            if line.startswith(b"<") and worth_parsing(line):
                self._examine(line, now=now, lookback=lookback)

    def _examine(self, line: bytes, *, now: float, lookback: bool) -> None:
        at = now
        if lookback and (since_boot := _TIME.match(line)):
            at = min(now, self._offset_s + float(since_boot[1]))
        seen = self._sieve.fact(line, sequence=-1, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)
