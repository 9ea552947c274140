"""Parse records of `/dev/kmsg` and filter them for lines about GPUs.

Every kernel log reader of the agent (device, followed file, `syslog(2)`) passes raw bytes to one
`RecordFilter`, which returns facts. The bytes are untrusted, since user space may have written
them: no input raises an error, and nothing is interpreted.
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
"""Takes the facts of a reader, in order, from its thread; it may block the reader."""

MAX_RECORD_BYTES = 8192
"""The kernel's limit for one record (CONSOLE_EXT_LOG_MAX); newer kernels use less."""

# prefix,sequence,microseconds[,flags...];text, then lines that begin with a space (dictionary).
_HEADER = re.compile(rb"\d{1,10},(\d{1,18}),(\d{1,18})(?:,[^;\n]{0,256})?;")


class Header(NamedTuple):
    """The numbers at the start of a record; `since_boot_s` is not wall time."""

    sequence: int
    since_boot_s: float


def parse_record(raw: bytes) -> Header | None:
    """Return the header of one raw record; None if it is not valid."""
    match = _HEADER.match(raw)
    if match is None:
        return None
    sequence, microseconds = match.groups()
    return Header(int(sequence), int(microseconds) / 1e6)


class RecordCounts(msgspec.Struct):
    """Counts of records by result; the metrics read them without a lock (single integers)."""

    read: int = 0
    recognised: int = 0
    malformed: int = 0
    refused: int = 0
    """Recognised, but written by user space."""
    lost: int = 0
    """Overwritten before they were read."""


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filters records; refuses those of user space unless `accept_user`."""

    boot_id: str
    accept_user: bool
    counts: RecordCounts

    def fact(
        self, raw: bytes, *, sequence: int, at: float, lookback: bool
    ) -> facts.KernelLineSeen | None:
        """Return the fact in one raw record or line; `sequence` is -1 if the source has none."""
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
    """A reader of the log: passes facts to its sink from `start` until `close`."""

    @abstractmethod
    def start(self) -> None:
        """Open the log and start reading it. Raises OSError."""

    def read_now(self) -> None:
        """Read new records at once, if the reader is not notified of them."""
        return

    def close(self) -> None:
        """Stop reading and close the files."""
        return


class Reading:
    """Reports when reading starts to fail and when it works again; a reader never gives up."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._fails = False

    def failed(self) -> None:
        """Record that a read failed."""
        self._report(fails=True)

    def worked(self) -> None:
        """Record that a read succeeded."""
        self._report(fails=False)

    def _report(self, *, fails: bool) -> None:
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
