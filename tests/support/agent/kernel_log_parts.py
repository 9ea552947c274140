"""Records and sinks shared by the kernel log tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agent.sources.kernel_record import RecordCounts, RecordFilter
from rules.judge.observation import KernelGap, KernelLineSeen, KernelRead, SourceChanged
from rules.kernel_log.parse import parse
from rules.kernel_log.record import KernelLine

Fact = KernelLineSeen | KernelGap | KernelRead | SourceChanged
XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."


def record(sequence: int, text: str = XID79, *, prefix: int = 4, us: int = 1_000_000) -> bytes:
    return f"{prefix},{sequence},{us},-;{text}\n".encode()


def record_filter(*, accept_user: bool = False, boot_id: str = "boot-1") -> RecordFilter:
    return RecordFilter(
        boot_id=boot_id,
        accept_user=accept_user,
        counts=RecordCounts(),
    )


class Facts:
    """A sink that a test can wait on."""

    def __init__(self) -> None:
        self.all: list[Fact] = []
        self._new = threading.Condition()

    def __call__(self, fact: Fact) -> None:
        with self._new:
            self.all.append(fact)
            self._new.notify_all()

    @property
    def lines(self) -> list[KernelLineSeen]:
        return [fact for fact in self.all if isinstance(fact, KernelLineSeen)]

    @property
    def sequences(self) -> list[int]:
        return [line.sequence for line in self.lines]

    @property
    def gaps(self) -> list[KernelGap]:
        return [fact for fact in self.all if isinstance(fact, KernelGap)]

    def until(self, enough: Callable[[Facts], bool], timeout_s: float = 10.0) -> Facts:
        deadline = time.monotonic() + timeout_s
        with self._new:
            while not enough(self):
                if not self._new.wait(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"not observed within {timeout_s} s; so far: {self.all}")
        return self


def parse_numbered(raw: bytes, number: int) -> tuple[int, KernelLine] | None:
    """A reader for `LineScanner` that records line numbers."""
    line = parse(raw)
    return None if line is None else (number, line)
