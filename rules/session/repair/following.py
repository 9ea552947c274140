"""How a step stands that was asked for: given up, and what takes its request back.

The adapter's data read against the object, for one decision. What is not known yet is asked of the
edge. Called by `rules.session.repair.phase` and `ends`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rules.api.quarantine import RepairAttempt
from rules.api.repair.writes import ObjectQuery, SetRepairCondition, WriteRepairObject
from rules.api.timestamps import parse_time
from rules.api.writes import EmitEvent
from rules.repair.adapter import NewObject, NodeLabel, recorded
from rules.repair.ladder import Step
from rules.repair.objects import Sight, address_of, given_up, holds, query_for
from rules.session.case import Case
from rules.session.repair.asking import FRESH_S, read_lately
from rules.session.repair.clearing import letting_back
from rules.session.repair.requests import may_have_asked, taking_off, taking_off_node

FOLLOWED_S: Final = 5.0
"""How often an object is looked at while its step is awaited; one that was asked for a moment ago
more often: what ends at once has mostly refused, and people wait for that."""
_YOUNG: Final = 0.25
"""An object is looked at again after this part of the time that its step has taken."""
_SOONEST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What the object of a step that was asked for shows."""

    needs: ObjectQuery | None = None
    gave_up: str = ""
    """Why whoever was asked has given up, a clause."""
    writes: tuple[WriteRepairObject, ...] = ()
    looks: bool = False
    """It is worth looking again soon."""


def followed_s(case: Case, attempt: RepairAttempt) -> float:
    """How soon the object of a step that was asked for is looked at again."""
    took_s = case.now - (parse_time(attempt.asked_at or attempt.started_at) or case.now)
    return min(FOLLOWED_S, max(_SOONEST_S, _YOUNG * took_s))


def follow_call(case: Case, attempt: RepairAttempt) -> Followed:
    """Whether whoever was asked has given up, and what is taken back meanwhile."""
    action = recorded(attempt.action)
    if not isinstance(action, NewObject) or attempt.target is None:
        return Followed()
    if action.done is None and action.failed is None:
        return Followed()
    query = query_for(attempt.target)
    # Read anew at each look that is due, and not at every wake-up.
    seen = read_lately(case, query, 0.9 * followed_s(case, attempt))
    if seen is None:
        return Followed(needs=query)
    if seen.sight is not Sight.FOUND or not seen.found:
        gone = seen.sight is Sight.ABSENT
        return Followed(writes=letting_back(case) if gone else (), looks=True)
    json = seen.found[0]
    why = given_up(action, query.address.words, json)
    # Of another boot its word ends nothing, but nobody is to stay moved off for it; and once it is
    # through, the proof needs our agent to look again.
    over = bool(why) or (action.done is not None and holds(action.done, json))
    return Followed(gave_up=why, writes=letting_back(case) if over else (), looks=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """How requests come off: read this, wait for that, or send these."""

    needs: ObjectQuery | None = None
    waits: str = ""
    """Why it is not known whether a request still stands, a clause."""
    writes: tuple[SetRepairCondition | WriteRepairObject, ...] = ()
    told: tuple[EmitEvent, ...] = ()
    """What people are told with it."""
    left: str = ""
    """What could not be taken back and may be followed late, a clause; a person takes it off."""


TAKE_BACK_S: Final = 600.0
"""How long an object that cannot be read keeps a step or a session from ending."""


def take_back(case: Case, attempts: tuple[RepairAttempt, ...], *, ends: bool) -> TakenBack:
    """What takes the requests of these attempts off their objects; `ends`: the session does."""
    writes: list[SetRepairCondition | WriteRepairObject] = []
    left: list[str] = []
    for attempt in attempts:
        if not ends and attempt.step == Step.REPLACE_NODE:
            continue
        action = recorded(attempt.action)
        if action is None and (may_have_asked(attempt) or attempt.target is not None):
            # Of a release whose adapters this one does not have.
            through = address_of(attempt.target).words if attempt.target else "the Node"
            left.append(f"{through} (asked by {attempt.adapter})")
        if isinstance(action, NodeLabel):
            writes += taking_off_node(case, attempt, action)
        if not isinstance(action, NewObject) or attempt.target is None:
            continue
        query = query_for(attempt.target)
        seen = read_lately(case, query, FRESH_S)
        if seen is None:
            return TakenBack(needs=query)
        if seen.sight is Sight.UNREAD:
            since = case.now if seen.failing_since is None else seen.failing_since
            if case.now - since < TAKE_BACK_S:
                return TakenBack(waits=f"{query.address.words} cannot be read ({seen.why})")
        if seen.sight in {Sight.UNREAD, Sight.FORBIDDEN}:
            left.append(f"{query.address.words} ({seen.why})")
        if seen.sight is Sight.FOUND and seen.found:
            writes += taking_off(case, attempt, action, seen.found[0])
    return TakenBack(writes=tuple(writes), left=", ".join(left))
