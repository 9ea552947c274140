"""Two policies over the same past, node by node: what each did, where they part, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rules.api.selectors import parse_selector
from rules.api.timestamps import parse_time, utc_of
from rules.backtest.decisions import SAME_S, clause, parting, repairs_clause
from rules.backtest.past import Past
from rules.backtest.results import PolicyDifference, PolicyResult, Taken
from rules.catalog.reason import Level, level_rank
from rules.policy.policy import Policy

_MOST: Final = 1000


def differences(
    one: PolicyResult,
    other: PolicyResult,
    past: Past,
    policies: tuple[Policy | None, Policy | None],
) -> tuple[tuple[PolicyDifference, ...], int]:
    """Nodes that the two treated differently, and how many they treated the same."""
    nodes = sorted({t.node for t in (*one.taken, *other.taken)})
    nodes += sorted({w.node for w in (*one.waited, *other.waited)} - set(nodes))
    found = []
    same = 0
    for node in nodes:
        first, second = _of(one, node), _of(other, node)
        apart = parting(
            [d for taken in first for d in taken.decisions],
            [d for taken in second for d in taken.decisions],
        )
        if apart is None:
            same += 1
            continue
        parts = f"{one.policy}: {clause(apart[0])}; {other.policy}: {clause(apart[1])}"
        parted = min(parse_time(d.at) or 0.0 for d in apart if d is not None)
        why = list(_why(node, past, one, first, policies[0], parted))
        why += _why(node, past, other, second, policies[1], parted)
        if why:
            parts = f"{parts} ({'; '.join(dict.fromkeys(why))})"
        found.append(
            PolicyDifference(
                node=node,
                first=_story(one, node, first),
                second=_story(other, node, second),
                parts=parts[:_MOST],
            )
        )
    return tuple(found), same


def _of(result: PolicyResult, node: str) -> list[Taken]:
    return [taken for taken in result.taken if taken.node == node]


def _why(
    node: str,
    past: Past,
    result: PolicyResult,
    taken: list[Taken],
    policy: Policy | None,
    parted: float,
) -> Iterator[str]:
    """What of one policy, or of the records, made it go its own way at `parted`."""
    name = result.policy
    for wait in result.waited:
        # What it waited for only later explains nothing.
        if wait.node == node and (parse_time(wait.since) or 0.0) <= parted + SAME_S:
            yield f"{name} waited {wait.seconds} s for {wait.reason}: {wait.why}"
    guessed = dict.fromkeys(word for one in taken for word in one.guessed)
    if guessed:
        yield f"how {', '.join(guessed)} of {name} would have gone is not on record"
    unheard = [each.partition(" ")[2] for each in result.unheard if each.startswith(f"{node} ")]
    if unheard:
        yield f"{name} has no trigger for {', '.join(unheard)}"
    if policy is None:
        return
    if policy.mode == "Shadow":
        yield f"{name} is in Shadow and only says what it would do"
    if not taken:
        yield from _not_taken(node, past, name, policy)
    steps = {step.step for real in past.sessions if real.node == node for step in real.steps}
    missing = sorted(steps - {str(step) for step in policy.repair.steps})
    if steps and policy.repair.mode == "Off":
        yield f"{name} repairs nothing"
    elif missing:
        yield f"{name} has nobody for {', '.join(missing)}"


def _not_taken(node: str, past: Past, name: str, policy: Policy) -> Iterator[str]:
    labels = next((n.labels for n in past.nodes if n.name == node), {})
    if not parse_selector(policy.node_selector)(labels):
        yield f"{name} does not select the node"
    reasons = _reasons(node, past)
    mild = [
        reason for reason, level in reasons
        if level_rank(policy.level_of(reason, level)) <= Level.REPORT.rank
    ]  # fmt: skip
    if mild:
        yield f"{name} only reports {', '.join(dict.fromkeys(mild))}"


def _reasons(node: str, past: Past) -> Iterable[tuple[str, str]]:
    return [(f.incident.reason, f.incident.level) for f in past.faults if f.node == node]


def _story(result: PolicyResult, node: str, its: list[Taken]) -> str:
    """What a policy did to one node, in one sentence."""
    parts = []
    for one in its:
        ended = f" at {utc_of(one.ended)}" if one.ended else ""
        repairs = repairs_clause(one.decisions)
        then = f"{repairs}, " if repairs else ""
        parts.append(f"taken at {utc_of(one.at)} for {one.reason}, {then}{one.phase}{ended}")
    waits = {w.reason: w.why for w in result.waited if w.node == node}
    if not parts:
        parts = [f"not taken: {why or reason}" for reason, why in waits.items()] or ["not taken"]
    return "; ".join(parts)[:_MOST]
