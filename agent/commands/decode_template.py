"""Lines that differ in address and process number only: encoded once, filled in after.

Used by `agent.commands.decode_json`. A fault on a busy node prints the same words for hundreds of
processes and a few GPUs; what the words mean is the same for all of them. Only where the encoded
object holds both values in exactly the expected places is it used as a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from rules.kernel_log.parse import parse_message
from rules.kernel_log.record import KernelLine
from rules.kernel_log.text import MAX_TEXT

Encode = Callable[[KernelLine], bytes]

_VARIABLE: Final = re.compile(
    rb"(NVRM: (?:Xid \((?:PCI:)?|GPU (?:at PCI:)?)|nvidia-nvswitch\d{0,3}: SXid \(PCI:"
    rb"|mlx5_core |pcieport |nvidia )"
    rb"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:(\): \d{1,5}, pid=)([1-9]\d{0,8})(?=,))?"
)
_ADDRESS: Final = b"fedc:ba:98"
_PID: Final = b"987654321"
"""Stand-ins, as long as the values they stand for can be."""

_HOLES: Final = re.compile(rb"(" + _ADDRESS + rb"|" + _PID + rb")")
_MOST: Final = 4096

_Key = tuple[bytes, bytes | None, bytes, bool]
_Parts = tuple[bytes, ...]


class Templates:
    """Remembers encoded Xid lines without address and process number; bounded."""

    __slots__ = ("_encode", "_known")

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._known: dict[_Key, _Parts] = {}

    def fill(self, message: bytes, user: bool) -> bytes | None:
        """The encoded object of this message; None where it has to be made from scratch."""
        found = _VARIABLE.match(message)
        if found is None:
            return None
        start, address, middle, pid = found.groups()
        key = (start, middle, message[found.end() :], user)
        parts = self._known.get(key)
        if parts is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            parts = self._known[key] = self._make(*key)
        if not parts:
            return None
        if pid is None:
            return address.join(parts)
        first, second, third, fourth, fifth = parts
        return b"".join((first, address, second, pid, third, address, fourth, pid, fifth))

    def _make(self, start: bytes, middle: bytes | None, rest: bytes, user: bool) -> _Parts:
        """The encoded object in parts around its holes; empty where it is no template."""
        message = start + _ADDRESS + (b"" if middle is None else middle + _PID) + rest
        line = parse_message(message, user=user) if len(message) <= MAX_TEXT else None
        if line is None or line.text.encode("utf-8", "replace") != message:
            return ()
        pieces = _HOLES.split(self._encode(line))
        once = [_ADDRESS] if middle is None else [_ADDRESS, _PID]
        return tuple(pieces[::2]) if pieces[1::2] == once * 2 else ()
