"""A whole log judged as the past, for `check --kmsg FILE`: its last lines become facts."""

from __future__ import annotations

import stat
import time
from collections import deque
from pathlib import Path
from typing import Final

from agent.kernel_log.record import MAX_RECORD_BYTES, Sieve, Sink, parse_record
from agent.kernel_log.whole import SAMPLE, WholeLog, blocks_of
from rules.judge.observation import KernelRead
from rules.kernel_log.parse import parse
from rules.kernel_log.stamps import stamp_of
from rules.kernel_log.text import MAX_LINE
from rules.text.counted import count

_MOST_LINES: Final = 4000
"""Lines of a whole log that are judged, the last ones: what went before is history."""


def is_another_format(path: str) -> bool:
    """Whether a regular file begins with anything but records of `/dev/kmsg`."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        return False
    with Path(path).open("rb") as file:
        head = file.read(SAMPLE)
    return bool(head.strip()) and not any(map(parse_record, head.split(b"\n")))


class NotUnderstoodError(Exception):
    """No line is in a format that is read; the text says how many there were."""


class PastLog:
    """The reader of a whole log for one who does not stay: all of it is look-back.

    The constructor reads it. Raises OSError, or NotUnderstoodError.
    """

    def __init__(self, path: str, sieve: Sieve, sink: Sink) -> None:
        self._sieve = sieve
        self._sink = sink
        log = WholeLog(lambda raw, _: raw if parse(raw) is not None else None)
        self._found: deque[bytes] = deque(maxlen=_MOST_LINES)
        with Path(path).open("rb", buffering=0) as file:
            for found in log.findings(blocks_of(file.fileno())):
                self._found += (raw[:MAX_RECORD_BYTES] for raw in found)
        if not log.understood:
            raise NotUnderstoodError(f"{count(log.lines, 'line')}, 0 understood")
        sieve.counts.read += log.lines

    def start(self) -> None:
        """Hand over what was found."""
        now = time.time()
        for raw in self._found:
            wall = stamp_of(raw[:MAX_LINE], now).wall
            at = now if wall is None else min(wall, now)
            seen = self._sieve.fact(raw, sequence=-1, at=at, lookback=True)
            if seen is not None:
                self._sink(seen)
        self._sink(KernelRead(at=now, boot_id=self._sieve.boot_id, sequence=-1))

    def read_now(self) -> None:
        """Nothing to do: all was read."""

    def close(self) -> None:
        """Nothing to do: nothing is held."""
