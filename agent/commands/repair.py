"""Common code of reset-gpu and restart-node: run host programs, add options, print the result.

Host programs run in the root directory or in the mount namespace of process 1. No program runs in
a shell, and each has a timeout.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.commands import terminal
from agent.sources import host
from rules.text.printable import printable

_SHOWN: Final = 400
_DIES_S: Final = 1.0
"""How long to wait for a killed program to end."""
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
}


class HostError(Exception):
    """The host is not accessible, or a host program failed. The text is a clause."""


class TooLateError(HostError):
    """A program was started and did not end in time: its effect is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """The result of a program."""

    status: int
    """Its exit status, or minus the signal that ended it."""
    text: str
    """Standard output."""
    error: str = ""
    """Standard error."""

    @property
    def output(self) -> str:
        """The last part of its standard output and error, in one line."""
        text = " ".join(f"{self.text} {self.error}".split())[-_SHOWN:]
        return text or "no output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Access to the host through process 1. Tests replace `chroot` and `nsenter`."""

    proc: Path = Path("/proc")
    chroot: Sequence[str] = ("chroot",)
    nsenter: Sequence[str] = ("nsenter",)

    @property
    def root(self) -> Path:
        """The host's root directory."""
        return self.proc / "1" / "root"

    @property
    def sees_host(self) -> bool:
        """Whether `/proc` shows the host's processes; otherwise process 1 is the container's."""
        return host.sees_host_processes(self.proc)

    @property
    def boot_id(self) -> str:
        """The ID of the current boot. Raises HostError."""
        try:
            return (self.proc / "sys/kernel/random/boot_id").read_text().strip()
        except OSError as error:
            raise HostError(f"the boot ID cannot be read: {error.strerror}") from error

    def in_root(self, root: Path, *command: str, timeout_s: float) -> ProgramResult:
        """Run a program with `root` as its root directory. Raises HostError."""
        return _run((*self.chroot, str(root), *command), timeout_s)

    def in_init_mounts(self, *command: str, timeout_s: float) -> ProgramResult:
        """Run a program in the mount namespace of process 1. Raises HostError."""
        return _run((*self.nsenter, "--target", "1", "--mount", "--", *command), timeout_s)


def _run(command: Sequence[str], timeout_s: float) -> ProgramResult:
    """Run a program and return its result.

    Raises HostError if it does not start, TooLateError if it does not end in time. It runs in its
    own session, so that a signal to this process does not interrupt it. A program that hangs in
    the kernel cannot be killed and keeps running.
    """
    name = " ".join(command)[:200]
    try:
        process = subprocess.Popen(  # noqa: S603 - a fixed program, checked arguments, no shell
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(_ENVIRONMENT),
            start_new_session=True,
        )
    except OSError as error:
        raise HostError(f"{name!r} cannot be started: {error.strerror}") from error
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_DIES_S)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        raise TooLateError(f"{name!r} did not end within {timeout_s:.0f} s") from error
    return ProgramResult(status=process.returncode, text=_text(out), error=_text(err))


def _text(output: bytes) -> str:
    return output[-65_536:].decode(errors="backslashreplace")


MAX_BYTES: Final = 4096
"""The kubelet keeps this much of a termination message."""
MAX_MESSAGE_CHARS: Final = 1024


class Outcome(StrEnum):
    """The outcome of a repair."""

    DONE = "done"
    """The request was accepted."""
    NEEDLESS = "needless"
    """The node has rebooted since the request: there is nothing to do."""
    UNKNOWN = "unknown"
    """The request was sent and got no response: the repair may still happen."""
    FAILED = "failed"
    """The repair was started and failed."""
    REFUSED = "refused"
    """A precondition is not met; nothing was started."""


EXIT_STATUS: Final = {
    Outcome.DONE: 0,
    Outcome.NEEDLESS: 0,
    Outcome.UNKNOWN: 2,
    Outcome.FAILED: 1,
    Outcome.REFUSED: 3,
}


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result as one JSON object, for `-o json` and for the termination log."""

    outcome: Outcome
    message: str
    gpus: tuple[str, ...] = ()


def for_kubernetes(result: RepairResult) -> bytes:
    """Return the result as JSON of at most `MAX_BYTES`."""
    short = msgspec.structs.replace(result, message=result.message[:MAX_MESSAGE_CHARS])
    text = msgspec.json.encode(short)
    if len(text) > MAX_BYTES:
        text = msgspec.json.encode(msgspec.structs.replace(short, gpus=()))
    return text


EPILOG: Final = (
    "Exit status: 0 success, or nothing to do; 1 failed; 2 requested, result unknown;\n"
    "3 refused, nothing was started; 64 usage error."
)


def add_parser(subparsers: Any, name: str, summary: str, more: str) -> argparse.ArgumentParser:
    """Add the command `name` with the options that both commands have."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary}.{more}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    terminal.add_output(parser, "the result as one object")
    parser.add_argument(
        "--termination-log",
        metavar="FILE",
        default="/dev/termination-log",
        help="write the result to this file for Kubernetes, if it exists"
        " [default: /dev/termination-log]",
    )
    return parser


def log_line(text: str) -> None:
    """Write a line about the progress to standard error."""
    sys.stderr.write(printable(text) + "\n")


def print_result(result: RepairResult, arguments: argparse.Namespace, program: str) -> int:
    """Print the result, write it to the termination log and return the exit status."""
    log = Path(arguments.termination_log)
    if log.is_file() and os.access(log, os.W_OK):
        try:
            log.write_bytes(for_kubernetes(result))
        except OSError as error:
            log_line(f"{program}: cannot write {log}: {error.strerror}")
    if arguments.output == "json":
        terminal.print_out(msgspec.json.encode(result).decode() + "\n", program)
    else:
        terminal.print_out(printable(result.message) + "\n", program)
    return EXIT_STATUS[result.outcome]
