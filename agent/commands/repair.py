"""What reset-gpu and restart-node share: running programs of the host, options, the result.

The way to the host is process 1: its root directory, or its mount namespace. Nothing is ever
passed through a shell, and every program has a deadline.
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
"""How long a killed program may take to go before it is left behind."""
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
}


class HostError(Exception):
    """The host cannot be reached or did not do it; the text is a clause."""


class TooLateError(HostError):
    """A program was begun and not over in time: what it did by then nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a program ended."""

    status: int
    """Its exit status; of one that a signal ended, minus the signal."""
    text: str
    """Standard output."""
    error: str = ""
    """Standard error."""

    @property
    def said(self) -> str:
        """The end of all it said, in one line."""
        words = " ".join(f"{self.text} {self.error}".split())[-_SHOWN:]
        return words or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine as process 1 sees it; tests put stand-ins in the place of the two programs."""

    proc: Path = Path("/proc")
    chroot: Sequence[str] = ("chroot",)
    nsenter: Sequence[str] = ("nsenter",)

    @property
    def root(self) -> Path:
        """The host's root directory."""
        return self.proc / "1" / "root"

    @property
    def seen(self) -> bool:
        """Whether the processes in sight are the host's: without them process 1 is our own."""
        return host.sees_host_processes(self.proc)

    @property
    def boot_id(self) -> str:
        """Which boot this is. HostError where it is not said."""
        try:
            return (self.proc / "sys/kernel/random/boot_id").read_text().strip()
        except OSError as error:
            raise HostError(f"the boot ID cannot be read: {error.strerror}") from error

    def inside(self, root: Path, *command: str, timeout_s: float) -> Ran:
        """Run a program with `root` as its root directory; HostError as `_run`."""
        return _run((*self.chroot, str(root), *command), timeout_s)

    def beside_init(self, *command: str, timeout_s: float) -> Ran:
        """Run a program of the host in the mounts of process 1; HostError as `_run`."""
        return _run((*self.nsenter, "--target", "1", "--mount", "--", *command), timeout_s)


def _run(command: Sequence[str], timeout_s: float) -> Ran:
    """Run it to its end. HostError when it does not start, TooLateError when it is not over in
    time.

    In a session of its own: a signal that ends this program does not reach it amid its work. One
    that hangs in the kernel cannot be ended and is left behind.
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
        raise TooLateError(f"{name!r} was not over after {timeout_s:.0f} s") from error
    return Ran(status=process.returncode, text=_text(out), error=_text(err))


def _text(said: bytes) -> str:
    return said[-65_536:].decode(errors="backslashreplace")


MAX_BYTES: Final = 4096
"""What a kubelet keeps of a termination message."""
MAX_WORDS: Final = 1024


class Outcome(StrEnum):
    """How it ended."""

    DONE = "done"
    """Asked, and not refused by whoever does it."""
    NEEDLESS = "needless"
    """The node has booted since: there was nothing to do."""
    UNKNOWN = "unknown"
    """Asked, and whether it was heard is not known: it may happen yet."""
    FAILED = "failed"
    """It was begun and did not succeed."""
    REFUSED = "refused"
    """Something stands against it; nothing was begun."""


EXIT_STATUS: Final = {
    Outcome.DONE: 0,
    Outcome.NEEDLESS: 0,
    Outcome.UNKNOWN: 2,
    Outcome.FAILED: 1,
    Outcome.REFUSED: 3,
}


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """One JSON object, on standard output with `--json` and for Kubernetes."""

    outcome: Outcome
    message: str
    gpus: tuple[str, ...] = ()


def for_kubernetes(result: RepairResult) -> bytes:
    """The result within what a kubelet keeps."""
    short = msgspec.structs.replace(result, message=result.message[:MAX_WORDS])
    text = msgspec.json.encode(short)
    if len(text) > MAX_BYTES:
        text = msgspec.json.encode(msgspec.structs.replace(short, gpus=()))
    return text


EPILOG: Final = (
    "Exit status: 0 asked, or nothing to do any more; 1 it failed; 2 asked, and nobody knows "
    "whether it happens; 3 refused, nothing was begun; 64 wrong use."
)


def add_parser(subparsers: Any, name: str, description: str) -> argparse.ArgumentParser:
    """Add the command `name` with the flags that both commands have."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=description, description=description, epilog=EPILOG
    )
    terminal.add_output(parser, "the result as one object")
    parser.add_argument(
        "--termination-log",
        metavar="FILE",
        default="/dev/termination-log",
        help="where the result is left for Kubernetes, if that file exists"
        " [default: /dev/termination-log]",
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
        terminal.print_out(msgspec.json.encode(result).decode() + "\n", program)
    else:
        terminal.print_out(printable(result.message) + "\n", program)
    return EXIT_STATUS[result.outcome]
