"""``gpuward-agent decode``: kernel logs in, one finding per recognised line out.

Run by people, scripts and Slurm prologs on a log file or a pipe. Streams with bounded memory,
survives any bytes and imports ``rules`` only. Nothing is judged here beyond what ``rules`` says of
a single line.

With ``--json`` every recognised line becomes one JSON object that always has the same keys; what
the line does not say is null. ``nvidia`` is {immediate, investigatory} (NVIDIA's own words) of an
Xid that the catalog knows. Unrecognised lines give nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from rules.kernel_line import KernelLine
from rules.kernel_line_reason import reason_for_kernel_line
from rules.kernel_line_scan import LineScanner
from rules.xid import applies_to, driver_branch, nearest_architecture, nvidia_buckets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

EXIT_USAGE: Final = 64
EXIT_INTERRUPTED: Final = 130
_BLOCK: Final = 1 << 20


class Nvidia(msgspec.Struct, frozen=True):
    """NVIDIA's two action buckets for an Xid; empty where the catalog has none."""

    immediate: str
    investigatory: str


class DecodedLine(msgspec.Struct, frozen=True, gc=False):
    """One object of ``--json``, keys in this order."""

    line: int
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
    severity: str | None
    reason: str | None
    action: str | None
    nvidia: Nvidia | None
    text: str


def decoded(number: int, line: KernelLine, driver: int | None = None) -> DecodedLine:
    """Return what is printed for ``line``; ``driver`` is the branch (580), None a current one."""
    reason = reason_for_kernel_line(line, driver)
    nvidia = None
    if line.xid is not None and (buckets := nvidia_buckets(line.xid, line.words)):
        nvidia = Nvidia(*buckets)
    return DecodedLine(
        number,
        line.kind,
        line.xid,
        line.sxid,
        line.sxid_fatal,
        line.pci,
        line.gpu_uuid,
        line.mig_gi,
        line.mig_ci,
        line.pid,
        line.process,
        line.link,
        line.unit,
        line.caused_by,
        line.recovery_from,
        line.recovery_to,
        line.user,
        reason.severity if reason else None,
        reason.reason if reason else None,
        reason.action if reason else None,
        nvidia,
        line.text,
    )


def sentence(number: int, line: KernelLine, driver: int | None, gpu: str | None) -> str:
    """Return the finding as one line for people."""
    reason = reason_for_kernel_line(line, driver)
    where = line.pci or "-"
    if line.mig_gi is not None:
        where += f" GI {line.mig_gi}"
    what = f"{reason.severity} {reason.reason}" if reason else f"Record {line.kind}"
    does = f" -> {reason.level}, {reason.action}" if reason else ""
    notes = "".join(
        f" [{note}]"
        for note, said in (
            ("written by user space", line.user),
            (f"caused by Xid {line.caused_by}", line.caused_by is not None),
            (
                f"not expected on {gpu}",
                line.xid is not None and gpu is not None and applies_to(line.xid, gpu) is False,
            ),
        )
        if said
    )
    return f"{number}: {where} {what}{does}{notes}: {line.text}\n"


def decode(source: BinaryIO, sink: BinaryIO, form: Callable[[int, KernelLine], bytes]) -> None:
    """Read ``source`` to its end and write every finding to ``sink`` as soon as it is known."""
    scanner = LineScanner()
    # read1-like: a pipe hands over what it has, so that findings of a live log appear at once.
    while block := os.read(source.fileno(), _BLOCK):
        _write(sink, form, scanner.feed(block))
    _write(sink, form, scanner.finish())


def _write(
    sink: BinaryIO,
    form: Callable[[int, KernelLine], bytes],
    found: Iterable[tuple[int, KernelLine]],
) -> None:
    output = b"".join([form(number, line) for number, line in found])
    if output:
        sink.write(output)
        sink.flush()


def add_parser(subparsers: Any) -> None:
    """Add ``decode`` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "decode",
        help="say what the lines of a kernel log mean",
        description="Read a kernel log (dmesg, journal, syslog or /dev/kmsg format) and print one "
        "line for each that says something about a GPU, NVSwitch or their links.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="the log; default: standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--driver", metavar="V", help="driver version or branch (580), default: a current one"
    )
    parser.add_argument(
        "--gpu",
        metavar="ARCH",
        help="GPU model (a100, h100, b200, ...): notes Xids it does not have",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Decode as ``arguments`` say; returns the exit status."""
    branch = driver_branch(arguments.driver)
    if arguments.driver is not None and branch is None:
        return _usage(
            f"--driver {arguments.driver!r} is no driver version; give one like 580.82.07"
        )
    gpu = nearest_architecture(arguments.gpu) if arguments.gpu is not None else None
    if arguments.gpu is not None and gpu is None:
        return _usage(f"--gpu {arguments.gpu!r} is not known; give a model like h100 or a100")

    encode = msgspec.json.Encoder().encode

    def as_json(number: int, line: KernelLine) -> bytes:
        return encode(decoded(number, line, branch)) + b"\n"

    def as_text(number: int, line: KernelLine) -> bytes:
        return sentence(number, line, branch, gpu).encode("utf-8", "backslashreplace")

    form = as_json if arguments.json else as_text
    sink = sys.stdout.buffer
    try:
        if arguments.file is None:
            decode(sys.stdin.buffer, sink, form)
        else:
            with Path(arguments.file).open("rb", buffering=0) as source:
                decode(source, sink, form)
    except BrokenPipeError:
        # The reader has seen enough; keep the interpreter from flushing into it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        name = arguments.file or "standard input"
        return _usage(f"cannot read {name}: {error.strerror}; name a readable log file")
    return 0


def _usage(message: str) -> int:
    print(f"gpuward-agent decode: {message}.", file=sys.stderr)  # noqa: T201 - a person asked
    return EXIT_USAGE
