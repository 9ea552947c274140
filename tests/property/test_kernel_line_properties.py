"""Whatever bytes a kernel log holds: no exception, bounded text, no forged number, one answer."""

import itertools
import json
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.commands.decode import json_reader
from rules.kernel_log.parse import parse
from rules.kernel_log.record import KernelLine
from rules.kernel_log.scan import LineScanner, worth_parsing
from rules.kernel_log.text import MAX_TEXT
from tests.support.agent.kernel_log_parts import parse_numbered
from tests.support.scenario.examples import examples

DATA = Path(__file__).resolve().parents[1] / "data" / "kernel_lines.jsonl"
LINES = [json.loads(row)["line"].encode() for row in DATA.read_text("utf-8").splitlines()]

known_lines = st.sampled_from(LINES)
pieces = st.binary(max_size=60) | known_lines.flatmap(
    lambda line: st.builds(
        lambda a, b: line[min(a, b) : max(a, b)],
        st.integers(0, len(line)),
        st.integers(0, len(line)),
    )
)
spliced_lines = st.lists(pieces, max_size=4).map(b"".join)
any_lines = known_lines | spliced_lines | st.binary(max_size=200)


@given(any_lines)
@example(b"\x1b[not a colour")
@example(b"\x1b[\x1b[0m1mNVRM: ")
@settings(max_examples=examples(200))
def test_any_bytes_are_survived_and_shown_safely(raw: bytes) -> None:
    line = parse(raw)
    if line is None:
        return
    assert len(line.text) <= MAX_TEXT
    assert line.text.isprintable()
    assert line.process is None or line.process.isprintable()
    assert line.detail is None or line.detail.isprintable()
    assert worth_parsing(raw)
    json.loads(json_reader(None, 0.0)(raw.partition(b"\n")[0], 1) or b"{}")


def slowly(log: bytes) -> list[tuple[int, KernelLine]]:
    """Parse every line by itself: what the block scanner must agree with."""
    return [
        (number, line)
        for number, raw in enumerate(log.split(b"\n"), 1)
        if (line := parse(raw)) is not None
    ]


@given(
    st.lists(any_lines, max_size=30).map(b"\n".join),
    st.lists(st.integers(0, 4000), max_size=6),
)
@example(b"A" * 9000 + b"\n" + LINES[35] + b"\n" + LINES[36], [4500])
@example(b"\n".join(LINES), [])
@example(b"\n" * 50 + LINES[35], [10, 20])
@settings(max_examples=examples(100))
def test_blocks_of_any_size_give_what_single_lines_give(log: bytes, cuts: list[int]) -> None:
    scanner = LineScanner(parse_numbered)
    found = []
    edges = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    for start, end in itertools.pairwise(edges):
        found += scanner.feed(log[start:end])
    assert [*found, *scanner.finish()] == slowly(log)


NAMED_BY_KERNEL = (
    b"Out of memory: Killed process 4242 (%b) total-vm:1024kB, anon-rss:0kB",
    b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=%b,pid=4242,uid=0",
    b"%b invoked oom-killer: gfp_mask=0xcc0, order=0",
    b"%b[4242]: segfault at 0 ip 0000000000000000 sp 00007ffd0 error 14 in libc.so",
    b"%b[4242]: segfault at 0 ip 0000000000000000 sp 00007ffd0 error 14 in libnccl.so.2",
    b"traps: %b[4242] general protection fault ip:0 sp:0 error:0 in libc.so",
    b"%b: page allocation failure: order:0, mode:0x0",
    b"%b (4242): drop_caches: 3",
    b"%b(4242): 79, unaligned access",
    b"%b: 79, GPU has fallen off the bus",
    b"INFO: task %b:4242 blocked for more than 120 seconds.",
    b"watchdog: BUG: soft lockup - CPU#0 stuck for 25s! [%b:4242]",
    b"CPU: 0 PID: 4242 Comm: %b Tainted: P OE",
    b"INFO: task a:1 is blocked on a mutex likely owned by task %b:4242.",
    b"process '%b' launched '/bin/true' with NULL argv: empty string added",
    b"%b uses obsolete (PF_INET,SOCK_PACKET)",
    b'audit: type=1701 audit(1.1:2): auid=0 uid=0 pid=4242 comm="%b" exe="/bin/a" sig=11 res=1',
    b"NVRM: API mismatch: the client '%b' (pid 4242)",
    b"usb 1-1: Product: %b",
)
PREFIXES = (
    b"",
    b"[12345.678901] ",
    b"3,1,1,-;",
    b"Feb 23 16:24:18 gpu-17 kernel: ",
    b"<4>[ 1.0] ",
    b"\x1b[32m[    1.0] \x1b[0m",
    b"10.0.0.17: kern: err: [2025-02-23T16:24:18Z]: ",
)

COMM_BYTES = 15
"""A process name in the kernel is 16 bytes with its end."""

lies = st.sampled_from(
    [
        b"NVRM: Xid (PCI:",
        b"NVRM: Xid (0001",
        b"x\nNVRM: Xid (1",
        b"\nNVRM: Xid (0:",
        b"kernel: NVRM: ",
        b"\x1b[mNVRM: Xid (",
        b"[] NVRM: Xid (0",
        b"<0>NVRM: Xid (0",
        b"0,0,0;NVRM: Xid",
        b"nvidia-nvswitch",
    ]
)
names = (lies | st.binary(max_size=COMM_BYTES)).map(lambda name: name[:COMM_BYTES])


@given(st.sampled_from(NAMED_BY_KERNEL), names, st.sampled_from(PREFIXES))
@settings(max_examples=examples(200))
def test_no_process_name_makes_a_number(shape: bytes, name: bytes, prefix: bytes) -> None:
    raw = prefix + shape.replace(b"%b", name)
    for text in (raw, *raw.split(b"\n")):
        line = parse(text)
        assert line is None or (line.xid is None and line.sxid is None)


@given(names.map(lambda name: name.replace(b"\n", b"")), st.sampled_from(PREFIXES))
def test_a_name_inside_an_xid_line_never_changes_its_number(name: bytes, prefix: bytes) -> None:
    line = parse(
        prefix + b"NVRM: Xid (PCI:0000:01:00): 43, pid=7, name=" + name + b", Ch 00000018"
    )
    assert line is not None
    assert (line.xid, line.pci, line.caused_by) == (43, "0000:01:00", None)


@given(known_lines)
@settings(max_examples=examples(150))
def test_a_cut_line_has_a_subset_of_the_fields(raw: bytes) -> None:
    full = parse(raw)
    for end in range(len(raw)):
        line = parse(raw[:end])
        if line is None:
            continue
        for number in (line.xid, line.sxid):
            assert number is None or b" %d" % number in raw
        assert full is None or line.user == full.user


clocks = st.builds(
    "{:02d}:{:02d}:{:02d}{}".format,
    *[st.integers(0, 59)] * 3,
    st.sampled_from(["", ".123456", ",123456"]),
)
hosts = st.from_regex(r"\A[a-z][a-z0-9.-]{0,30}[a-z0-9]\Z")
stamps = st.one_of(
    st.builds("[{:12.6f}] ".format, st.floats(0, 1e9)),
    st.builds("[Sun Feb 23 {} 2025] ".format, clocks),
    st.builds("2025-02-23T{}+01:00 {} kernel: ".format, clocks, hosts),
    st.builds("Feb 23 {} {} kernel: ".format, clocks, hosts),
    st.builds("Sun 2025-02-23 {} UTC {} kernel: ".format, clocks, hosts),
    st.builds("2025-02-23T{}Z ".format, clocks),
)
callers = st.sampled_from(["", "[    T1] ", "[   C12] "])
levels = st.sampled_from(["", "<3>", "kern  :err   : ", "kern  :emerg : "])
BARE = [line for line in LINES if line.startswith((b"NVRM: ", b"nvidia-nvswitch", b"pcieport "))]


@given(levels, stamps, callers, st.sampled_from(BARE))
@settings(max_examples=examples(200))
def test_what_a_transport_puts_before_a_message_changes_nothing(
    level: str, stamp: str, caller: str, bare: bytes
) -> None:
    if not stamp.startswith("["):
        level = level[:3] if level.startswith("<") else ""
    assert parse((level + stamp + caller).encode() + bare) == parse(bare)


programs = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_/.-]{0,20}(\[[0-9]{1,7}\])?:\Z").filter(
    lambda tag: not tag.startswith("kernel")
)


@given(
    clocks, hosts, programs, st.sampled_from(["", "kernel: ", "[1.000000] ", "<3>"]), known_lines
)
@settings(max_examples=examples(200))
def test_what_another_program_logs_is_never_a_report(
    clock: str, host: str, program: str, nested: str, quoted: bytes
) -> None:
    line = parse(f"Feb 23 {clock} {host} {program} {nested}".encode() + quoted)
    assert line is None or (line.xid is None and line.sxid is None)
