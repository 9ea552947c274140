"""A line without end: memory stays bounded, and other lines are read."""

from rules.kernel_log.scan import LineScanner, worth_parsing
from rules.kernel_log.text import MAX_LINE
from tests.support.agent.kernel_log_parts import parse_numbered

XID = b"NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=a, GPU has fallen off the bus."


def test_an_endless_line_is_cut_and_lines_around_it_are_read() -> None:
    scanner = LineScanner(parse_numbered)
    found = scanner.feed(XID)
    for _ in range(100):
        found += scanner.feed(b"y" * 100_000)
    found += scanner.feed(b"y\n" + XID + b"\n")
    assert [number for number, _ in found] == [1, 2]


def test_of_an_endless_line_only_the_beginning_is_kept() -> None:
    scanner = LineScanner(lambda line, number: len(line), worth=lambda line: True)
    for _ in range(10):
        assert scanner.feed(b"y" * 100_000) == []
    assert scanner.finish() == [MAX_LINE]


def test_ordinary_messages_are_not_worth_parsing() -> None:
    assert worth_parsing(XID)
    assert not worth_parsing(b"[   12.833946] EXT4-fs (nvme0n1p2): mounted filesystem")
