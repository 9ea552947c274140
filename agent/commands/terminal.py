"""Standard output that may be full, or whose reader may leave: for the commands people run.

Called by `check`, `decode` and `explain`. What they found out does not change because it could not
be printed, so nothing here ends the program: a reader that has seen enough is met with silence,
a full disk with one sentence on standard error.
"""

import argparse
import os
import sys

from rules.catalog import signals


def add_output(parser: argparse.ArgumentParser, json_text: str) -> None:
    """Add `-o json|table` and its older form `--json`; `json_text` says what json prints. The
    choice is `output` of the parsed arguments.
    """
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help=f"table for people, json: {json_text} [default: table]",
    )
    parser.add_argument(
        "--json", action="store_const", const="json", dest="output", help="the same as -o json"
    )


def add_driver(parser: argparse.ArgumentParser) -> None:
    """Add `--driver`: the branch as a number."""
    parser.add_argument(
        "--driver",
        metavar="V",
        type=_branch,
        help="driver version or branch (580), default: a current one",
    )


def _branch(text: str) -> int:
    branch = signals.driver_branch(text)
    if branch is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no driver version; give one like 580.82.07")
    return branch


def print_out(text: str, program: str) -> bool:
    """Print `text`; False when it could not be stored, which is said."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout.fileno())
    except OSError as error:
        silence(sys.stdout.fileno())
        sys.stderr.write(
            f"{program}: cannot write what was found: {error.strerror}; make room and run it"
            " again.\n"
        )
        return False
    return True


def silence(descriptor: int) -> None:
    """Keep the interpreter from flushing into it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
