"""Prefixes are stripped, user space is reported from the kernel, and nothing can forge a
report.
"""

import pytest

from rules.kernel_log.parse import parse
from rules.kernel_log.record import LineKind
from rules.kernel_log.scan import worth_parsing
from rules.kernel_log.text import MAX_TEXT
from rules.text.pci_address import normal_pci

BODY = (
    b"NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)

FROM_KERNEL = {
    "bare": b"",
    "kmsg": b"3,3971,6781741548779,-;",
    "kmsg with caller": b"3,3971,6781741548779,-,caller=T1946;",
    "kmsg of an old kernel": b"3,3971,6781741548779;",
    "syslog priority": b"<3>[6781741.548779] ",
    "syslog RFC 5424": b"<3>1 2025-02-23T16:24:18.123456Z gpu-17 kernel - - - ",
    "dmesg": b"[6781741.548779] ",
    "dmesg with thread": b"[6781741.548779][ T1946] ",
    "dmesg --reltime": b"[  +0.000003] ",
    "dmesg -T": b"[Sun Feb 23 16:24:18 2025] ",
    "dmesg -T in German": "[Sa Mär  1 16:24:18 2025] ".encode(),
    "dmesg --decode": b"kern  :err   : [6781741.548779] ",
    "dmesg --time-format iso": b"2025-02-23T16:24:18,123456+00:00 ",
    "journal": b"Feb 23 16:24:18 gpu-17 kernel: ",
    "journal in French": "févr. 23 16:24:18 gpu-17 kernel: ".encode(),
    "journal short-iso": b"2025-02-23T16:24:18+0100 gpu-17.example.org kernel: ",
    "journal short-full": b"Sun 2025-02-23 16:24:18 UTC gpu-17 kernel: ",
    "journal short-monotonic": b"[12345.678901] gpu-17 kernel: ",
    "journal short-unix": b"1740327858.123456 gpu-17 kernel: ",
    "syslog with kernel time": b"Feb  3 16:24:18 gpu-17 kernel: [12345.678901] ",
    "journal in Japanese": " 2月 23 16:24:18 gpu-17 kernel: ".encode(),
    "journal, zone without a name": b"Sun 2025-02-23 16:24:18 +03 gpu-17 kernel: ",
    "syslog with facility": b"Feb 23 16:24:18 gpu-17 kern.err kernel: [12345.678901] ",
    "logged twice": b"Feb 23 16:24:19 collector kernel: Feb 23 16:24:18 gpu-17 kernel: ",
    "Talos Linux": b"10.0.0.17: kern: err: [2025-02-23T16:24:18.123456789Z]: ",
    "Talos Linux, a padded level": b"10.0.0.17: kern:   crit: [2025-02-23T16:24:18.123456789Z]: ",
    "tag only": b"kernel: ",
}


@pytest.mark.parametrize("prefix", FROM_KERNEL.values(), ids=FROM_KERNEL)
def test_every_transport_gives_the_same_line(prefix: bytes) -> None:
    assert parse(prefix + BODY) == parse(BODY)
    assert parse(prefix + BODY + b"\r\n") == parse(BODY)


def test_terminal_colors_are_removed() -> None:
    coloured = (
        b"\x1b[32m[12345.678901] \x1b[0m\x1b[33mNVRM: \x1b[0m\x1b[31m" + BODY[6:] + b"\x1b[0m\n"
    )
    assert parse(coloured) == parse(BODY)
    assert worth_parsing(coloured)


FROM_USER_SPACE = {
    "kmsg": b"11,3971,6781741548779,-;",
    "syslog priority": b"<12>[6781741.548779] ",
    "dmesg --decode": b"user  :notice: [6781741.548779] ",
    "dmesg --decode, long name": b"syslog:err   : 2025-02-23T16:24:18,123456+00:00 ",
    "syslog with facility": b"Feb 23 16:24:18 gpu-17 daemon.err kernel: ",
    "Talos Linux": b"10.0.0.17: user: warning: [2025-02-23T16:24:18.123456789Z]: ",
}


@pytest.mark.parametrize("prefix", FROM_USER_SPACE.values(), ids=FROM_USER_SPACE)
def test_a_line_of_user_space_is_read_and_flagged(prefix: bytes) -> None:
    line = parse(prefix + BODY)
    assert line is not None
    assert (line.xid, line.user) == (79, True)


FORGED = {
    "OOM killer": b"Out of memory: Killed process 4242 (NVRM: Xid (PCI:) total-vm:1024kB",
    "OOM killer, container": b"oom-kill:constraint=CONSTRAINT_NONE,task=NVRM: Xid "
    b"(PCI:,pid=42,uid=0",
    "crashed process": b"NVRM: Xid (PCI:[4242]: segfault at 0 ip 0000000000000000 sp 0 error 14",
    "hung process": b"INFO: task NVRM: Xid (PCI::4242 blocked for more than 120 seconds.",
    "middle of a line": b"nvidia-uvm: reported " + BODY,
    "another program's log": b"Feb 23 16:24:18 gpu-17 trainer[812]: " + BODY,
    "another program quoting": b"Feb 23 16:24:18 gpu-17 trainer: kernel: " + BODY,
    "another program quoting, logged twice": b"Feb 23 16:24:19 collector kernel: trainer: kernel: "
    + BODY,
    "container log": b"2025-02-23T16:24:18.123456789Z stdout F " + BODY,
    "journal export": b"MESSAGE=" + BODY,
    "audit record": b'audit: type=1400 comm="x" name="kernel: ' + BODY + b'"',
    "second line of a record": b"3,1,1,-;usb 1-1: Product: x\\x0a" + BODY,
    "wrong case": b"nvrm: xid (PCI:0000:3b:00): 79",
    "number with a letter": b"NVRM: Xid (PCI:0000:01:00): 79x, y",
    "no closing": b"NVRM: Xid (PCI:0000:01:00",
    "no address": b"NVRM: Xid (79, pid: 5678): GPU has stopped processing",
    "no space": b"NVRM: Xid(PCI:0000:01:00): 79",
    "tracepoint body": b"Xid (PCI:0000:01:00): 79",
}


@pytest.mark.parametrize("raw", FORGED.values(), ids=FORGED)
def test_no_forged_line_carries_a_number(raw: bytes) -> None:
    for prefix in (b"", b"[12345.678901] ", b"3,1,1,-;"):
        line = parse(prefix + raw)
        assert line is None or (line.xid is None and line.sxid is None)


def test_the_second_line_of_a_program_s_message_is_not_the_kernel_s() -> None:
    """The journal prints it indented, without a tag."""
    assert parse(b" " * 30 + BODY) is None


def test_a_process_name_in_an_xid_line_changes_nothing_but_the_process() -> None:
    line = parse(
        b"NVRM: Xid (PCI:0000:01:00): 13, pid=7, name=NVRM: Xid (PCI:, "
        b"Graphics SM Warp Exception on (GPC 3, TPC 4, SM 0): Out Of Range Address"
    )
    assert line is not None
    assert (line.xid, line.process, line.pid) == (13, "NVRM: Xid (PCI:", 7)
    assert (line.gpc, line.tpc) == (3, 4)


@pytest.mark.parametrize(
    ("fields", "pid", "process"),
    [
        pytest.param(b"pid=42, name=python3, Ch 1", 42, "python3", id="both"),
        pytest.param(b"pid='<unknown>', name=<unknown>, Ch 1", None, None, id="unknown"),
        pytest.param(b"pid=<n/a>, name=<unknown>, Ch 1", None, None, id="not available"),
        pytest.param(b"pid=42, Ch 1", 42, None, id="pid only"),
        pytest.param(b"name=llama-server, channel 0x1", None, "llama-server", id="name only"),
        pytest.param(b"pid=1, name=nvc:[driver], Ch 1", 1, "nvc:[driver]", id="brackets"),
        pytest.param(b"pid=1, name=VLLM::Worker", 1, "VLLM::Worker", id="name last"),
        pytest.param(b"pid=1, name=a\tb, Ch 1", 1, "a\\x09b", id="control character"),
        pytest.param(b"Ch 1", None, None, id="neither"),
    ],
)
def test_pid_and_name_in_every_shape(fields: bytes, pid: int | None, process: str | None) -> None:
    line = parse(b"NVRM: Xid (PCI:0000:01:00): 43, " + fields)
    assert line is not None
    assert (line.pid, line.process) == (pid, process)


def test_text_is_bounded_and_free_of_control_characters() -> None:
    line = parse(BODY + b"\x1b[31m\x00\xff" + b"A" * 10_000)
    assert line is not None
    assert len(line.text) == MAX_TEXT
    assert line.text.isprintable()
    assert "\\x1b[31m\\x00\\xff" in line.text


def test_bytes_that_the_kernel_escaped_are_shown_once() -> None:
    line = parse(b"3,5,6,c;NVRM: Xid (PCI:0000:3b:00): 13, name=\\xc3\\xa4\\x0ab, Ch 1")
    assert line is not None
    assert line.process == "ä\\x0ab"


@pytest.mark.parametrize(
    ("raw", "pci"),
    [
        pytest.param(b"0000:9B:00", "0000:9b:00", id="lower case"),
        pytest.param(b"00000000:9B:00.0", "0000:9b:00.0", id="domain of eight digits"),
        pytest.param(b"00010000:9B:00.0", "10000:9b:00.0", id="domain beyond four digits"),
        pytest.param(b"0001:00", "0001:00", id="driver of 2007"),
    ],
)
def test_addresses_are_spelled_one_way(raw: bytes, pci: str) -> None:
    assert normal_pci(raw.decode()) == pci


@pytest.mark.parametrize(
    ("first", "lost"),
    [
        pytest.param(b"The NVIDIA GPU 0000:18:00.0", True, id="first of three lines"),
        pytest.param(b"The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1b06)", False, id="unsupported"),
        pytest.param(
            b"The NVIDIA GPU 0000:18:00.0\\x0aNVRM: (PCI ID: 10de:2901) installed in "
            b"this system has"
            b"\\x0aNVRM: fallen off the bus and is not responding to commands.",
            True,
            id="all three in one record",
        ),
        pytest.param(
            b"The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1b06)\\x0aNVRM: installed in "
            b"this system is "
            b"not supported by open\\x0aNVRM: nvidia.ko",
            False,
            id="unsupported, in one record",
        ),
    ],
)
def test_a_lost_gpu_differs_from_an_unsupported_one(first: bytes, lost: bool) -> None:
    line = parse(b"3,1,1,-;NVRM: " + first)
    assert (line is not None and line.kind is LineKind.GPU_LOST) == lost
    assert not lost or (line is not None and line.pci == "0000:18:00.0")


def test_the_cause_counts_only_at_the_end_of_the_line() -> None:
    derived = parse(
        b"NVRM: Xid (PCI:0000:01:00): 45, pid=1, name=a, Ch 1 caused by previous Xid 149"
    )
    named = parse(b"NVRM: Xid (PCI:0000:01:00): 45, pid=1, name=x caused by previous Xid 149")
    assert derived is not None
    assert named is not None
    assert (derived.caused_by, named.caused_by) == (149, None)


def test_a_line_that_limits_its_rate_keeps_its_address() -> None:
    found = parse(
        b"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every"
        b" 30).  The GPU likely needs to be reset."
    )
    assert found is not None
    assert (found.kind, found.pci) == (LineKind.GSP_ERROR, "0000:9b:00")
