"""Streams of any shape: lines numbered by byte 0x0A, memory bounded, nothing missed."""

from __future__ import annotations

import pytest

from rules.kernel_log.scan import LineScanner, worth_parsing
from rules.kernel_log.text import MAX_LINE
from tests.support.agent.kernel_log_parts import parse_numbered

XID = b"NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=a, GPU has fallen off the bus."
NOISE = b"[   12.833946] EXT4-fs (nvme0n1p2): mounted filesystem"


def scan(*blocks: bytes) -> list[int]:
    scanner = LineScanner(parse_numbered)
    found = [number for block in blocks for number, _ in scanner.feed(block)]
    return [*found, *(number for number, _ in scanner.finish())]


@pytest.mark.parametrize(
    ("blocks", "numbers"),
    [
        pytest.param([b""], [], id="nothing"),
        pytest.param([b"\n\n" + XID + b"\n"], [3], id="empty lines count"),
        pytest.param([XID], [1], id="last line without newline"),
        pytest.param([XID[:30], XID[30:] + b"\n" + XID], [1, 2], id="cut in the middle"),
        pytest.param([XID + b"\n", XID + b"\n"], [1, 2], id="one line a block"),
        pytest.param(
            [XID + b"\r\n" + XID + b"\r\n"], [1, 2], id="carriage returns stay in the line"
        ),
        pytest.param(
            [b"\x0b\x0c\x1c\x85\xe2\x80\xa8" + b"\n" + XID], [2], id="only 0x0A ends a line"
        ),
        pytest.param([(NOISE + b"\n") * 500 + XID + b"\n" + NOISE], [501], id="rare"),
        pytest.param([(XID + b"\n") * 50], list(range(1, 51)), id="dense"),
        pytest.param([b"\0" * 5000 + b"\n" + XID], [2], id="a hole in the file"),
    ],
)
def test_lines_are_numbered_as_they_stand(blocks: list[bytes], numbers: list[int]) -> None:
    assert scan(*blocks) == numbers


def test_a_line_without_end_is_cut_and_the_next_one_is_read() -> None:
    scanner = LineScanner(parse_numbered)
    for _ in range(100):
        assert scanner.feed(b"x" * 100_000) == []
    assert len(scanner._tail) <= MAX_LINE
    assert [number for number, _ in scanner.feed(b"x\n" + XID + b"\n")] == [2]


def test_a_report_at_the_start_of_an_endless_line_is_still_read() -> None:
    scanner = LineScanner(parse_numbered)
    assert scanner.feed(XID + b"y" * 100_000) == []
    assert [number for number, _ in scanner.feed(b"y" * 100_000 + b"\n")] == [1]


def test_ordinary_messages_are_not_worth_parsing() -> None:
    assert worth_parsing(XID)
    assert not worth_parsing(NOISE)
