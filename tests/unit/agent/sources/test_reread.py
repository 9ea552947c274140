"""The kernel log read once more: files, FIFOs, what user space wrote, what cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.sources.kernel_log import NoRereadError, messages

KMSG = (
    b"4,1,1000000,-;NVRM: first\n SUBSYSTEM=pci\n"
    b"12,2,2000000,-;NVRM: said by user space\n"
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
    assert b"NVRM: said by user space" not in texts
    assert found[0].since_boot_s == 1.0
    assert found[0].at is not None
    accepted = [each.text for each in messages(str(log), accept_user=True)]
    assert b"NVRM: said by user space" in accepted


def test_of_a_large_file_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    with log.open("wb") as file:
        file.write(b"4,1,1,-;NVRM: old\n")
        file.truncate(9 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\n4,9,9,-;NVRM: new\n")
    assert [m.text for m in messages(str(log)) if m.text.startswith(b"NVRM")] == [b"NVRM: new"]


@pytest.mark.parametrize(("mode", "why"), [("off", "is off"), ("/nowhere/kmsg", "cannot be read")])
def test_what_cannot_be_read_is_said(mode: str, why: str) -> None:
    with pytest.raises(NoRereadError, match=why):
        messages(mode)


def test_a_fifo_can_be_read_only_once(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    with pytest.raises(NoRereadError, match="only once"):
        messages(str(fifo))
