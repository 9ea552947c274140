"""What holds several nodes for the sake of the fleet, so that it is said once for all. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Condition
from rules.catalog.why_not import FLEET_WIDE
from rules.session.observation import is_open
from rules.session.status import condition, is_true
from rules.text.counted import count

_SHARED: Final = 2
"""So many nodes with the same sentence are told it once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWait:
    """One sentence of the fleet rules, and how many nodes it holds."""

    reason: str
    clause: str
    nodes: int
    storm: bool
    """The breaker is what says it."""

    @property
    def line(self) -> str:
        """`12 nodes wait, Budget: 4 of 13 nodes are unavailable, the budget allows 1`."""
        return f"{count(self.nodes, 'node')} wait, {self.reason}: {self.clause}"


def held_for_all(session: QuarantineView) -> Condition | None:
    """The condition that says that it waits for the fleet's sake; None where it does not."""
    blocked = condition(session.status, "Blocked")
    if blocked is None or blocked.status != "True" or not is_open(session):
        return None
    return blocked if blocked.reason in FLEET_WIDE else None


def clause_of(session: QuarantineView) -> str:
    """What it waits for, as many may; "" where that is its own."""
    held = held_for_all(session)
    return held.message.removeprefix("Waiting: ").removesuffix(".") if held is not None else ""


def shared_waits(sessions: Iterable[QuarantineView]) -> tuple[SharedWait, ...]:
    """What holds at least two nodes, the most first."""
    found: Counter[tuple[str, str, bool]] = Counter()
    for session in sessions:
        if (held := held_for_all(session)) is not None and (clause := clause_of(session)):
            found[held.reason, clause, is_true(session.status, "Storm")] += 1
    return tuple(
        SharedWait(reason=reason, clause=clause, nodes=nodes, storm=storm)
        for (reason, clause, storm), nodes in found.most_common()
        if nodes >= _SHARED
    )


def without(message: str, clauses: Iterable[str], instead: str = "see above") -> str:
    """A session's sentence without what was said for all."""
    for clause in clauses:
        message = message.replace(clause, instead)
    return message
