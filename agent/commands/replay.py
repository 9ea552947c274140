"""`gpuward-agent replay`: recorded kernel logs of one node in, the timeline of its incidents out.

The same judgement as live, in the record's own time. Run by people on logs from before gpuward,
and before a change of rules: `--rules` says what other thresholds would have found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from agent.commands.terminal import print_out
from agent.daemon.rules_file import load_rules
from agent.kernel_log.whole import WholeLog, blocks_of
from agent.senses.dcgm_page import read_page
from agent.settings import SettingsError
from agent.version import VERSION
from rules.api.health import plain
from rules.api.timestamps import format_time, parse_time, utc
from rules.catalog.thresholds import RulesError
from rules.judge.observation import (
    KernelLineSeen,
    Observation,
    SourceChanged,
    SourceName,
    SourceState,
)
from rules.kernel_log.parse import parse
from rules.kernel_log.record import KernelLine
from rules.kernel_log.stamps import stamp_of
from rules.publish.publication import Identity
from rules.publish.replay import Timeline, replayed
from rules.text.counted import count
from rules.text.printable import printable

PROGRAM: Final = "gpuward-agent replay"
EXIT_USAGE: Final = 64
EXIT_FAILED: Final = 1
EXIT_NOT_UNDERSTOOD: Final = 3
"""As of `decode`."""
_PAGE: Final = "# time "
_REBOOT_GAP_S: Final = 60.0
_MAX_PAGE_BYTES: Final = 8 * 1024 * 1024

Fact = tuple[float, str, Observation]


def add_parser(subparsers: Any) -> None:
    """Add `replay` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "replay",
        help="say what recorded kernel logs of a node would have meant, in time",
        description="Judge recorded kernel logs (as decode reads them) in their own "
        "time and print each incident as it opened, changed and closed. Without NVML only the log "
        "speaks.",
        epilog="A log whose times count from the boot begins at 1970; times that begin anew are "
        "another boot. A file for --dcgm holds pages of dcgm-exporter, each after a line "
        "'# time 2026-01-31T12:00:00Z'.\nExit status: 0 read, 1 not written, 3 no line "
        "understood, 64 wrong use.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("logs", nargs="+", metavar="LOG", help="kernel logs of one node")
    parser.add_argument("--node", metavar="N", required=True, help="the node's name")
    parser.add_argument(
        "--rules", metavar="FILE", default="", help="thresholds, as run takes them"
    )
    parser.add_argument(
        "--dcgm", metavar="FILE", action="append", default=[], help="recorded pages, with times"
    )
    parser.add_argument(
        "--booted", metavar="TIME", action="append", default=[],
        help="the node booted then (RFC 3339); may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print JSON: timeline and final status"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replay as `arguments` say; returns the exit status."""
    boots = [parse_time(text) for text in arguments.booted]
    if None in boots:
        return _usage(f"--booted {arguments.booted[boots.index(None)]!r:.60} is no RFC 3339 time")
    try:
        loaded = load_rules(arguments.rules)
        facts, refused = _facts(arguments.logs, sorted(at for at in boots if at is not None))
        facts += [fact for path in arguments.dcgm for fact in _pages(Path(path))]
    except (SettingsError, RulesError, ReplayError) as error:
        status = EXIT_NOT_UNDERSTOOD if isinstance(error, NoLogError) else EXIT_USAGE
        return _refused(str(error), status)
    except OSError as error:
        return _usage(f"cannot read {error.filename}: {error.strerror}; name a readable file")
    facts.sort(key=lambda fact: fact[0])
    identity = Identity(agent_version=VERSION, rules_version=loaded.version, pod="", pod_uid="")
    told = replayed(_in_boots(facts), arguments.node, loaded.rules, identity)
    if refused:
        sys.stderr.write(
            f"{PROGRAM}: {count(refused, 'line')} written by user space not believed\n"
        )
    text = _json(told, arguments.node) if arguments.json else "\n".join(_lines(told))
    return 0 if print_out(f"{text}\n", PROGRAM) else EXIT_FAILED


class ReplayError(Exception):
    """A record cannot be replayed; one sentence."""


class NoLogError(ReplayError):
    """What was given as a kernel log is none: nothing may be concluded from its silence."""


def _facts(paths: list[str], boots: list[float]) -> tuple[list[Fact], int]:
    facts: list[Fact] = []
    refused = 0
    now = time.time()
    for path in paths:
        log = WholeLog(_candidate)
        begins, last = 0.0, 0.0
        with Path(path).open("rb", buffering=0) as source:
            for found in log.findings(blocks_of(source.fileno())):
                for raw, line in found:
                    if line.user:
                        refused += 1
                        continue
                    at = _time_of(raw, now)
                    if at < 0:
                        offset = -at
                        if offset + 1.0 < last:
                            begins += last + _REBOOT_GAP_S
                            boots.append(begins)
                        last = offset
                        at = begins + offset
                    facts.append((at, "", _seen(at, line)))
        if not log.understood:
            raise NoLogError(
                f"{path}: {count(log.lines, 'line')}, 0 understood; give a kernel log, as dmesg "
                "or journalctl has it"
            )
    boots.sort()
    return [(at, _boot_at(at, boots), fact) for at, _, fact in facts], refused


def _candidate(raw: bytes, _number: int) -> tuple[bytes, KernelLine] | None:
    line = parse(raw)
    return None if line is None else (raw, line)


def _time_of(raw: bytes, now: float) -> float:
    """Seconds since the epoch; below zero: since the boot."""
    stamp = stamp_of(raw, now)
    if stamp.wall is not None:
        return stamp.wall
    if stamp.text.startswith(b"+"):
        return -max(float(stamp.text[1:]), 1e-6)
    raise ReplayError(
        "a line has no time; give a log with times, as dmesg -T or journalctl -k has"
    )


def _boot_at(at: float, boots: list[float]) -> str:
    return f"boot-{sum(boot <= at for boot in boots)}"


def _seen(at: float, line: KernelLine) -> KernelLineSeen:
    return KernelLineSeen(at=at, sequence=-1, boot_id="", lookback=False, line=line)


def _in_boots(facts: list[Fact]) -> Iterator[Fact]:
    """Pages belong to the boot of their time; lines carry their boot themselves."""
    boot, paged = "boot-0", False
    for at, named, fact in facts:
        boot = named or boot
        if isinstance(fact, KernelLineSeen):
            yield at, boot, _of_boot(fact, boot)
            continue
        if not paged:
            paged = True
            up = SourceChanged(at=at, source=SourceName.DCGM, state=SourceState.UP, reason="")
            yield at, boot, up
        yield at, boot, fact


def _of_boot(fact: KernelLineSeen, boot: str) -> KernelLineSeen:
    """The line as one of its boot."""
    return replace(fact, boot_id=boot)


def _pages(path: Path) -> Iterator[Fact]:
    if path.stat().st_size > 64 * _MAX_PAGE_BYTES:
        raise ReplayError(f"{path} is larger than 64 pages of dcgm-exporter can be")
    text = path.read_text("utf-8", "replace")
    before, *pages = (
        text.split(f"\n{_PAGE}") if not text.startswith(_PAGE) else ["", *_split(text)]
    )
    if before.strip() or not pages:
        raise ReplayError(f"{path}: each page follows a line '{_PAGE}<RFC 3339 time>'")
    for page in pages:
        stamp, _, body = page.partition("\n")
        at = parse_time(stamp.strip())
        if at is None:
            raise ReplayError(f"{path}: {stamp.strip()!r:.40} is no RFC 3339 time")
        seen, _ = read_page(body[:_MAX_PAGE_BYTES], at)
        yield at, "", seen


def _split(text: str) -> list[str]:
    return text.removeprefix(_PAGE).split(f"\n{_PAGE}")


def _lines(told: Timeline) -> list[str]:
    lines = []
    for one in told.happenings:
        row = one.incident.row
        where = ", ".join((*one.incident.gpus, *one.incident.pci)) or "the node"
        by = f" by {one.incident.closed_by}" if one.kind == "Closed" else ""
        evidence = one.incident.evidence[0] if one.incident.evidence else ""
        shown = f": {evidence}" if one.kind != "Closed" and evidence else ""
        what = f"{one.kind.lower():<8} {row.severity} {row.level} {row.reason}"
        lines.append(printable(f"{utc(one.at, seconds=True)} {what}{by} on {where}{shown}"))
    active = [
        f"{i.reason} ({i.mended_by} came, no look confirmed it)" if i.mended_by else i.reason
        for i in told.status.incidents
        if i.active
    ]
    left = f"; active at the end: {', '.join(active)}" if active else ""
    found = count(len(told.status.incidents), "incident")
    lines.append(f"{count(told.facts, 'fact')}, {found}{printable(left)}")
    return lines


def _json(told: Timeline, node: str) -> str:
    timeline = [
        {
            "at": format_time(one.at),
            "kind": one.kind,
            "id": one.incident.id,
            "reason": one.incident.row.reason,
            "severity": str(one.incident.row.severity),
            "level": str(one.incident.row.level),
        }
        for one in told.happenings
    ]
    value = {"node": node, "timeline": timeline, "status": plain(told.status)}
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _usage(message: str) -> int:
    return _refused(message, EXIT_USAGE)


def _refused(message: str, status: int) -> int:
    sys.stderr.write(f"{PROGRAM}: {message}\n")
    return status
