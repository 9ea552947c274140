"""Records of `/dev/kmsg` taken apart, and sieved for the few that judgement wants to see.

Every kernel log reader of the agent (device, followed file, `syslog(2)`) pushes raw bytes through
one `Sieve`; what comes out goes to judgement unchanged. The bytes are hostile: user space may
have written them, so nothing here raises on any input and nothing is interpreted.
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from rules.judge import observation as facts
from rules.kernel_log.parse import parse

Sink = Callable[
    [facts.KernelLineSeen | facts.KernelGap | facts.KernelRead | facts.SourceChanged], None
]
"""Takes the facts of a reader, in order, from its thread; it may make the reader wait."""

MAX_RECORD_BYTES = 8192
"""The kernel's own bound on one record of the device (CONSOLE_EXT_LOG_MAX); newer ones use less.
"""

# prefix,sequence,microseconds[,flags...];text - then lines that begin with a space (dictionary).
_HEADER = re.compile(rb"\d{1,10},(\d{1,18}),(\d{1,18})(?:,[^;\n]{0,256})?;")


class Header(NamedTuple):
    """The numbers a record begins with; `since_boot_s` is the kernel's clock, not wall time."""

    sequence: int
    since_boot_s: float


def parse_record(raw: bytes) -> Header | None:
    """One record as a read of the device returns it; None when it has no valid header."""
    match = _HEADER.match(raw)
    if match is None:
        return None
    sequence, microseconds = match.groups()
    return Header(int(sequence), int(microseconds) / 1e6)


class RecordCounts(msgspec.Struct):
    """What happened to the records so far; read by the metrics without a lock (single
    integers).
    """

    read: int = 0
    recognised: int = 0
    malformed: int = 0
    refused: int = 0
    """Recognised, but written by user space."""
    lost: int = 0
    """Overwritten before they were read."""


class Sieve(msgspec.Struct, frozen=True, kw_only=True):
    """Decides which records matter: those of user space are refused unless `accept_user`."""

    boot_id: str
    accept_user: bool
    counts: RecordCounts

    def fact(
        self, raw: bytes, *, sequence: int, at: float, lookback: bool
    ) -> facts.KernelLineSeen | None:
        """The fact in one raw record or line; `sequence` -1 where the source does not count."""
        line = parse(raw)
        if line is None:
            return None
        if line.user and not self.accept_user:
            self.counts.refused += 1
            return None
        self.counts.recognised += 1
        return facts.KernelLineSeen(
            at=at, sequence=sequence, boot_id=self.boot_id, lookback=lookback, line=line
        )


class KernelLogReader(ABC):
    """A reader of the log: after `start` facts go to its sink until `close`."""

    @abstractmethod
    def start(self) -> None:
        """Open the log and start reading it; OSError when that is impossible."""

    def read_now(self) -> None:
        """Read at once what the kernel has, where the reader would not notice by itself."""
        return

    def close(self) -> None:
        """Stop reading and release what is open."""
        return


class Reading:
    """Tells when reading begins to fail and when it works again; a reader never gives up."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._fails = False

    def failed(self) -> None:
        """The system refused a read."""
        self._say(fails=True)

    def worked(self) -> None:
        """A read was answered."""
        self._say(fails=False)

    def _say(self, *, fails: bool) -> None:
        if fails == self._fails:
            return
        self._fails = fails
        self._sink(
            facts.SourceChanged(
                at=time.time(),
                source=facts.SourceName.KERNEL_LOG,
                state=facts.SourceState.DOWN if fails else facts.SourceState.UP,
                reason="ReadFailed" if fails else "",
            )
        )
