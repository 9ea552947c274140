"""Strip the transport prefix of kernel messages and make their bytes printable.

The prefix grammar is closed and anchored: anything else is part of the message. So a process name
or a line quoted by another program is never taken for the start of a message.
"""

import re
from typing import Final

from rules.text.printable import printable as printable_text

MAX_LINE: Final = 4096
"""Bytes of a line that are read; the kernel's records have at most about 1,000."""

BARE: Final = (b"NVRM: ", b"nvidia-nvswitch")
"""The start of the most frequent messages."""

MAX_TEXT: Final = 512
"""Characters of text that are kept, the limit of evidence in GPUNodeHealth."""

_BRACKETS: Final = rb"(?:\[[^\]\n]{0,64}+\]\s*+){0,4}+"
_CLOCK: Final = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9}+)?+"
_ISO: Final = rb"\d{4}-\d\d-\d\dT" + _CLOCK + rb"(?:Z|[+-]\d\d:?\d\d)?"
_ZONE: Final = rb"(?:\s(?:[A-Z]{3,5}|[+-]\d\d(?::?\d\d)?))?+"
_DATE: Final = (
    rb"(?:" + _ISO + rb"\s++"
    rb"|(?:[^\s:]{1,12}+\s{1,2}+){1,4}+" + _CLOCK + _ZONE + rb"\s++"
    rb"|\d{9,11}\.\d{1,9}\s++)?+"  # seconds since the epoch
)
_FACILITY: Final = rb"([a-z]{2,9}+\d?+)"
_HOST: Final = rb"(?:\S{1,255}+(?<!:)\s)?+"
_TAG: Final = (
    rb"(?:kernel(?:\[\d{1,10}\])?:\s++|kernel\s-\s-\s(?:-|\[[^\]\n]{0,200}\])\s(?:\xef\xbb\xbf)?)"
)
_PREFIX: Final = re.compile(
    rb"(\d{1,10}),\d{1,20},\d{1,20}(?:,[^;\n]{0,256}+)?;"  # /dev/kmsg record
    rb"|(?:<(\d{1,10})>(?:1\s)?)?+"  # syslog priority
    rb"(?:" + _FACILITY + rb"\s{0,8}+:[a-z]{3,7}+\s{0,4}+:\s)?+"  # dmesg --decode
    + _BRACKETS + _DATE + rb"(?:" + _HOST + _TAG + rb")?" + _BRACKETS
)  # fmt: skip
_SECOND: Final = re.compile(
    _DATE + _HOST + rb"(?:" + _FACILITY + rb"\.[a-z]{3,7}\s)?+" + _TAG + _BRACKETS
)
"""Rare prefixes: one that a second logger added, a facility before the tag, a month after a blank.
"""
_TALOS: Final = re.compile(
    rb"\S{2,64}+(?<=:)\s" + _FACILITY + rb":\s{1,8}+[a-z]{3,7}:\s\[" + _ISO + rb"\]:\s"
)
"""Talos Linux: the node's address, facility, level (padded) and time."""
_COLOURS: Final = re.compile(rb"\x1b\[[\d;]{0,16}m")
COLOUR: Final = b"\x1b["
"""The start of a line of `dmesg --color=always`."""
_ESCAPE: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")
_FACILITY_BITS: Final = 3
_PLAIN: Final = bytes(range(0x20, 0x7F))


def split_prefix(line: bytes) -> tuple[bytes, bool]:
    """Return the message without its transport prefix, and whether user space wrote it."""
    found = _PREFIX.match(line)
    if found is None:  # pragma: no cover - every part of the second branch is optional
        return line, False
    end = found.end()
    if not end:
        return _split_rare_prefix(line)
    record, priority, facility = found.groups()
    message = line[end:]
    if record is not None:
        if b"\\x" in message:
            message = _ESCAPE.sub(_unescape, message)
        return message, int(record) >> _FACILITY_BITS != 0
    if not message.startswith(BARE) and (second := _SECOND.match(message)):
        message = message[second.end() :]
        facility = facility or second[1]
    if priority is not None:
        return message, int(priority) >> _FACILITY_BITS != 0
    return message, facility is not None and facility != b"kern"


def _split_rare_prefix(line: bytes) -> tuple[bytes, bool]:
    if line.startswith(COLOUR):
        plain = _COLOURS.sub(b"", line)
        return (plain, False) if plain.startswith(COLOUR) else split_prefix(plain)
    if found := _TALOS.match(line):
        return line[found.end() :], found[1] != b"kern"
    if line.startswith(b" ") and (found := _SECOND.match(line, 1)):
        return line[found.end() :], found[1] is not None and found[1] != b"kern"
    return line, False


def _unescape(found: re.Match[bytes]) -> bytes:
    return bytes((int(found[1], 16),))


def printable(message: bytes, limit: int = MAX_TEXT) -> str:
    """Return `message` as text of at most `limit` characters that is safe to print."""
    if len(message) > limit:
        message = message[:limit]
    if not message.translate(None, _PLAIN):
        return message.decode("ascii")
    text = message.decode("utf-8", "backslashreplace")
    text = printable_text(text)
    return text if len(text) <= limit else text[:limit]
