"""`gpuward-agent validate`: put this machine's GPUs under load and say whether they bore it.

Called by `agent.cli`, never by the daemon: the test takes every GPU for itself, so somebody has to
ask for it. It calls the CUDA driver alone, and changes nothing that outlasts it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.commands.terminal import add_output, print_out
from agent.commands.validate_table import text_of
from agent.settings import (
    USAGE_ERROR,
    Option,
    SettingsError,
    count_of_gpus,
    host_name,
    seconds_between,
)
from agent.validate.course import Course, Plan
from agent.validate.reading import ReadingError, look
from rules.text.printable import printable
from rules.validate.contract import EXIT_STATUS, Result, Verdict, within
from rules.validate.findings import Subject
from rules.validate.judge import judge
from rules.validate.refusal import in_use, untestable

PROGRAM: Final = "gpuward-agent validate"
EXIT_INTERRUPTED: Final = 130
EXPECTED: Final = "GPUWARD_EXPECTED_GPUS"
TERMINATION_LOG: Final = "/dev/termination-log"
"""Where the kubelet looks; there is none outside of a pod."""

OPTIONS: Final = (
    Option(
        name="gpus",
        default="",
        metavar="LIST",
        help="only these GPUs: numbers or UUIDs, separated by commas; default: all",
    ),
    Option(
        name="time",
        default="30",
        metavar="SECONDS",
        help="how long all GPUs compute together; a fifth of it for the copies together",
    ),
    Option(
        name="deadline",
        default="120",
        metavar="SECONDS",
        help="how long one step of one GPU may take before it counts as hung",
    ),
    Option(
        name="expected-gpus",
        default="",
        metavar="COUNT",
        help="how many GPUs this node should have; default: $GPUWARD_EXPECTED_GPUS, else as many"
        " as NVML counts",
    ),
    Option(
        name="even-if-busy",
        default="",
        metavar="",
        help="test although others use the GPUs: it disturbs them and spoils the figures",
    ),
    Option(
        name="driver",
        default="real",
        metavar="real|sim:FILE",
        help="whose CUDA and NVML: the installed driver's, or a simulated node's (in a checkout"
        " only)",
    ),
    Option(
        name="termination-log",
        default=TERMINATION_LOG,
        metavar="FILE",
        help="where a result of at most 4 KiB is left for Kubernetes, if that file exists",
    ),
)
"""Those without a metavar are switches."""


def add_parser(subparsers: Any) -> None:
    """Add `validate` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "validate",
        help="put this machine's GPUs under load and judge what comes back",
        description="Test this machine's GPUs under load: memory patterns, copies to the host and"
        " between GPUs, and the same work on all of them, compared. It takes the GPUs for itself"
        " and refuses where somebody uses them.",
        epilog="Exit status: 0 pass, 1 degraded, 2 fail, 3 unknown (it could not be tested), 64"
        " wrong use.",
    )
    add_output(parser, "the result as one object")
    for option in OPTIONS:
        if not option.metavar:
            parser.add_argument(f"--{option.name}", action="store_true", help=option.help)
            continue
        shown = f" [default: {option.default}]" if option.default else ""
        given = os.environ.get(EXPECTED, "") if option.name == "expected-gpus" else ""
        parser.add_argument(
            f"--{option.name}",
            metavar=option.metavar,
            default=given or option.default,
            help=option.help + shown,
        )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Test, print, leave the result for Kubernetes, and say by the exit status how it went."""
    told = Telling(sys.stderr.write)
    # The first process of a container hears only what it has a handler for.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result, subjects = _tested(arguments, told)
    except SettingsError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return USAGE_ERROR
    except KeyboardInterrupt:
        _leave(_untested("It was interrupted."), Path(arguments.termination_log))
        return EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    _leave(result, Path(arguments.termination_log))
    if arguments.output == "json":
        print_out(msgspec.json.encode(result).decode() + "\n", PROGRAM)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print_out(text_of(result, subjects, host_name(), width), PROGRAM)
    return EXIT_STATUS[result.verdict]


class Telling:
    """Lines about what is being done, with the seconds since the start."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._began = time.monotonic()

    def __call__(self, words: str) -> None:
        """Say it at once: the test may hang."""
        self._write(f"{time.monotonic() - self._began:6.1f} s  {printable(words)}\n")


def _tested(arguments: argparse.Namespace, tell: Telling) -> tuple[Result, Sequence[Subject]]:
    """The result, and the GPUs that there are. Raises SettingsError."""
    driver = arguments.driver
    if driver != "real" and not driver.startswith("sim:"):
        raise SettingsError(f"--driver {driver!r} is neither real nor sim:FILE")
    deadline_s = seconds_between("deadline", arguments.deadline, 1.0, 3600.0)
    time_s = seconds_between("time", arguments.time, 0.1, 3600.0)
    expected = count_of_gpus(arguments.expected_gpus)
    tell("looking at the GPUs")
    try:
        first = look(driver, deadline_s)
    except ReadingError as error:
        return _untested(f"Nothing was tested: {error}"), ()
    chosen = _chosen(arguments.gpus, first.subjects)
    refused = "Nothing was tested: NVML shows no GPU here." if not chosen else untestable(chosen)
    if not refused and not arguments.even_if_busy:
        refused = in_use(chosen)
    if refused:
        return _untested(refused), first.subjects
    plan = Plan(
        mode=driver,
        chosen=[subject.uuid for subject in chosen],
        expected=None if arguments.gpus else expected,
        time_s=time_s,
        deadline_s=deadline_s,
        even_if_busy=arguments.even_if_busy,
    )
    return judge(Course(plan, first, tell).run()), first.subjects


def _chosen(given: str, subjects: Sequence[Subject]) -> list[Subject]:
    """The GPUs that `--gpus` names, each once. Raises SettingsError for one that is not here."""
    if not given:
        return list(subjects)
    known = {name: subject for subject in subjects for name in (str(subject.index), subject.uuid)}
    found: dict[str, Subject] = {}
    for name in given.split(","):
        subject = known.get(name.strip())
        if subject is None:
            here = ", ".join(str(one.index) for one in subjects) or "none"
            raise SettingsError(f"--gpus {given!r} names a GPU that is not here; here: {here}")
        found[subject.uuid] = subject
    return sorted(found.values(), key=lambda subject: subject.index)


def _untested(message: str) -> Result:
    return Result(verdict=Verdict.UNKNOWN, message=message)


def _leave(result: Result, path: Path) -> None:
    """Write the termination log where Kubernetes made one; without it the exit status speaks."""
    if not path.is_file() or not os.access(path, os.W_OK):
        return
    try:
        path.write_bytes(within(result))
    except OSError as error:
        sys.stderr.write(f"{PROGRAM}: {path} cannot be written: {error.strerror}\n")
