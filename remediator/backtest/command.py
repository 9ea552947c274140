"""`gpuward-remediator backtest`: called by `remediator.cli`, ends with an exit status."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from remediator.backtest.files import read_archive
from remediator.settings import fail
from remediator.upkeep.policy_source import read_policy
from rules.api.timestamps import utc_of
from rules.backtest.archive import ArchiveError, session_view
from rules.backtest.decisions import repairs_clause
from rules.backtest.engine import RestlessReplayError, replay
from rules.backtest.past import past_of
from rules.backtest.report import report_of
from rules.backtest.results import BacktestReport, PolicyPair, PolicyResult
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.text.counted import count
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
        ran = None if archive.meta.anonymised else _ran(archive.policy)
    except ArchiveError as error:
        return fail(str(error))
    try:
        replayed = [(name, replay(past, policy)) for name, policy in policies]
    except RestlessReplayError as error:
        return fail(f"{error}: this is a fault of ours, please report it with the records")
    report = report_of(past, replayed, real, ran)
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


def _ran(raw: dict[str, object]) -> Policy | None:
    """The policy in force at the export; None where it is not there or of another release."""
    found = load_policy(raw) if raw else None
    return found if isinstance(found, Policy) else None


def told(report: BacktestReport) -> list[str]:
    """The report for a person."""
    lines = [
        (
            f"{count(report.faults, 'fault')} on {count(report.nodes, 'node')} "
            f"from {utc_of(report.since)} to {utc_of(report.until)}"
        ),
        "",
        *(result.sentence for result in report.policies),
    ]
    for result in report.policies[1:]:
        lines += ["", *_of(result)]
    for pair in report.differences:
        lines += ["", *_beside(pair)]
    lines += ["", "What the records cannot tell:", *(f"  - {one}" for one in report.cannot_tell)]
    return lines


def _beside(pair: PolicyPair) -> list[str]:
    """Two policies, node by node."""
    if not pair.nodes:
        return [f"{pair.first} and {pair.second} do the same on {count(pair.same, 'node')}"]
    differ = f"{pair.first} and {pair.second} differ on {count(len(pair.nodes), 'node')}"
    lines = [f"{differ}, {pair.same} the same"]
    lines += [f"  {setting}" for setting in pair.settings[:_SHOWN]]
    for one in pair.nodes[:_SHOWN]:
        lines += [
            f"  {one.node}",
            f"    {pair.first}: {one.first}",
            f"    {pair.second}: {one.second}",
            f"    they part: {one.parts}",
        ]
    more = len(pair.nodes) - _SHOWN
    return [
        *lines,
        *([f"  ... and {count(more, 'more node')}; --json has all"] if more > 0 else []),
    ]


def _of(result: PolicyResult) -> list[str]:
    lines = [f"{result.policy}:"]
    for one in result.taken[:_SHOWN]:
        wrong = f"; likely wrong: {one.likely_wrong}" if one.likely_wrong else ""
        until = f"until {utc_of(one.ended)}" if one.ended else "and is out still"
        lines.append(
            f"  {utc_of(one.at)} {one.node} for {one.reason} ({one.severity}) {until}, "
            f"{f'{repairs}, ' if (repairs := repairs_clause(one.decisions)) else ''}"
            f"{one.phase}, {one.gpu_hours:.1f} GPU-hours{wrong}"
        )
    lines += [
        f"  {wait.node} waited {wait.seconds} s, {wait.reason}: {wait.why}"
        for wait in result.waited[:_SHOWN]
    ]
    for missed in result.missed[:_SHOWN]:
        warned = f", after {missed.warned}" if missed.warned else ""
        lines.append(
            f"  {utc_of(missed.at)} {missed.node}: nobody acted on {missed.reason}{warned}"
        )
    more = max(len(part) - _SHOWN for part in (result.taken, result.waited, result.missed))
    return [
        *lines,
        *([f"  ... and up to {count(more, 'more line')}; --json has all"] if more > 0 else []),
    ]
