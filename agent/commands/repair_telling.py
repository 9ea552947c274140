"""How the two commands that repair this machine tell what they did: lines, a result, a status."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.commands.repair_host import EXIT_STATUS, RepairResult, for_kubernetes
from agent.commands.terminal import add_output, print_out
from agent.settings import Option
from rules.text.printable import printable

EPILOG: Final = (
    "Exit status: 0 asked, or nothing to do any more; 1 it failed; 2 asked, and nobody knows "
    "whether it happens; 3 refused, nothing was begun; 64 wrong use."
)
TERMINATION_LOG: Final = Option(
    name="termination-log",
    default="/dev/termination-log",
    metavar="FILE",
    help="where the result is left for Kubernetes, if that file exists",
)


def add_parser(
    subparsers: Any, name: str, description: str, options: tuple[Option, ...]
) -> argparse.ArgumentParser:
    """Add the command `name`; the flags of the pod's environment are their defaults."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=description, description=description, epilog=EPILOG
    )
    add_output(parser, "the result as one object")
    for option in options:
        if option.switch:
            parser.add_argument(f"--{option.name}", action="store_true", help=option.help)
            continue
        shown = f" [default: {option.default}]" if option.default else ""
        parser.add_argument(
            f"--{option.name}",
            metavar=option.metavar,
            default=option.default,
            help=option.help + shown,
        )
    return parser


def say(words: str) -> None:
    """One line about what is being done."""
    sys.stderr.write(printable(words) + "\n")


def tell(result: RepairResult, arguments: argparse.Namespace, program: str) -> int:
    """Print the result, leave it for Kubernetes, and make it the exit status."""
    log = Path(arguments.termination_log)
    if log.is_file() and os.access(log, os.W_OK):
        try:
            log.write_bytes(for_kubernetes(result))
        except OSError as error:
            say(f"{program}: {log} cannot be written: {error.strerror}")
    if arguments.output == "json":
        print_out(msgspec.json.encode(result).decode() + "\n", program)
    else:
        print_out(printable(result.message) + "\n", program)
    return EXIT_STATUS[result.outcome]
