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

from agent.kernel_log.record import Reading, Sieve, Sink
from rules.judge.observation import KernelGap, KernelRead

READ_ALL = 3
SIZE_BUFFER = 10
"""Actions of syslog(2)."""

READ_EVERY_S = 15.0
TAIL_BYTES = (4096, 512)
"""How much of the last read is searched for in the next one: lines carry their time, so a few
of them are unique; the shorter tail helps when the ring has almost turned over."""

_TIME = re.compile(rb"<\d{1,6}>\[ *(\d{1,12}\.\d{1,6})\]")


def read_ring() -> bytes:
    """The whole kernel ring as text. Raises OSError (EPERM without CAP_SYSLOG)."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = libc.klogctl(SIZE_BUFFER, None, 0)
    if size < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    buffer = ctypes.create_string_buffer(size)
    length = libc.klogctl(READ_ALL, buffer, size)
    if length < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[:length]


def news(tail: bytes, ring: bytes) -> tuple[bytes, bool]:
    """What `ring` has behind `tail` of the read before, and whether something may be missing."""
    if not tail:
        return ring, False
    for size in TAIL_BYTES:
        piece = tail[-size:]
        found = ring.rfind(piece)
        if found >= 0:
            return ring[found + len(piece) :], False
    return ring, True


class KernelRing:
    """The reader of the ring. `start` raises OSError when the kernel refuses."""

    def __init__(self, sieve: Sieve, sink: Sink) -> None:
        self._sieve = sieve
        self._sink = sink
        self._reading = Reading(sink)
        self._tail = b""
        self._offset_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read the ring once, so that a refusal is seen, and keep reading."""
        ring = read_ring()
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
        fresh, gap = news(self._tail, ring)
        self._tail = ring[-TAIL_BYTES[0] :]
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
            if line.startswith(b"<") and self._sieve.worth_parsing(line):
                self._examine(line, now=now, lookback=lookback)

    def _examine(self, line: bytes, *, now: float, lookback: bool) -> None:
        at = now
        if lookback and (since_boot := _TIME.match(line)):
            at = min(now, self._offset_s + float(since_boot[1]))
        seen = self._sieve.fact(line, sequence=-1, at=at, lookback=lookback)
        if seen is not None:
            self._sink(seen)
