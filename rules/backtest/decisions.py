"""A session as the list of what was decided in it, and how two such lists differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, RepairState
from rules.api.timestamps import parse_time, utc_of
from rules.backtest.outcomes import STANDS_IN

SAME_S: Final = 60.0
"""Two decisions so near in time are the same: records hold whole seconds, and a replay polls less
than agents, kubelets and the remediator do."""


class Decided(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that a session did."""

    at: str
    what: str
    """A phase, or a repair step or test and what became of it."""
    why: str = ""


def decided_in(session: QuarantineView) -> tuple[Decided, ...]:
    """Phases, repair steps and tests of one session, oldest first."""
    return tuple(sorted(_decided(session), key=lambda one: parse_time(one.at) or 0.0))


def _decided(session: QuarantineView) -> Iterator[Decided]:
    status = session.status
    for attempt in status.repair:
        by = attempt.adapter.removesuffix(STANDS_IN)
        if attempt.asked_at:
            yield Decided(at=attempt.asked_at, what=f"{attempt.step} asked", why=f"of {by}")
        if attempt.ended_at and (attempt.asked_at or attempt.state == RepairState.FAILED):
            what = f"{attempt.step} {attempt.state.lower()}"
            yield Decided(at=attempt.ended_at, what=what, why=attempt.proof)
    for test in status.validation:
        if test.ended_at and test.verdict:
            what = f"test {test.verdict}"
            yield Decided(at=test.ended_at, what=what, why=test.message)
    # Of one second: what came of a step or a test comes before the phase that it led to.
    for entry in status.timeline:
        if entry.step in set(Phase):
            yield Decided(at=entry.at, what=entry.step)


def parting(
    one: Sequence[Decided], other: Sequence[Decided]
) -> tuple[Decided | None, Decided | None] | None:
    """The earliest decision of each that the other did not make; None where all are the same.

    Compared kind by kind: what happened within one second has no order in records.
    """
    first, second = _only_in(one, other), _only_in(other, one)
    return (first, second) if first is not None or second is not None else None


def _only_in(one: Sequence[Decided], other: Sequence[Decided]) -> Decided | None:
    left = list(other)
    for decided in one:
        same = next((each for each in left if _same(decided, each)), None)
        if same is None:
            return decided
        left.remove(same)
    return None


def _same(one: Decided, other: Decided) -> bool:
    apart = (parse_time(one.at) or 0.0) - (parse_time(other.at) or 0.0)
    return one.what == other.what and abs(apart) <= SAME_S


def clause(decided: Decided | None) -> str:
    """`RestartNode asked at 2026-01-31 12:00 UTC`."""
    return f"{decided.what} at {utc_of(decided.at)}" if decided is not None else "nothing more"


def repairs_clause(decided: Iterable[Decided]) -> str:
    """What repaired and tested the node, `ResetGPU failed, RestartNode proven, test pass`."""
    ends = [
        one.what for one in decided
        if one.what not in set(Phase) and not one.what.endswith(" asked")
    ]  # fmt: skip
    return ", ".join(ends)
