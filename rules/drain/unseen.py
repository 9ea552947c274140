"""The plan of a node that cannot be looked at: nobody goes, and the session says so.

Called by the remediator's drains when looking failed again and again: without a plan a session
would say "0 evicted" for ever and no time-out would ever be named. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.catalog.why_not import Refusal, WhyNot
from rules.drain.memory import DrainMemory
from rules.drain.plan import DrainPlan

SAID_FROM: Final = 2
"""The first failure in a row is answered by looking again; saying it would be one more write."""
_NO_RIGHT: Final = frozenset({401, 403})


def not_listed(memory: DrainMemory, before: DrainPlan | None, code: int, said: str) -> DrainPlan:
    """The API server answered `code` to the list of the node's pods (0: it did not answer)."""
    clause = f"the node's pods cannot be listed ({said[:300]})"
    if code in _NO_RIGHT:
        refusal = Refusal(
            reason=WhyNot.MISSING_PERMISSION,
            why=f"{clause}, grant the remediator list on pods",
            permanent=True,
        )
    else:
        refusal = Refusal(reason=WhyNot.PODS_NOT_LISTED, why=f"{clause}, it is tried again")
    return _unseen(memory, before, refusal)


def failed(memory: DrainMemory, before: DrainPlan | None, where: str) -> DrainPlan:
    """The remediator itself failed over the node's pods, at `where`."""
    refusal = Refusal(
        reason=WhyNot.UNEXPECTED_ERROR,
        why="the remediator failed over the node's pods in a way nobody foresaw "
        f"({where}), nobody is evicted and it is tried again, report it with the log of "
        "gpuward-remediator",
        permanent=True,
    )
    return _unseen(memory, before, refusal)


def _unseen(memory: DrainMemory, before: DrainPlan | None, refusal: Refusal) -> DrainPlan:
    return DrainPlan(
        memory=replace(memory, clear_since=None),
        blocked_reason=refusal.reason,
        unseen=refusal,
        needs_human=refusal.reason if refusal.permanent else None,
        waiting=before.waiting if before is not None else (),
        left_by_policy=before.left_by_policy if before is not None else (),
        left_by_failure=before.left_by_failure if before is not None else (),
    )
