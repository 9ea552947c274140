"""`gpuward-remediator simulate`: called by `remediator.cli`, ends with an exit status."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from remediator.settings import fail
from remediator.simulate.benchmark import write_benchmark
from remediator.simulate.compare import SEEDS, TRACE_NODES, compare
from remediator.simulate.runs import over_seeds, play_all
from remediator.simulate.studies import Study, StudySize, answer
from remediator.simulate.table import as_json, text_table
from remediator.upkeep.policy_source import read_policy
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from rules.simulate.peers.policies import PEERS
from rules.simulate.run import Run
from rules.simulate.truth.trace import TraceError
from rules.simulate.truth.year import Plants

DEFAULT: Final = "default"
"""Our default policy with mode Enforce."""
NODES, DAYS = 500, 365.0


class UnusableError(Exception):
    """What was asked for cannot be done; the text says why and what to do."""


def run(parsed: argparse.Namespace) -> int:
    """Do what was asked for; 64 with one sentence where it cannot be done."""
    try:
        return _run(parsed)
    except (TraceError, UnusableError) as error:
        return fail(str(error))


def _run(parsed: argparse.Namespace) -> int:
    if parsed.compare_trace is not None:
        text = compare(
            Path(parsed.compare_trace),
            parsed.nodes or TRACE_NODES,
            parsed.seeds or SEEDS,
            as_json=parsed.json,
        )
        sys.stdout.write(text)
        return 0
    nodes, days = parsed.nodes or NODES, float(parsed.days or DAYS)
    if parsed.benchmark is not None:
        write_benchmark(Path(parsed.benchmark), nodes, days, parsed.seeds or 5)
        return 0
    if parsed.study is not None:
        found = answer(Study(parsed.study), _size(parsed), parsed.seed)
        sys.stdout.write(json.dumps(found.numbers) + "\n" if parsed.json else found.text())
        return 0
    plants = Plants(false_alarms=parsed.false_alarms or 0.0, bad_driver_day=parsed.bad_driver_day)
    one = Run(
        name=parsed.policy or DEFAULT,
        nodes=nodes,
        days=days,
        seed=parsed.seed,
        policy=_policy(parsed.policy or DEFAULT),
        plants=plants,
    )
    played = play_all(over_seeds(one, parsed.seeds or 1))
    if parsed.json:
        sys.stdout.write(json.dumps([as_json(each) for each in played], indent=2) + "\n")
    else:
        sys.stdout.write(text_table(played))
    return 0


def _size(parsed: argparse.Namespace) -> StudySize:
    """What the page has, but for what was asked for."""
    given = {
        "lemon_nodes": parsed.nodes,
        "ledger_nodes": parsed.nodes,
        "lemon_days": parsed.days,
        "ledger_days": parsed.days,
        "lemon_seeds": parsed.seeds,
        "failing_nodes": parsed.seeds,
    }
    return replace(StudySize(), **{key: value for key, value in given.items() if value})


def _policy(name: str) -> Policy | None:
    """A policy of ours; None for a peer's name."""
    if name in PEERS:
        return None
    if name == DEFAULT:
        return enforced(Policy())
    found = read_policy(Path(name))
    if isinstance(found, Policy):
        return found
    names = ", ".join((DEFAULT, *PEERS))
    raise UnusableError(f"{found[0]}; or name one of {names}")


def enforced(policy: Policy) -> Policy:
    """The same policy, acting."""
    return msgspec.structs.replace(policy, mode=Mode.ENFORCE)
