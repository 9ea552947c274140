"""Options and output shared by the commands that operators run.

Called by `check`, `decode` and `explain`. A failed write never ends the program, so that the exit
status stays the result of the command: a closed pipe is ignored, a full disk is reported in one
sentence on standard error.
"""

import argparse
import os
import sys

from rules.catalog import signals


def add_output(parser: argparse.ArgumentParser, json_text: str) -> None:
    """Add `-o json|table` and its older form `--json`, stored as `output`.

    `json_text` describes the JSON output in the help.
    """
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help=f"output format; json prints {json_text} [default: table]",
    )
    parser.add_argument(
        "--json", action="store_const", const="json", dest="output", help="same as -o json"
    )


def add_driver(parser: argparse.ArgumentParser) -> None:
    """Add `--driver`, stored as the number of the driver branch."""
    parser.add_argument(
        "--driver",
        metavar="V",
        type=_branch,
        help="driver version or branch, such as 580 [default: a current one]",
    )


def _branch(text: str) -> int:
    branch = signals.driver_branch(text)
    if branch is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a driver version: use the form 580.82.07"
        )
    return branch


def print_out(text: str, program: str) -> bool:
    """Print `text`; return False, with a message on standard error, if the write failed."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout.fileno())
    except OSError as error:
        silence(sys.stdout.fileno())
        sys.stderr.write(
            f"{program}: cannot write the result: {error.strerror}. Free some space and run it"
            " again.\n"
        )
        return False
    return True


def silence(descriptor: int) -> None:
    """Point the descriptor at /dev/null, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
