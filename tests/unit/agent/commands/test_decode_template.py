"""A template gives what reading the line gives, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.commands.decode_template import Templates
from rules.kernel_log.parse import parse_message
from rules.kernel_log.record import KernelLine
from rules.kernel_log.text import split_prefix

LINES = Path(__file__).parents[3] / "data" / "kernel_lines.jsonl"
STARTS = (b"NVRM: Xid (PCI:", b"NVRM: Xid (", b"nvidia-nvswitch3: SXid (PCI:", b"mlx5_core ")


def encode(line: KernelLine) -> bytes:
    """Every value that a JSON object of the line shows."""
    return json.dumps([line.pci, line.pid, line.process, line.xid, line.sxid, line.text]).encode()


def read(message: bytes, user: bool = False) -> bytes | None:
    line = parse_message(message, user=user)
    return None if line is None else encode(line)


address = st.from_regex(rb"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}", fullmatch=True)
number = st.integers(0, 1 << 40).map(lambda value: b"%d" % value)
ends = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b", name=python, Ch 00000008", b".1): 79, lost", b"): 63, pid=987654321, x"]),
)


@given(
    start=st.sampled_from(STARTS),
    addresses=st.lists(address, min_size=2, max_size=4),
    xid=number,
    pids=st.lists(number, min_size=2, max_size=4),
    end=ends,
    bare=st.booleans(),
)
@example(STARTS[0], [b"fedc:ba:98", b"0000:1b:00"], b"79", [b"7", b"007"], b", fedc:ba:98", False)
def test_a_template_gives_what_reading_gives(
    start: bytes, addresses: list[bytes], xid: bytes, pids: list[bytes], end: bytes, bare: bool
) -> None:
    templates = Templates(encode)
    for pci, pid in zip(addresses, pids, strict=False):
        middle = b"" if bare else b"): " + xid + b", pid=" + pid
        message = start + pci + middle + end
        filled = templates.fill(message, False)
        assert filled is None or filled == read(message)


def test_development_lines_come_out_the_same() -> None:
    templates = Templates(encode)
    filled = 0
    for row in LINES.read_text(encoding="utf-8").splitlines():
        message, user = split_prefix(json.loads(row)["line"].encode())
        found = templates.fill(message, user)
        filled += found is not None
        assert found is None or found == read(message, user)
    assert filled > 200


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"NVRM: Xid (PCI:0000:1b:00): 13, pid=5, name=\x1b[31m, x", id="escaped"),
        pytest.param(b"NVRM: Xid (PCI:0000:1b:00): 13, pid=5, " + b"x" * 600, id="cut"),
        pytest.param(b"NVRM: Xid (PCI:0000:1b:00): 13, pid=5, on fedc:ba:98", id="a stand-in"),
        pytest.param(b"NVRM: something else", id="no such line"),
    ],
)
def test_what_is_no_template_is_made_from_scratch(message: bytes) -> None:
    assert Templates(encode).fill(message, False) is None
