"""Reading the kernel ring as text, with nothing but bytes to tell old from new."""

from __future__ import annotations

from typing import Any

import pytest

from agent.daemon.judgement import Judgement, Who
from agent.sources.kernel_log import KernelRing, kept, news, read_ring
from rules.catalog.thresholds import DEFAULT_RULES
from tests.support.agent.kernel_log_parts import XID79, Facts, sieve


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
def test_what_is_new_is_found_by_the_bytes_before_it(
    before: bytes, ring: bytes, fresh: bytes, gap: bool
) -> None:
    assert news(kept(before), ring) == (fresh, gap)


def test_each_line_is_reported_once_over_many_reads() -> None:
    facts = Facts()
    ring = KernelRing(sieve(), facts)
    content = b""
    for second in range(1, 6):
        content += line(second, XID79.replace("79", str(second)))
        ring.take(content, lookback=second == 1)
        ring.take(content, lookback=False)
    assert [seen.line.xid for seen in facts.lines] == [1, 2, 3, 4, 5]
    assert [seen.lookback for seen in facts.lines] == [True, False, False, False, False]


def test_a_ring_that_turned_over_is_a_gap() -> None:
    facts = Facts()
    ring = KernelRing(sieve(), facts)
    ring.take(line(1), lookback=True)
    ring.take(line(500), lookback=False)
    assert len(facts.gaps) == 1


def test_a_ring_that_was_cleared_is_no_gap_and_its_new_lines_are_read() -> None:
    before = b"".join(line(n) for n in range(100))
    assert news(kept(before), b"", 1 << 18) == (b"", False)
    assert news(kept(before), line(200), 1 << 18) == (line(200), False)
    full = b"".join(line(n) for n in range(1000, 3000))
    assert news(kept(before), full, 1 << 18) == (full, True), "a full ring may have lost lines"


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
def test_without_the_kernel_s_time_identical_lines_are_told_apart(
    before: bytes, ring: bytes, fresh: bytes, gap: bool
) -> None:
    assert news(kept(before), ring, 1 << 18) == (fresh, gap)


def test_each_of_many_identical_lines_without_time_is_reported() -> None:
    facts = Facts()
    ring = KernelRing(sieve(), facts)
    for count in range(1, 6):
        ring.take(UNDATED * count, lookback=count == 1)
    assert len(facts.lines) == 5


def test_lines_of_user_space_are_refused() -> None:
    facts = Facts()
    sieved = sieve()
    KernelRing(sieved, facts).take(line(1, prefix=12), lookback=True)
    assert facts.lines == []
    assert sieved.counts.refused == 1


def test_a_line_that_does_not_say_who_wrote_it_is_not_the_kernel_s() -> None:
    facts = Facts()
    KernelRing(sieve(), facts).take(f"<12>[    1.0] x\n{XID79}\n".encode(), lookback=True)
    assert facts.lines == []


def test_what_the_ring_yields_is_judged_line_by_line() -> None:
    judgement = Judgement(
        Who(node_name="n1", expected_gpus=None, boot_id="boot-1"), DEFAULT_RULES, lambda: 1e9
    )
    judgement.remember(None)

    def heard(fact: Any) -> None:
        judgement.observe(fact)

    ring = KernelRing(sieve(), heard)
    content = b""
    for gpu in range(3):
        content += line(gpu, XID79.replace("3b:00", f"3{gpu}:00"))
        ring.take(content, lookback=False)
    fatal = [i for i in judgement.state.incidents if i.row.severity == "Fatal"]
    assert len(fatal) == 3


def test_the_real_ring_can_be_read() -> None:
    try:
        ring = read_ring()
    except PermissionError:
        pytest.skip("syslog(2) needs CAP_SYSLOG")
    assert b"\n" in ring
