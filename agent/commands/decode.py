"""`gpuward-agent decode`: kernel logs in, one finding per recognised line out.

Run by people, scripts and Slurm prologs on a log file or a pipe. Streams with bounded memory,
survives any bytes and imports `rules` only. Nothing is judged here beyond what `rules` says of
a single line.

With `--json` every recognised line becomes one JSON object, else one line for people.
Unrecognised lines give nothing.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import msgspec

from agent.commands import terminal
from agent.settings import SettingsError
from agent.sources import whole_log
from agent.sources.whole_log import WholeLog
from rules.catalog.reason import Severity
from rules.catalog.xid import needed_for, nvidia_buckets, reason_for_kernel_line
from rules.kernel_log import record, stamps
from rules.kernel_log.parse import parse, parse_message
from rules.kernel_log.record import KernelLine
from rules.kernel_log.text import MAX_LINE, split_prefix

EXIT_FAILED: Final = 1
EXIT_FOUND: Final = 2
EXIT_NOT_UNDERSTOOD: Final = 3
EXIT_INTERRUPTED: Final = 130
_LINES_BETWEEN_COLLECTIONS: Final = 100_000
"""Reading makes no reference cycles: Python's search for them costs a tenth of a dense log."""


Read: TypeAlias = Callable[[bytes, int], bytes | None]
"""One raw line and its number in; what is printed of it out, None for nothing."""


class SeverityGate:
    """Records whether the kernel reported a fault at least as severe as `least`."""

    def __init__(self, read: Read, least: Severity, driver: int | None) -> None:
        self.reached = False
        self._read = read
        self._least = least
        self._driver = driver

    def __call__(self, raw: bytes, number: int) -> bytes | None:
        """Return what `read` returns."""
        line = parse(raw)
        # Any program may write to the kernel log; a line of user space fails nothing.
        if line is not None and not line.user:
            reason = reason_for_kernel_line(line, self._driver)
            if reason is not None and reason.severity >= self._least:
                self.reached = True
        return self._read(raw, number)


class TextReader:
    """Turns a raw line into a sentence for people behind its number and time."""

    __slots__ = ("_driver", "_now")

    def __init__(self, driver: int | None, now: float) -> None:
        self._driver = driver
        self._now = now

    def __call__(self, raw: bytes, number: int) -> bytes | None:
        """Return the sentence, newline included; None for a line that says nothing."""
        line = parse(raw)
        if line is None:
            return None
        reason = reason_for_kernel_line(line, self._driver)
        needs = needed_for(line, reason, self._driver) if reason is not None else ""
        where = line.pci or "-"
        if line.mig_gi is not None:
            where += f" GI {line.mig_gi}"
        what = f"{reason.severity} {reason.reason}" if reason else f"Record {line.kind}"
        does = f" -> {reason.level}, {reason.action}" if reason else ""
        notes = "".join(f" [{note}]" for note in self._notes(line, needs))
        says = f"{where} {what}{does}{notes}: {line.text}\n".encode("utf-8", "backslashreplace")
        stamp = stamps.stamp_of(raw, self._now).text
        return b"%d: %s%s%s" % (number, stamp, b" " if stamp else b"", says)

    def _notes(self, line: KernelLine, needs: str) -> Iterator[str]:
        if needs:
            yield f"not proven by this line alone; needs {needs}"
        if line.user:
            yield "written by user space"
        if line.caused_by is not None:
            yield f"caused by Xid {line.caused_by}"


def decode(source: BinaryIO, sink: BinaryIO, read: Read) -> WholeLog:
    """Read `source` to its end and write every finding to `sink` as soon as it is known."""
    log = WholeLog(read)
    for found in log.findings(whole_log.blocks_of(source.fileno())):
        if found:
            _put(sink, b"".join(found))
    return log


class _CannotWriteError(Exception):
    """The findings have nowhere to go; carries the system's words."""


def _put(sink: BinaryIO, text: bytes) -> None:
    try:
        sink.write(text)
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _CannotWriteError(error.strerror) from None


def add_parser(subparsers: Any) -> None:
    """Add `decode` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "decode",
        help="say what the lines of a kernel log mean",
        description="Read a kernel log (dmesg, journal, syslog or /dev/kmsg format, "
        "journalctl -o json, a container's log; also .gz or .xz) and print one "
        "line for each that says something about a GPU, NVSwitch or their links.",
        epilog="Exit status: 0 read, 1 the findings could not be written, 2 found what --fail-on"
        " names, 3 no line understood, 64 wrong use.\nThe kinds of --json:\n"
        + "\n".join(f"  {kind:<16} {meaning}" for kind, meaning in record.KIND_MEANINGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="the log; default: standard input")
    terminal.add_output(parser, "one object per line")
    terminal.add_driver(parser)
    parser.add_argument(
        "--fail-on",
        choices=[severity.lower() for severity in Severity],
        help="end with 2 if the kernel itself reported a fault of at least this severity",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Decode as `arguments` say; returns the exit status. Raises SettingsError."""
    gc.set_threshold(_LINES_BETWEEN_COLLECTIONS)
    branch = arguments.driver
    now = time.time()
    as_json = arguments.output == "json"
    read: Read = json_reader(branch, now) if as_json else TextReader(branch, now)
    gate: SeverityGate | None = None
    if arguments.fail_on is not None:
        read = gate = SeverityGate(read, Severity(arguments.fail_on.capitalize()), branch)
    sink = sys.stdout.buffer
    try:
        if arguments.file is None:
            if sys.stdin is None:
                raise SettingsError("there is no standard input; name a log file.")
            log = decode(sys.stdin.buffer, sink, read)
        else:
            with Path(arguments.file).open("rb", buffering=0) as source:
                log = decode(source, sink, read)
    except BrokenPipeError:
        # The reader has seen enough; keep the interpreter from flushing into it once more.
        terminal.silence(sys.stdout.fileno())
        return 0
    except _CannotWriteError as error:
        terminal.silence(sys.stdout.fileno())
        _say(f"cannot write the findings: {error}; make room and run it again")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        name = arguments.file or "standard input"
        raise SettingsError(
            f"cannot read {name}: {error.strerror}; name a readable log file."
        ) from error
    if not log.lines and arguments.file is None:
        _say("nothing came in; dmesg and journalctl may need root")
    if not log.understood:
        lines = "1 line" if log.lines == 1 else f"{log.lines} lines"
        _say(f"{lines}, 0 understood; give a kernel log, as dmesg or journalctl has it")
        return EXIT_NOT_UNDERSTOOD
    return EXIT_FOUND if gate is not None and gate.reached else 0


def _say(message: str) -> None:
    sys.stderr.write(f"gpuward-agent decode: {message}.\n")


_REMEMBERED: Final = 4096
"""Messages kept with their answer: at most a few megabytes."""

_MISSING: Final = b""
_NO_TIME: Final = b"null"


class Nvidia(msgspec.Struct, frozen=True):
    """NVIDIA's two action buckets for an Xid; empty where the catalog has none."""

    immediate: str
    investigatory: str


class DecodedLine(msgspec.Struct, frozen=True, gc=False):
    """One object of `--json`, keys in this order, `line` (from 1) and `time` before them.

    `kind` is one of `rules.kernel_log.parse.Kind`; `user` is true where the transport says that
    user space wrote the line; `severity`, `reason` and `action` are ours, null for a line
    that only records a fact, and at most what the line alone proves; `needs` is what else
    must be seen before they are more severe, null for nothing; `nvidia` holds NVIDIA's two action
    buckets, null where the catalog does not know the number.
    """

    kind: str
    xid: int | None
    sxid: int | None
    sxid_fatal: bool | None
    pci: str | None
    gpu_uuid: str | None
    mig_gi: int | None
    mig_ci: int | None
    pid: int | None
    process: str | None
    link: int | None
    unit: str | None
    caused_by: int | None
    recovery_from: int | None
    recovery_to: int | None
    user: bool
    text: str
    severity: str | None
    reason: str | None
    action: str | None
    needs: str | None
    nvidia: Nvidia | None


_SHARED: Final = DecodedLine.__struct_fields__.index("text") + 1
"""The fields that a DecodedLine takes over from a KernelLine: the first ones of both."""


def json_reader(driver: int | None, now: float) -> Callable[[bytes, int], bytes | None]:
    """What turns a raw line and its number into its JSON object.

    A fault prints the same message over and over, so the last few thousand messages are
    remembered with what came out; the answer is the same with or without.
    """
    encoded = _Encoder(driver).encoded
    remembered: tuple[dict[bytes, bytes | None], ...] = ({}, {})

    def read(raw: bytes, number: int) -> bytes | None:
        """Return the object, newline included; None for nothing."""
        raw = raw[:MAX_LINE]
        message, user = split_prefix(raw)
        known = remembered[user]
        tail = known.get(message, _MISSING)
        if tail is _MISSING:
            if len(known) >= _REMEMBERED:
                known.clear()
            line = parse_message(message, user=user)
            tail = known[message] = None if line is None else encoded(line)
        if tail is None:
            return None
        stamp = stamps.stamp_of(raw, now).text
        at = b'"%s"' % stamp if stamp else _NO_TIME
        return b'{"line":%d,"time":%s,%s' % (number, at, tail)

    return read


class _Encoder:
    """Makes the JSON of a line that was read; most lines of a log mean one of a few things."""

    def __init__(self, driver: int | None) -> None:
        self._driver = driver
        self._encode = msgspec.json.Encoder().encode
        self._assessments: dict[tuple[Any, ...], _Assessment] = {}

    def encoded(self, line: KernelLine) -> bytes:
        """Everything behind the time, newline included."""
        return self._encode(self._decoded(line))[1:] + b"\n"

    def _decoded(self, line: KernelLine) -> DecodedLine:
        if line.xid is None:
            verdict = _assessment(line, self._driver)
        else:
            same = (line.xid, line.registers, line.fatal, line.recovery_to, line.asks)
            known = self._assessments.get(same)
            verdict = _assessment(line, self._driver) if known is None else known
            if known is None and len(self._assessments) < _REMEMBERED:
                self._assessments[same] = verdict
        values: tuple[Any, ...] = (*msgspec.structs.astuple(line)[:_SHARED], *verdict)
        return DecodedLine(*values)


class _Assessment(NamedTuple):
    severity: str | None = None
    reason: str | None = None
    action: str | None = None
    needs: str | None = None
    nvidia: Nvidia | None = None


def _assessment(line: KernelLine, driver: int | None) -> _Assessment:
    reason = reason_for_kernel_line(line, driver)
    buckets = nvidia_buckets(line.xid, line.registers) if line.xid is not None else None
    nvidia = Nvidia(*buckets) if buckets else None
    if reason is None:
        return _Assessment(nvidia=nvidia)
    needs = needed_for(line, reason, driver) or None
    return _Assessment(str(reason.severity), reason.reason, str(reason.action), needs, nvidia)
