"""Text that a terminal cannot be steered with: for everything a program prints, and for what is
stored of a kernel's line or another's words. A newline is `\\x0a`, as /dev/kmsg spells it.
"""

from __future__ import annotations

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
