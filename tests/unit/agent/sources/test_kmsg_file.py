"""Following a file or FIFO of records, through replacement, truncation and broken lines."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sources.kernel_record import MAX_RECORD_BYTES, RecordCounts
from agent.sources.kmsg import KmsgFile, Lines
from tests.support.agent.kernel_log_parts import Facts, record, record_filter


class Followed:
    def __init__(self, path: Path, *, after: int = -1) -> None:
        self.path = path
        self.facts = Facts()
        accepting = record_filter()
        self.counts: RecordCounts = accepting.counts
        self.reader = KmsgFile(str(path), accepting, self.facts, after=after)
        self.reader.start()

    def append(self, *records: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(records))

    def until_seen(self, sequence: int) -> None:
        self.facts.until(lambda seen: sequence in seen.sequences)

    def until(self, *sequences: int) -> None:
        self.facts.until(lambda seen: len(seen.sequences) >= len(sequences))
        assert self.facts.sequences == list(sequences)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg.log"
    path.write_bytes(record(1))
    return path


@pytest.fixture
def followed(log: Path) -> Iterator[Followed]:
    followed = Followed(log)
    followed.until(1)
    yield followed
    followed.reader.close()


def test_the_initial_content_of_a_file_is_lookback(
    followed: Followed,
) -> None:
    followed.append(record(2))
    followed.until(1, 2)
    assert [line.lookback for line in followed.facts.lines] == [True, False]


def test_known_records_of_the_past_are_skipped(log: Path) -> None:
    log.write_bytes(record(1) + record(2) + record(3))
    followed = Followed(log, after=2)
    followed.until(3)
    followed.reader.close()


def test_a_line_may_arrive_in_pieces(followed: Followed) -> None:
    line = record(2)
    followed.append(line[:30])
    followed.append(line[30:60])
    followed.append(line[60:], record(3))
    followed.until(1, 2, 3)


def test_a_file_that_became_shorter_is_read_from_its_start(followed: Followed) -> None:
    followed.append(record(2), record(3))
    followed.until(1, 2, 3)
    followed.path.write_bytes(record(4))
    followed.until(1, 2, 3, 4)


def test_a_rotated_file_is_followed(followed: Followed) -> None:
    followed.append(record(2))
    followed.path.rename(followed.path.with_suffix(".1"))
    followed.path.write_bytes(record(3))
    followed.until(1, 2, 3)
    assert not followed.facts.lines[-1].lookback


def test_a_rotation_closes_the_old_file(followed: Followed) -> None:
    for sequence in range(2, 12):
        followed.path.rename(followed.path.with_suffix(f".{sequence}"))
        followed.path.write_bytes(record(sequence))
        followed.until_seen(sequence)
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert sum(link.readlink().parent == followed.path.parent for link in links) == 1


def test_malformed_lines_are_counted(followed: Followed) -> None:
    followed.append(b"no record\n", record(2))
    followed.until(1, 2)
    assert followed.counts.malformed == 1


def test_a_fifo_has_no_lookback_and_stays_open_without_writers(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    followed = Followed(path)
    for sequence in (1, 2):
        with path.open("wb") as writer:
            writer.write(record(sequence))
        followed.until_seen(sequence)
    followed.reader.close()
    assert [line.lookback for line in followed.facts.lines] == [False, False]


def test_closing_ends_the_thread(log: Path) -> None:
    followed = Followed(log)
    followed.reader.close()
    assert "kernel-log" not in {thread.name for thread in threading.enumerate()}


def test_a_line_that_is_too_long_is_counted_once() -> None:
    cutter, much = Lines(), b"x" * (MAX_RECORD_BYTES + 1)
    assert [line for chunk in (much, much, b"\nz\n") for line in cutter.feed(chunk)] == [b"z"]
    assert cutter.oversized == 1
