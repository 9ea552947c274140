"""The kernel ring through syslog(2), and reading the log again for evidence."""

import os
from pathlib import Path

import pytest

from agent.sources.kernel_log import KernelRing, NoRereadError, kept, messages, new_text, read_ring
from tests.support.agent.kernel_log_parts import XID79, Facts, record_filter


def line(second: float, text: str = XID79, prefix: int = 4) -> bytes:
    return f"<{prefix}>[{second:12.6f}] {text}\n".encode()


@pytest.mark.parametrize(
    ("before", "ring", "fresh", "gap"),
    [
        pytest.param(b"", b"abc\n", b"abc\n", False, id="first read"),
        pytest.param(line(1), line(1) + line(2), line(2), False, id="one more line"),
        pytest.param(line(1), line(1), b"", False, id="nothing new"),
        pytest.param(
            line(1) * 200 + line(2), line(2) + line(3), line(2) + line(3), True, id="turned over"
        ),
        pytest.param(
            b"".join(line(n) for n in range(100)),
            b"".join(line(n) for n in range(94, 101)),
            line(100),
            False,
            id="almost turned over",
        ),
    ],
)
def test_new_text_is_found_by_comparison_with_the_last_read(
    before: bytes, ring: bytes, fresh: bytes, gap: bool
) -> None:
    assert new_text(kept(before), ring) == (fresh, gap)


def test_each_line_is_reported_once_over_many_reads() -> None:
    facts = Facts()
    ring = KernelRing(record_filter(), facts)
    content = b""
    for second in range(1, 6):
        content += line(second, XID79.replace("79", str(second)))
        ring.take(content, lookback=second == 1)
        ring.take(content, lookback=False)
    assert [seen.line.xid for seen in facts.lines] == [1, 2, 3, 4, 5]
    assert [seen.lookback for seen in facts.lines] == [True, False, False, False, False]


def test_an_overwritten_ring_is_a_gap() -> None:
    facts = Facts()
    ring = KernelRing(record_filter(), facts)
    ring.take(line(1), lookback=True)
    ring.take(line(500), lookback=False)
    assert len(facts.gaps) == 1


def test_a_cleared_ring_is_not_a_gap() -> None:
    before = b"".join(line(n) for n in range(100))
    assert new_text(kept(before), b"", 1 << 18) == (b"", False)
    assert new_text(kept(before), line(200), 1 << 18) == (line(200), False)
    full = b"".join(line(n) for n in range(1000, 3000))
    assert new_text(kept(before), full, 1 << 18) == (full, True), "a full ring may have lost lines"


UNDATED = f"<4>{XID79}\n".encode()


@pytest.mark.parametrize(
    ("before", "ring", "fresh", "gap"),
    [
        pytest.param(UNDATED * 2, UNDATED * 3, UNDATED, False, id="one more of the same"),
        pytest.param(UNDATED * 300, UNDATED * 302, UNDATED * 2, False, id="many"),
        pytest.param(UNDATED, b"", b"", False, id="cleared"),
        pytest.param(UNDATED * 3, UNDATED, UNDATED, False, id="cleared, then the same again"),
        pytest.param(
            b"<6>first\n" + UNDATED * 3000,
            UNDATED * 3000 + b"<6>last\n",
            b"<6>last\n",
            False,
            id="full, one in and one out",
        ),
        pytest.param(
            b"<6>usb\n" * 30000, UNDATED * 3000, UNDATED * 3000, True, id="full, turned over"
        ),
    ],
)
def test_identical_lines_without_times_are_counted_correctly(
    before: bytes, ring: bytes, fresh: bytes, gap: bool
) -> None:
    assert new_text(kept(before), ring, 1 << 18) == (fresh, gap)


def test_lines_of_user_space_are_refused() -> None:
    facts = Facts()
    accepting = record_filter()
    KernelRing(accepting, facts).take(line(1, prefix=12), lookback=True)
    assert facts.lines == []
    assert accepting.counts.refused == 1


def test_a_line_that_does_not_say_who_wrote_it_is_not_the_kernel_s() -> None:
    facts = Facts()
    KernelRing(record_filter(), facts).take(f"<12>[    1.0] x\n{XID79}\n".encode(), lookback=True)
    assert facts.lines == []


def test_the_real_ring_can_be_read() -> None:
    try:
        ring = read_ring()
    except PermissionError:
        pytest.skip("syslog(2) needs CAP_SYSLOG")
    assert b"\n" in ring


KMSG = (
    b"4,1,1000000,-;NVRM: first\n SUBSYSTEM=pci\n"
    b"12,2,2000000,-;NVRM: from user space\n"
    b"no record at all\n"
    b"4,3,3000000,-;NVRM: second\n"
)


def test_records_of_a_file_with_their_times(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(KMSG)
    found = list(messages(str(log)))
    texts = [each.text for each in found]
    assert texts[0] == b"NVRM: first"
    assert b"NVRM: second" in texts
    assert b"NVRM: from user space" not in texts
    assert found[0].since_boot_s == 1.0
    assert found[0].at is not None
    accepted = [each.text for each in messages(str(log), accept_user=True)]
    assert b"NVRM: from user space" in accepted


def test_of_a_large_file_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    with log.open("wb") as file:
        file.write(b"4,1,1,-;NVRM: old\n")
        file.truncate(9 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\n4,9,9,-;NVRM: new\n")
    assert [m.text for m in messages(str(log)) if m.text.startswith(b"NVRM")] == [b"NVRM: new"]


def test_a_log_that_cannot_be_read_again_is_an_error(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    modes = {"off": "is off", "/nowhere/kmsg": "cannot be read", str(fifo): "only once"}
    for mode, why in modes.items():
        with pytest.raises(NoRereadError, match=why):
            messages(mode)
