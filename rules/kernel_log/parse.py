"""From one line of a kernel log, in any transport, to a frozen record of what it says.

The agent's kernel log sense and `gpuward-agent decode` call `parse`; whole files go through
`rules.kernel_log.scan`, which gives the same answers faster. Every line is judged by itself, so
a log fed line by line and as one file comes out the same. Any bytes are survived; nothing here
does I/O, keeps state or decides what a line means.
"""

from __future__ import annotations

from rules.kernel_log.record import KernelLine
from rules.kernel_log.shapes import NVRM, OTHER
from rules.kernel_log.text import BARE, MAX_LINE, split_prefix
from rules.kernel_log.xid_reports import parse_fabric_manager, parse_sxid, parse_xid


def parse(line: bytes) -> KernelLine | None:
    """Read one line; None when it says nothing about GPUs.

    Bare, or as `/dev/kmsg` (header, semicolon, text), dmesg, journal or syslog print it; what
    follows a newline (the dictionary lines of a `/dev/kmsg` record) is ignored.
    """
    if len(line) > MAX_LINE:
        line = line[:MAX_LINE]
    if b"\n" in line:
        line = line[: line.index(b"\n")]
    if line.startswith(BARE):
        return parse_message(line)
    message, user = split_prefix(line)
    return parse_message(message, user=user)


def parse_message(message: bytes, *, user: bool = False) -> KernelLine | None:
    """Read a message whose transport prefix is gone; `user` says that user space wrote it."""
    if len(message) > MAX_LINE or message.endswith(b"\r"):
        message = message[:MAX_LINE].rstrip(b"\r")
    if message.startswith(b"NVRM: "):
        if message.startswith(b"Xid (", 6):
            return parse_xid(message, user)
        return NVRM.parse(message, 6, user)
    if message.startswith(b"nvidia-nvswitch"):
        return parse_sxid(message, user)
    if message.startswith(b"detected NVSwitch "):
        return parse_fabric_manager(message, user)
    return OTHER.parse(message, 0, user)
