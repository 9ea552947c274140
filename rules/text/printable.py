"""Make text printable, bounded and safe to paste into a shell.

`printable` escapes control and formatting characters, so that text from the kernel or from other
programs cannot control a terminal. A newline is `\\x0a`, as in /dev/kmsg.
"""

import re
from pathlib import PurePath
from typing import Final
from unicodedata import combining, east_asian_width


def printable(text: str) -> str:
    """Return one line with control and formatting characters escaped."""
    return text if text.isprintable() else "".join(map(printable_character, text))


def printable_character(char: str) -> str:
    """Return the character, or its escape: `\\x1b`, `\\u202e`, `\\U000e0001`."""
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def within_bytes(text: str, most: int) -> str:
    """Return the text cut to `most` bytes of UTF-8, which the API server counts."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def width_of(text: str) -> int:
    """Return the columns of printable text in a terminal; wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1


def padded(text: str, width: int) -> str:
    """Return the text padded with blanks to `width` columns."""
    return text + " " * (width - width_of(text))


def count(number: int, one: str, many: str = "") -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,252}", re.ASCII)
"""No shell metacharacter, no blank, and no leading dash, which begins a flag."""


def is_pasteable(text: str) -> bool:
    """Return whether a shell reads `text` as one argument: a reason, an address, a UUID.

    Agents write these texts, and operators paste commands that contain them.
    """
    return _PLAIN.fullmatch(text) is not None


def place_of(error: BaseException) -> str:
    """Return `ValueError in timestamps.py:12`: the same for the same failure.

    The error's message is left out, because it may contain text of an untrusted object.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = PurePath(trace.tb_frame.f_code.co_filename).name
    return f"{type(error).__name__} in {file}:{trace.tb_lineno}"
