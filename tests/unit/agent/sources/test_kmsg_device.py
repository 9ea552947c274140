"""The reader of /dev/kmsg against a simulated kernel and against the real one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.sources.kmsg import KmsgDevice
from rules.judge.observation import KernelRead, SourceChanged, SourceState
from tests.support.agent.kernel_log_parts import XID79, Facts, record, record_filter

Step = bytes | OSError
OVERRUN = OSError(32, "Broken pipe")


class PlayedKernel:
    """Answers reads of the first descriptor from a script; the second is at the end."""

    def __init__(self, script: list[Step], after_start: list[Step] | None = None) -> None:
        self._script = iter(script)
        self._after_start = iter(after_start or [])
        self._first: int | None = None

    def read(self, fd: int, size: int) -> bytes:
        self._first = fd if self._first is None else self._first
        steps: Iterator[Step] = self._script if fd == self._first else self._after_start
        step = next(steps, BlockingIOError())
        if isinstance(step, OSError):
            raise step
        return step


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A file to open; the simulated kernel answers the reads."""
    path = tmp_path / "kmsg"
    path.touch()
    return path


def read_all(ring: Path, kernel: PlayedKernel, *, after: int = -1, **options: Any) -> tuple:
    facts, accepting = Facts(), record_filter(**options)
    reader = KmsgDevice(str(ring), accepting, facts, after=after, read=kernel.read)
    reader.start()
    facts.until(lambda seen: any(isinstance(fact, KernelRead) for fact in seen.all))
    reader.close()
    return facts, accepting.counts


TOO_LARGE = OSError(22, "Invalid argument")


@pytest.mark.parametrize(
    ("script", "after", "seen", "counted"),
    [
        pytest.param([7, 8], -1, {7: True, 8: True}, (0, 0), id="in the ring at the start"),
        pytest.param([7, 12, 13], -1, {7: True, 12: False, 13: False}, (0, 0), id="later"),
        pytest.param([7, 8, 9], 8, {9: True}, (0, 0), id="judged by an earlier run"),
        pytest.param([7, OVERRUN, 10], -1, {7: True, 10: True}, (2, 0), id="a gap"),
        pytest.param([OVERRUN, 10], 7, {10: True}, (2, 0), id="a gap behind the earlier run"),
        pytest.param([1, TOO_LARGE, 3], -1, {1: True, 3: True}, (0, 1), id="too large"),
    ],
)
def test_records_are_lookback_or_new_and_lost_ones_are_counted(
    ring: Path, script: list[Any], after: int, seen: dict[int, bool], counted: tuple[int, int]
) -> None:
    """The first record written after the start is number 12."""
    steps = [record(step) if isinstance(step, int) else step for step in script]
    facts, counts = read_all(ring, PlayedKernel(steps, after_start=[record(12)]), after=after)
    assert {line.sequence: line.lookback for line in facts.lines} == seen
    assert (counts.lost, counts.malformed) == counted
    assert [(gap.lost, gap.sequence) for gap in facts.gaps] == [(2, 9)] * (counts.lost > 0)
    assert counts.read == sum(isinstance(step, int) for step in script)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"NVRM: Xid without a header", id="no header"),
        pytest.param(b"4,x,1,-;NVRM: Xid (PCI:0000:3b:00): 79", id="sequence is no number"),
        pytest.param(b"4,5;NVRM: Xid (PCI:0000:3b:00): 79", id="header too short"),
        pytest.param(b"4,9" + b"9" * 40 + b",1,-;NVRM: ", id="sequence too long"),
        pytest.param(b"\xff\xfe\x00NVRM: \x80", id="bytes"),
    ],
)
def test_a_malformed_record_is_skipped_and_counted(ring: Path, bad: bytes) -> None:
    facts, counts = read_all(ring, PlayedKernel([record(1), bad, record(3)]))
    assert facts.sequences == [1, 3]
    assert counts.malformed == 1


def test_records_of_user_space_are_refused_unless_accepted(ring: Path) -> None:
    facts, counts = read_all(ring, PlayedKernel([record(1, prefix=12)]))
    assert facts.lines == []
    assert counts.refused == 1
    facts, counts = read_all(ring, PlayedKernel([record(1, prefix=12)]), accept_user=True)
    assert facts.sequences == [1]
    assert counts.refused == 0


def test_uninteresting_records_move_the_cursor_but_are_not_parsed(ring: Path) -> None:
    kernel = PlayedKernel([record(1, "usb 1-1: new device"), record(2, "eth0: link up")])
    facts, counts = read_all(ring, kernel)
    assert facts.lines == []
    assert counts.read == 2
    assert facts.all == [KernelRead(at=facts.all[0].at, boot_id="boot-1", sequence=2)]


def test_a_failing_device_is_reported_and_retried(ring: Path) -> None:
    facts = Facts()
    kernel = PlayedKernel([record(1), OSError(5, "Input/output error"), record(2)])
    reader = KmsgDevice(str(ring), record_filter(), facts, read=kernel.read, retry_s=0.01)
    reader.start()
    facts.until(lambda seen: any(isinstance(fact, KernelRead) for fact in seen.all))
    reader.close()
    states = [fact.state for fact in facts.all if isinstance(fact, SourceChanged)]
    assert facts.sequences == [1, 2]
    assert states == [SourceState.DOWN, SourceState.UP]


def test_the_real_device_yields_what_was_written_to_it() -> None:
    device = Path("/dev/kmsg")
    if not os.access(device, os.R_OK | os.W_OK):
        pytest.skip("/dev/kmsg is not here or not for this user to write")
    facts = Facts()
    accepting = record_filter(accept_user=True)
    reader = KmsgDevice(str(device), accepting, facts)
    reader.start()
    facts.until(lambda seen: any(isinstance(fact, KernelRead) for fact in seen.all))
    marker = f"gpuward-test-{os.getpid()}"
    device.write_text(XID79.replace("python", marker) + "\n")
    facts.until(lambda seen: any(line.line.process == marker for line in seen.lines))
    reader.close()
    (line,) = (line for line in facts.lines if line.line.process == marker)
    assert not line.lookback
    assert line.line.xid == 79
