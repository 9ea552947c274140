"""Opens the kernel log the way the configuration says, and says how it went.

The main loop owns the reader this returns. Choosing and falling back happen here; reading happens
in `kernel_log.device`, `kernel_log.file` and `kernel_log.ring`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

import msgspec

from agent.kernel_log.device import KmsgDevice
from agent.kernel_log.file import KmsgFile
from agent.kernel_log.record import Sieve, Sink
from agent.kernel_log.ring import KernelRing
from rules.judge.observation import SourceState

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
