"""What a drained node waits for before a repair step: everything that may forbid it, read afresh.

Called by `beginning` before a step is recorded, and by `planned` again before it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rules.api.names import ANNOTATION_HOLD
from rules.api.quarantine import Phase
from rules.api.timestamps import utc
from rules.catalog.why_not import Refusal, WhyNot
from rules.repair.ladder import Step
from rules.session.case import Case
from rules.session.halts import unreachable
from rules.session.refused import entries_lost
from rules.session.repair.asking import Call
from rules.session.repair.empty import (
    LISTS_FRESH_S,
    emptied_clause,
    is_certain,
    pods_in_the_way,
)
from rules.session.repair.evidence import awaited_until

EVIDENCE_LOOK_S: Final = 5.0
"""How often a step that waits for evidence looks again."""
_HARSH: Final = frozenset({Step.POWER_CYCLE, Step.REPLACE_NODE})
"""Steps that a node which did not come back from an earlier one may still get."""


NOT_DRAINED: Final = frozenset({Phase.MARKED, Phase.DRAINING})
"""Phases in which a session wants a turn to drain, so that its permit speaks of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a drained node waits for, when no step can begin now."""

    then: str
    """What is next, a clause for the sentence."""
    refusal: Refusal | None = None
    """What blocks it; None where nothing does."""
    proposes: str = ""
    """The step that a person is to let go; "" where nobody is asked."""
    looks: bool = False
    """The node is to be listed until it is certain that nothing uses a GPU there."""
    hand_over: bool = False
    wake_at: float | None = None


def not_now(
    case: Case, step: Step, halt: Refusal | None, next_clause: str, joint: str = ", once"
) -> Outlook | None:
    """What forbids the step now, read afresh; None where nothing does. `joint` is how what comes
    first follows `next_clause`: `ResetGPU by X is next, once ...`, `ResetGPU waits until ...`.
    """

    def waits(refusal: Refusal, *, hand_over: bool = False) -> Outlook:
        then = f"{next_clause}: {refusal.why}"
        return Outlook(then=then, refusal=refusal, hand_over=hand_over)

    def no(reason: WhyNot, why: str) -> Outlook:
        return waits(Refusal(reason=reason, why=why))

    if (held := halt or _hold(case)) is not None:
        return waits(held)
    unrecorded = _unrecorded(case, next_clause)
    if unrecorded is not None and not unrecorded.looks:
        return unrecorded
    # A node that did not come back from an earlier step is past being looked at. A step that
    # nobody could be asked for says nothing about the node.
    lost = step in _HARSH and any(attempt.in_vain for attempt in case.status.repair)
    if unreachable(case) and not lost:
        return no(WhyNot.NODE_UNREACHABLE, "the node's kubelet is silent")
    if case.seen.stale and not lost:
        return no(WhyNot.VERDICT_STALE, case.seen.stale)
    silent = lost and unreachable(case)
    if (pods := pods_in_the_way(case, lost=silent)) is not None:
        return waits(pods)
    permit = case.seen.permit
    if permit.refusal is not None:
        return waits(permit.refusal, hand_over=permit.hand_over)
    if not permit.repair:
        # The fleet is judged in a moment, and the node woken.
        return unrecorded or Outlook(then=next_clause, wake_at=case.now + 1.0)
    if not is_certain(case, lost=silent):
        then = f"{next_clause}{joint} {emptied_clause(case)}"
        looks = Outlook(then=then, looks=True, wake_at=case.now + LISTS_FRESH_S)
        return unrecorded or looks
    if (until := awaited_until(case, step)) is not None:
        kept = f"its agent has kept evidence, or without at {utc(until)}"
        then = f"{next_clause}{joint} {kept}"
        looks = Outlook(then=then, looks=True, wake_at=min(until, case.now + EVIDENCE_LOOK_S))
        return unrecorded or looks
    return None


def _unrecorded(case: Case, next_clause: str) -> Outlook | None:
    """Nobody is asked for a step whose record the API server does not keep. Where the record is to
    be tried again, the node is looked at for it, and what is said of it stays.
    """
    lost = entries_lost(case.seen.not_kept, "repair")
    if lost is None:
        return None
    again = case.now >= lost.again_at
    return Outlook(
        then=f"{next_clause}: {lost.refusal.why}",
        refusal=lost.refusal,
        looks=again,
        wake_at=case.now + 1.0 if again else lost.again_at,
    )


def _hold(case: Case) -> Refusal | None:
    held = case.node.annotations.get(ANNOTATION_HOLD)
    if not case.session.spec.hold and held is None:
        return None
    why = f" ({held[:200]})" if held else ""
    return Refusal(reason=WhyNot.HOLD, why=f"a person holds the node{why}")


def object_waits(case: Case, call: Call, next_clause: str) -> Outlook | None:
    """What the object says against the step as long as it lasts; None where it says nothing."""
    why = call.verdict.waits
    if not why:
        return None
    again_at = case.now + call.again_s
    return Outlook(then=f"{next_clause}: {why}", refusal=refused(why), wake_at=again_at)


def refused(why: str) -> Refusal:
    """What the other side of a request says against it, as long as it lasts."""
    return Refusal(reason=WhyNot.REPAIR_REFUSED, why=why, permanent=True)
