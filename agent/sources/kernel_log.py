"""Opens the kernel log the way the configuration says, and says how it went.

The main loop owns the reader this returns. Choosing and falling back happen here; reading happens
in `kmsg` and `kernel_ring`.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec

from agent.sources.kernel_record import MAX_RECORD_BYTES, Sieve, Sink, parse_record
from agent.sources.kernel_ring import KernelRing, read_ring
from agent.sources.kmsg import KmsgDevice, KmsgFile
from rules.judge.evidence import KernelMessage
from rules.judge.observation import SourceState
from rules.kernel_log.stamps import stamp_of
from rules.kernel_log.text import MAX_LINE, split_prefix

DEFAULT_PATH = "/dev/kmsg"
SYSLOG = "syslog"
OFF = "off"
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


class KernelLogReader(Protocol):
    """A started reader: its thread hands facts to the sink until `close`."""

    def start(self) -> None:
        """Open and begin; OSError when that is impossible."""

    def read_now(self) -> None:
        """Read at once what the kernel has, where the reader would not notice by itself."""

    def close(self) -> None:
        """End the thread and release what it holds."""


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
    past: KernelLogReader | None = None,
) -> OpenedLog:
    """Start the reader that `mode` names: a path, `syslog` or `off`; or `past`, which has read it.

    `/dev/kmsg` itself falls back to `syslog(2)` when it cannot be opened; any other path does
    not, since it was asked for by name.
    """
    if mode == OFF:
        return OpenedLog(
            reader=None,
            state=SourceState.ABSENT,
            reason="Off",
            sentence="the kernel log is off: faults that only the driver's log tells are not seen",
        )
    if mode == SYSLOG:
        return _open_ring(sieve, sink, because="")
    try:
        reader = past or _reader_of(mode, sieve, sink, after=after)
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


_MOST_RECORDS: Final = 200_000
"""A kernel buffer of 16 MiB holds fewer; a device that never ends must end for us."""
_FILE_TAIL_BYTES: Final = 2 << 20
_PRIORITY: Final = re.compile(rb"(\d{1,10}),")
_FACILITY_SHIFT: Final = 3


class NoRereadError(Exception):
    """The log cannot be read again; the text is a clause that says why."""


def messages(mode: str, *, accept_user: bool = False) -> Iterator[KernelMessage]:
    """Every message of the log that `mode` names (as `--kmsg` does). Raises NoRereadError."""
    if mode == OFF:
        raise NoRereadError("the kernel log is off (--kmsg off)")
    try:
        if mode == SYSLOG:
            return _of_lines(read_ring().split(b"\n"), accept_user=accept_user)
        kind = os.stat(mode).st_mode  # noqa: PTH116 - only the kind of file matters
        if stat.S_ISCHR(kind):
            return _of_device(mode, accept_user=accept_user)
        if not stat.S_ISREG(kind):
            raise NoRereadError(f"{mode} can be read only once")
        return _of_lines(_last_lines(mode), accept_user=accept_user)
    except OSError as error:
        if mode == DEFAULT_PATH:
            return messages(SYSLOG, accept_user=accept_user)
        raise NoRereadError(f"the kernel log {mode} cannot be read: {error.strerror}") from error


def _of_device(path: str, *, accept_user: bool) -> Iterator[KernelMessage]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        booted_at = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    except BaseException:
        os.close(descriptor)
        raise
    return _records(descriptor, booted_at, accept_user=accept_user)


def _records(descriptor: int, booted_at: float, *, accept_user: bool) -> Iterator[KernelMessage]:
    try:
        for _ in range(_MOST_RECORDS):
            try:
                raw = os.read(descriptor, MAX_RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # overwritten: the next read yields the oldest record still there
            except OSError:
                return
            if not raw:
                return
            found = _record(raw, booted_at, accept_user=accept_user)
            if found is not None:
                yield found
    finally:
        os.close(descriptor)


def _record(raw: bytes, booted_at: float, *, accept_user: bool) -> KernelMessage | None:
    header, priority = parse_record(raw), _PRIORITY.match(raw)
    if header is None or priority is None:
        return None
    if int(priority[1]) >> _FACILITY_SHIFT and not accept_user:
        return None
    text = raw[raw.index(b";") + 1 :].split(b"\n", 1)[0]
    at = booted_at + header.since_boot_s
    return KernelMessage(text=text, at=at, since_boot_s=header.since_boot_s)


def _of_lines(lines: list[bytes], *, accept_user: bool) -> Iterator[KernelMessage]:
    now = time.time()
    booted_at = now - time.clock_gettime(time.CLOCK_MONOTONIC)
    for line in filter(None, lines):
        if parse_record(line) is not None:
            found = _record(line, booted_at, accept_user=accept_user)
            if found is not None:
                yield found
            continue
        text, user = split_prefix(line[:MAX_LINE])
        if not user or accept_user:
            yield KernelMessage(text=text, at=stamp_of(line[:MAX_LINE], now).wall)


def _last_lines(path: str) -> list[bytes]:
    with open(path, "rb") as file:  # noqa: PTH123 - a path of /proc or /dev may be odd
        size = file.seek(0, os.SEEK_END)
        begin = max(0, size - _FILE_TAIL_BYTES)
        file.seek(begin)
        lines = file.read(_FILE_TAIL_BYTES).split(b"\n")
    return lines[1:] if begin else lines
