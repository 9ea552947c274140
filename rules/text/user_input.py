"""What people type: command lines, listen addresses, and keys that a YAML file gives twice.

argparse lets the program, not the command, complain about a stray word, and of what precedes a
command it takes the value of a misspelled option for the command. Agent, remediator and plugin
say it with these instead. Pure.
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Final

_CHOICE: Final = re.compile(r"argument (COMMAND|ACTION): invalid choice: '([^']*)'")
_LACKING: Final = "the following arguments are required"
_SHOWN: Final = 80
_ALIKE: Final = 0.7
"""How alike two words are where one is taken for the other: `lits`, not `--all` for `--as`."""


class CommandParser(argparse.ArgumentParser):
    """A parser whose commands complain themselves about what they do not take."""

    _typed: Sequence[str] = ()
    """What stands behind the command."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """What is known; anything else is wrong use."""
        self._typed = args or ()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self.not_understood(unknown))
        return found, unknown

    def not_understood(self, unknown: Sequence[str]) -> str:
        """What the command does not take, with the option that was meant where one is spelled
        alike, or with what it takes besides options.
        """
        strange = next((word for word in unknown if word.startswith("-")), "")
        said = f"unrecognized arguments: {_cut(' '.join(unknown))}"
        if strange:
            return said + nearest(strange.partition("=")[0], known_options(self))
        taken = self.words()
        one = "one " if len(taken) == 1 else ""
        return (
            f"{said}; it takes {one}{' and '.join(taken)}" if taken else f"{said}; it takes none"
        )

    def complaint(self, message: str) -> tuple[str, str]:
        """Of what argparse complains about the word that is no command, or "", and a sentence
        instead. What is missing was more often misspelled than forgotten.
        """
        if message.startswith(_LACKING):
            known = known_options(self)
            for word in takewhile("--".__ne__, self._typed):
                # What it begins may be short for it (allow_abbrev).
                if word.startswith("--") and not any(
                    one.startswith(word.partition("=")[0]) for one in known
                ):
                    return "", self.not_understood([word])
        return _no_command(message, self.commands())

    def words(self) -> tuple[str, ...]:
        """What the command takes besides options, as its help calls them."""
        return tuple(
            str(action.metavar or action.dest.upper())
            for action in _actions(self)
            if not action.option_strings
        )

    def commands(self) -> tuple[str, ...]:
        """The commands that it knows; none where it is one's own."""
        return tuple(
            name
            for action in _actions(self)
            if action.nargs == argparse.PARSER
            for name in action.choices or ()
        )


def known_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options that a parser tells people of."""
    return tuple(option for action in _actions(parser) for option in action.option_strings)


def _no_command(message: str, words: Iterable[str]) -> tuple[str, str]:
    """Of argparse's complaint about a word that is no command: the word, and a sentence instead;
    ("", the complaint) of any other.
    """
    wrong = _CHOICE.search(message)
    if wrong is None:
        return "", message
    kind, word = wrong.groups()
    return word, f"there is no {kind.lower()} {_cut(word)!r}{nearest(word, words)}"


def nearest(word: str, words: Iterable[str]) -> str:
    """`; did you mean WORD?` of the one that is spelled most alike; "" where none is."""
    # Imported here: what is typed right needs none of it.
    import difflib

    near = difflib.get_close_matches(word, list(words), n=1, cutoff=_ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  # argparse offers no other way to list them


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


EVERY_ADDRESS = ""
"""The host of an address like `:9412`: all addresses of the machine, IPv6 and IPv4."""


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `:9412`, `127.0.0.1:9412`, `localhost:0` or `[::1]:9412`.

    Raises ValueError for anything else; an IPv6 address needs its brackets, since its last group
    could be a port.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 65536
    if not colon or number > 65535 or (":" in host) != bracketed:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return (host[1:-1] if bracketed else host), number


_KEY_SHOWN: Final = 80


def duplicate_key(root: Any) -> str:
    """`budget.minimum is given twice, in lines 3 and 7; keep one of them`, of the first key that a
    mapping below a composed YAML node (None for an empty file) has twice; "" where none has.

    Each node is checked once, however many aliases name it, and nothing recurses.
    """
    seen: set[int] = set()
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting:
        node, path = waiting.pop()
        if node is None or node.id == "scalar" or id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "sequence":
            waiting += reversed([(item, f"{path}[{i}]") for i, item in enumerate(node.value)])
            continue
        lines: dict[tuple[str, str], int] = {}
        inner = []
        for key, value in node.value:
            scalar, line = key.id == "scalar", key.start_mark.line + 1
            place = f"{path}.{str(key.value)[:_KEY_SHOWN] if scalar else '?'}".removeprefix(".")
            if scalar and (first := lines.get((key.tag, key.value))) is not None:
                where = f"lines {first} and {line}" if first != line else f"line {line}"
                return f"{place} is given twice, in {where}; keep one of them"
            if scalar:
                lines[key.tag, key.value] = line
            inner.append((value, place))
        waiting += reversed(inner)
    return ""
