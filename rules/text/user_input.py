"""Validate user input: command lines, listen addresses, duplicate keys in YAML files.

argparse reports an unknown argument of a command as one of the program, and takes the value of a
misspelled option for the command. `CommandParser` reports both with the right command.
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
"""How similar a suggestion must be: `lits` suggests `list`, `--all` does not suggest `--as`."""


class CommandParser(argparse.ArgumentParser):
    """A parser that reports unknown arguments of a command with that command."""

    _typed: Sequence[str] = ()
    """The arguments after the command."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.declared: list[argparse.Action] = []
        """The arguments of this parser; a command's arguments are in its own parser."""
        super().__init__(*args, **options)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add an argument."""
        action = super().add_argument(*names, **options)
        self.declared.append(action)
        return action

    def add_subparsers(self, **options: Any) -> Any:
        """Add the argument that selects a command."""
        action = super().add_subparsers(**options)
        self.declared.append(action)
        return action

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments; unknown ones are an error."""
        self._typed = args or ()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self.not_understood(unknown))
        return found, unknown

    def not_understood(self, unknown: Sequence[str]) -> str:
        """Return the message about unknown arguments, with a similar option, or with the arguments
        that the command takes.
        """
        option = next((argument for argument in unknown if argument.startswith("-")), "")
        message = f"unrecognized arguments: {_cut(' '.join(unknown))}"
        if option:
            return message + nearest(option.partition("=")[0], self.known_options())
        taken = self.positionals()
        one = "one " if len(taken) == 1 else ""
        return f"{message}; it takes {one}{' and '.join(taken) or 'none'}"

    def complaint(self, message: str) -> tuple[str, str]:
        """Return the unknown command of an argparse message, or "", and a better message.

        A missing option was more often misspelled than forgotten.
        """
        if message.startswith(_LACKING):
            known = self.known_options()
            for argument in takewhile("--".__ne__, self._typed):
                # The prefix of an option may be an abbreviation (allow_abbrev).
                if argument.startswith("--") and not any(
                    one.startswith(argument.partition("=")[0]) for one in known
                ):
                    return "", self.not_understood([argument])
        return _no_command(message, self.commands())

    def positionals(self) -> tuple[str, ...]:
        """Return the positional arguments of the command, with their names in the help."""
        return tuple(
            str(action.metavar or action.dest.upper())
            for action in self.declared
            if not action.option_strings
        )

    def commands(self) -> tuple[str, ...]:
        """Return the commands of the program; none for the parser of a command."""
        return tuple(
            name
            for action in self.declared
            if action.nargs == argparse.PARSER
            for name in action.choices or ()
        )

    def known_options(self) -> tuple[str, ...]:
        """Return the options."""
        return tuple(option for action in self.declared for option in action.option_strings)


def _no_command(message: str, commands: Iterable[str]) -> tuple[str, str]:
    """Return the unknown command of an argparse message and a better message; else "" and the
    message.
    """
    wrong = _CHOICE.search(message)
    if wrong is None:
        return "", message
    kind, typed = wrong.groups()
    return typed, f"there is no {kind.lower()} {_cut(typed)!r}{nearest(typed, commands)}"


def nearest(typed: str, known: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for the most similar name; empty if none is similar."""
    # Imported here: only needed for wrong input.
    import difflib

    near = difflib.get_close_matches(typed, list(known), n=1, cutoff=_ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


EVERY_ADDRESS = ""
"""The host of an address like `:9412`: all addresses of the machine, IPv6 and IPv4."""


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `:9412`, `127.0.0.1:9412`, `localhost:0` or `[::1]:9412`.

    Raises ValueError for anything else. An IPv6 address needs brackets, because its last group
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
    """Return `budget.minimum is given twice, in lines 3 and 7; keep one of them` for the first
    duplicate key below a composed YAML node (None for an empty file); empty without one.

    Each node is visited once, for any number of aliases, without recursion.
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
