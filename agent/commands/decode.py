"""`gpuward-agent decode`: print one finding for each GPU error in a kernel log.

Reads a log file or a pipe, with bounded memory and any bytes. Imports `rules` only and assesses
each line by itself. Prints one JSON object a line with `-o json`, else one line of text. Other
lines of the log are skipped.
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
from agent.sources import log_file
from agent.sources.log_file import LogFile
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
"""Reading makes no reference cycles, and collecting them takes a tenth of the time."""


Read: TypeAlias = Callable[[bytes, int], bytes | None]
"""Takes a raw line and its number; returns what to print, or None."""


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
    """Turns a raw line into one line of text: number, time and finding."""

    __slots__ = ("_driver", "_now")

    def __init__(self, driver: int | None, now: float) -> None:
        self._driver = driver
        self._now = now

    def __call__(self, raw: bytes, number: int) -> bytes | None:
        """Return the text with its newline; None for a line that is not recognised."""
        line = parse(raw)
        if line is None:
            return None
        reason = reason_for_kernel_line(line, self._driver)
        needs = needed_for(line, reason, self._driver) if reason is not None else ""
        where = line.pci or "-"
        if line.mig_gi is not None:
            where += f" GI {line.mig_gi}"
        what = f"{reason.severity} {reason.reason}" if reason else f"Record {line.kind}"
        action = f" -> {reason.level}, {reason.action}" if reason else ""
        notes = "".join(f" [{note}]" for note in self._notes(line, needs))
        text = f"{where} {what}{action}{notes}: {line.text}\n".encode("utf-8", "backslashreplace")
        stamp = stamps.stamp_of(raw, self._now).text
        return b"%d: %s%s%s" % (number, stamp, b" " if stamp else b"", text)

    def _notes(self, line: KernelLine, needs: str) -> Iterator[str]:
        if needs:
            yield f"not confirmed by this line alone; needs {needs}"
        if line.user:
            yield "written by user space"
        if line.caused_by is not None:
            yield f"caused by Xid {line.caused_by}"


def decode(source: BinaryIO, sink: BinaryIO, read: Read) -> LogFile:
    """Write each finding in `source` to `sink` as soon as it is read; return the log's totals."""
    log = LogFile(read)
    for found in log.findings(log_file.blocks_of(source.fileno())):
        if found:
            _put(sink, b"".join(found))
    return log


class _CannotWriteError(Exception):
    """Writing the findings failed; the text is the system's error."""


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
        help="Decode the GPU errors in a kernel log",
        description="Print one finding for each kernel log line about a GPU, an NVSwitch or an\n"
        "NVLink. Reads dmesg, journalctl (also -o json), syslog, /dev/kmsg and container\n"
        "logs, also .gz and .xz.\n\nExamples:\n"
        "  dmesg | gpuward-agent decode\n"
        "  journalctl -k -o json | gpuward-agent decode -o json\n"
        "  gpuward-agent decode /var/log/kern.log.1.gz --driver 580\n"
        "  dmesg | gpuward-agent decode --fail-on fatal   # for a Slurm prolog",
        epilog="Exit status: 0 success, 1 the findings could not be written, 2 a fault at or\n"
        "above --fail-on was found, 3 the input is not a kernel log, 64 usage error.\n\n"
        "Values of `kind` in the JSON output:\n"
        + "\n".join(f"  {kind:<16} {meaning}" for kind, meaning in record.KIND_MEANINGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the log file [default: standard input]"
    )
    terminal.add_output(parser, "one object per line")
    terminal.add_driver(parser)
    parser.add_argument(
        "--fail-on",
        choices=[severity.lower() for severity in Severity],
        help="exit with status 2 if the log has a fault of at least this severity",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Decode the log and return the exit status. Raises SettingsError."""
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
                raise SettingsError("standard input is closed: name a log file.")
            log = decode(sys.stdin.buffer, sink, read)
        else:
            with Path(arguments.file).open("rb", buffering=0) as source:
                log = decode(source, sink, read)
    except BrokenPipeError:
        # The reader closed the pipe: the interpreter must not flush into it again.
        terminal.silence(sys.stdout.fileno())
        return 0
    except _CannotWriteError as error:
        terminal.silence(sys.stdout.fileno())
        _report(f"cannot write the findings: {error}. Free some space and run it again")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        name = arguments.file or "standard input"
        raise SettingsError(
            f"cannot read {name}: {error.strerror}. Name a readable log file."
        ) from error
    if not log.lines and arguments.file is None:
        _report("standard input is empty: dmesg and journalctl may need root")
    if not log.understood:
        lines = "1 line" if log.lines == 1 else f"{log.lines} lines"
        _report(f"{lines} read, 0 recognised: name a kernel log, such as the output of dmesg")
        return EXIT_NOT_UNDERSTOOD
    return EXIT_FOUND if gate is not None and gate.reached else 0


def _report(message: str) -> None:
    sys.stderr.write(f"gpuward-agent decode: {message}.\n")


_REMEMBERED: Final = 4096
"""Messages cached with their result: at most a few megabytes."""

_MISSING: Final = b""
_NO_TIME: Final = b"null"


class Nvidia(msgspec.Struct, frozen=True):
    """NVIDIA's two action buckets for an Xid; empty where the catalog has none."""

    immediate: str
    investigatory: str


class DecodedLine(msgspec.Struct, frozen=True, gc=False):
    """One JSON object, keys in this order after `line` (from 1) and `time`.

    `kind` is one of `rules.kernel_log.parse.Kind`. `user` is true for a line that user space
    wrote, as far as the transport reports it. `severity`, `reason` and `action` are the assessment
    by this line alone, null for a line that only records a fact. `needs` is the evidence that
    would raise it, or null. `nvidia` holds NVIDIA's two action buckets, null for a number that is
    not in the catalog.
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
"""The number of fields that DecodedLine copies from KernelLine: the first ones of both."""


def json_reader(driver: int | None, now: float) -> Callable[[bytes, int], bytes | None]:
    """Return a function that turns a raw line and its number into a JSON object.

    A fault repeats the same message many times, so the function caches a few thousand messages
    with their result.
    """
    encoded = _Encoder(driver).encoded
    remembered: tuple[dict[bytes, bytes | None], ...] = ({}, {})

    def read(raw: bytes, number: int) -> bytes | None:
        """Return the object with its newline; None for a line that is not recognised."""
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
    """Encodes parsed lines as JSON and caches their assessments: a log has few different ones."""

    def __init__(self, driver: int | None) -> None:
        self._driver = driver
        self._encode = msgspec.json.Encoder().encode
        self._assessments: dict[tuple[Any, ...], _Assessment] = {}

    def encoded(self, line: KernelLine) -> bytes:
        """Return the JSON after the time, with its newline."""
        return self._encode(self._decoded(line))[1:] + b"\n"

    def _decoded(self, line: KernelLine) -> DecodedLine:
        if line.xid is None:
            assessment = _assessment(line, self._driver)
        else:
            same = (line.xid, line.registers, line.fatal, line.recovery_to, line.asks)
            known = self._assessments.get(same)
            assessment = _assessment(line, self._driver) if known is None else known
            if known is None and len(self._assessments) < _REMEMBERED:
                self._assessments[same] = assessment
        values: tuple[Any, ...] = (*msgspec.structs.astuple(line)[:_SHARED], *assessment)
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
