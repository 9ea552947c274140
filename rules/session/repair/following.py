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
from rules.repair.adapter import RepairAction
from rules.repair.judging import Sight, given_up
from rules.repair.matching import first_holding, node_json
from rules.repair.target import query_for
from rules.session.case import Case
from rules.session.repair.asking import FRESH_S, read_lately, worded_action
from rules.session.repair.clearing import letting_back
from rules.session.repair.requests import action_of, taking_off, taking_off_node

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
    action = worded_action(case, attempt)
    if action is None or not (action.failed or action.done or action.withdraw.when):
        return Followed()
    node = node_json(case.node)
    if action.target is None:
        why = given_up(action, "the Node", node, node)
        return Followed(gave_up=why, looks=True)
    if attempt.target is None:
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
    if (why := given_up(action, query.address.words, json, node)) != "":
        # Of another boot its word ends nothing, but nobody is to stay moved off for it.
        return Followed(gave_up=why, writes=letting_back(case), looks=True)
    due = first_holding(action.withdraw.when, json, node) is not None
    writes = taking_off(case, attempt, action, json) if due else ()
    if first_holding(action.done, json, node) is not None:
        # Whoever was moved off comes back first: the proof needs our agent to look again.
        writes = (*letting_back(case), *writes)
    return Followed(writes=writes, looks=True)


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
        action = action_of(case.policy, attempt)
        if action is None or action.condition or not _is_due(action, ends):
            continue
        if action.target is None:
            writes += taking_off_node(case, attempt, action)
            continue
        if attempt.target is None:
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


def comes_off(case: Case, attempt: RepairAttempt) -> bool:
    """Whether the end of the session takes the request back."""
    action = action_of(case.policy, attempt)
    return action is not None and _is_due(action, ends=True)


def _is_due(action: RepairAction, ends: bool) -> bool:
    """What was deleted, or is never withdrawn, nobody brings back."""
    at = action.withdraw.at
    return not action.delete and (at == "Step" or (ends and at == "Session"))
