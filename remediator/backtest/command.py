"""`gpuward-remediator backtest`: called by `remediator.cli`, ends with an exit status."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from remediator.backtest.files import read_archive
from remediator.settings import fail
from remediator.upkeep.policy_source import read_policy
from rules.backtest.archive import ArchiveError, session_view
from rules.backtest.engine import RestlessReplayError, replay
from rules.backtest.past import past_of
from rules.backtest.report import BacktestReport, PolicyResult, report_of
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.text.printable import printable

_SHOWN = 40


def run(parsed: argparse.Namespace) -> int:
    """Do what was asked for; 64 with one sentence where it cannot be done."""
    try:
        archive = read_archive(Path(parsed.records))
        policies = [_policy(Path(path)) for path in parsed.policy or ()]
        if not policies:
            policies = [("the exported policy", _exported(archive.policy))]
        past = past_of(archive)
        real = [session_view(one) for one in archive.sessions]
    except ArchiveError as error:
        return fail(str(error))
    try:
        replayed = [(name, replay(past, policy)) for name, policy in policies]
    except RestlessReplayError as error:
        return fail(f"{error}: this is a fault of ours, please report it with the records")
    report = report_of(past, replayed, real)
    if parsed.json:
        text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    else:
        text = "\n".join(printable(line) for line in told(report))
    sys.stdout.write(f"{text}\n")
    return 0


def _policy(path: Path) -> tuple[str, Policy]:
    found = read_policy(path)
    if isinstance(found, Policy):
        return path.name, found
    raise ArchiveError("; ".join(map(str, found)))


def _exported(raw: dict[str, object]) -> Policy:
    if not raw:
        raise ArchiveError("the export holds no policy: name one with --policy FILE")
    found = load_policy(raw)
    if isinstance(found, Policy):
        return found
    raise ArchiveError(f"the exported policy: {'; '.join(map(str, found))}"[:500])


def told(report: BacktestReport) -> list[str]:
    """The report for a person."""
    lines = [
        f"{report.faults} faults on {report.nodes} nodes from {report.since} to {report.until}",
        "",
        *(result.sentence for result in report.policies),
    ]
    for result in report.policies[1:]:
        lines += ["", *_of(result)]
    for first, second, differs in report.differences:
        title = f"{first} and {second} differ on {len(differs)} nodes"
        lines += ["", title if differs else f"{first} and {second} do the same"]
        for one in differs[:_SHOWN]:
            lines += [f"  {one.node}", f"    {first}: {one.first}", f"    {second}: {one.second}"]
    lines += ["", "What the records cannot tell:", *(f"  - {one}" for one in report.cannot_tell)]
    return lines


def _of(result: PolicyResult) -> list[str]:
    lines = [f"{result.policy}:"]
    for one in result.taken[:_SHOWN]:
        wrong = f"; likely wrong: {one.likely_wrong}" if one.likely_wrong else ""
        until = f"until {one.ended}" if one.ended else "and is out still"
        lines.append(
            f"  {one.at} {one.node} for {one.reason} ({one.severity}) {until}, {one.phase}, "
            f"{one.gpu_hours:.1f} GPU-hours{wrong}"
        )
    lines += [
        f"  {wait.node} waited {wait.seconds} s, {wait.reason}: {wait.why}"
        for wait in result.waited[:_SHOWN]
    ]
    for missed in result.missed[:_SHOWN]:
        warned = f", after {missed.warned}" if missed.warned else ""
        lines.append(f"  {missed.at} {missed.node}: nobody acted on {missed.reason}{warned}")
    more = max(len(part) - _SHOWN for part in (result.taken, result.waited, result.missed))
    return [*lines, *([f"  ... and up to {more} more lines; --json has all"] if more > 0 else [])]
