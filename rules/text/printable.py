"""Text that a terminal cannot be steered with: for everything a program prints."""

from __future__ import annotations


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
