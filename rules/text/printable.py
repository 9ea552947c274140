"""Text for people: printable, counted, bounded, safe to paste into a shell.

A terminal cannot be steered with what `printable` returns: for everything a program prints, and
for what is stored of a kernel's line or another's text. A newline is `\\x0a`, as /dev/kmsg spells
it.
"""

import re
from pathlib import PurePath
from typing import Final
from unicodedata import combining, east_asian_width


def printable(text: str) -> str:
    """One line without control or formatting characters: each is spelled as an escape."""
    return text if text.isprintable() else "".join(map(printable_character, text))


def printable_character(char: str) -> str:
    """The character, or its escape: `\\x1b`, `\\u202e`, `\\U000e0001`."""
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def within_bytes(text: str, most: int) -> str:
    """The text, cut after so many bytes of UTF-8: what the API server counts."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def width_of(text: str) -> int:
    """How many columns of a terminal printable text takes: two for what is written wide."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1


def padded(text: str, width: int) -> str:
    """The text with blanks behind it, so that it takes `width` columns if it takes no more."""
    return text + " " * (width - width_of(text))


def count(number: int, one: str, many: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,252}", re.ASCII)
"""No letter that a shell gives a meaning, no blank, and no dash in front, which begins a flag."""


def is_pasteable(word: str) -> bool:
    """Whether a shell takes `word` as the one word it is: a reason, an address, a UUID.

    An agent writes them, and an operator pastes what names them where an agent has no rights.
    """
    return _PLAIN.fullmatch(word) is not None


def place_of(error: BaseException) -> str:
    """`ValueError in timestamps.py:12`: stable as long as the same thing fails, and none of the
    error's words, which may be those of an object that somebody else wrote.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = PurePath(trace.tb_frame.f_code.co_filename).name
    return f"{type(error).__name__} in {file}:{trace.tb_lineno}"
