"""The end of a step or of a session: what asked for it comes off before the end is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from rules.api.mark import may_have_strays
from rules.api.names import ANNOTATION_REPAIR
from rules.api.nodes import NodeView
from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import ObjectQuery, SetRepairCondition, WriteRepairObject
from rules.api.sentences import bounded
from rules.api.timestamps import format_time, parse_time
from rules.api.writes import Decision, Evicting, Write, node_event
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy.policy import Policy
from rules.repair.adapter import NewObject, recorded
from rules.repair.ladder import Step
from rules.repair.objects import Sight, given_up, holds, query_for
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.observation import NodeObservation
from rules.session.repair.ladder import under_way
from rules.session.repair.request import read_lately
from rules.session.repair.withdrawal import (
    TAKE_BACK_S,
    TakenBack,
    leftover_writes,
    letting_back,
    take_back,
    taking_back,
    told,
)

MAX_ATTEMPTS: Final = 16
"""Entries of `status.repair`; the CRD allows as many."""


def changed(attempt: RepairAttempt, **changes: object) -> RepairAttempt:
    """The entry with these fields changed."""
    return msgspec.structs.replace(attempt, **changes)


def with_entry(status: QuarantineStatus, attempt: RepairAttempt) -> QuarantineStatus:
    """`status` with the entry of the same request replaced."""
    repair = tuple(attempt if a.object == attempt.object else a for a in status.repair)
    return touched(status, repair=repair)


def is_whole(case: Case, attempt: RepairAttempt) -> bool:
    """Whether the entry has what every entry is written with; an older definition of GPUQuarantine
    drops fields.
    """
    before = attempt.before
    written = (attempt.adapter, attempt.object, attempt.started_at, attempt.state, before.node_uid)
    return all(written) and bool(before.boot_id or not case.node.boot_id)


def started_at(case: Case, attempt: RepairAttempt) -> float:
    """When the time of the step began, in seconds since the epoch. Where an older definition of
    GPUQuarantine dropped it, when it was asked for, or when its phase began.
    """
    return parse_time(attempt.started_at) or parse_time(attempt.asked_at) or case.phase_since


def with_room(attempts: tuple[RepairAttempt, ...]) -> tuple[RepairAttempt, ...]:
    """`attempts` with a place for one more: of those that count for nothing the oldest goes."""
    spare = next((each for each in attempts if not each.counts), None)
    if len(attempts) < MAX_ATTEMPTS or spare is None:
        return attempts
    return tuple(each for each in attempts if each is not spare)


def reading(query: ObjectQuery) -> Decision:
    """The decision that reads this first."""
    because = f"the repair rests on {query.address.words}"
    return Decision(step="ReadObject", because=because, needs_object=query)


def ended_as(
    case: Case,
    status: QuarantineStatus,
    attempt: RepairAttempt,
    state: RepairState,
    proof: str,
) -> Decision:
    """The step is over; what asked for it comes off before that is written."""
    off = requests_off(case, attempt, status)
    if isinstance(off, Decision):
        return off
    ended = changed(attempt, state=state, ended_at=format_time(case.now), proof=proof[:512])
    status = with_entry(status, ended)
    status = st.with_refusal(status, case.now, None)
    said = f"{attempt.step} by {attempt.adapter}: {proof}"
    status = with_left(st.noted(status, f"Repair{state}", said, case.now), off, case.now)
    words = {RepairState.PROVEN: "Proven", RepairState.FAILED: "Failed"}.get(state, "Given up")
    status = touched(status, message=bounded(f"{words}: {said}."))
    return case.decision(
        f"Repair{state}",
        status,
        because=proof,
        before=off.writes,
        evicting=Evicting.WATCH,
        wake_at=case.now,
    )


_AGAIN_S = 10.0


def closed_repair(case: Case, status: QuarantineStatus, phase: Phase) -> QuarantineStatus:
    """`status` whose step under way is over with the session, proven where the node went with
    it.
    """
    attempt = under_way(status)
    if attempt is None:
        return status
    replaced = phase is Phase.NODE_GONE and attempt.step == Step.REPLACE_NODE
    # Of an older release's entry nobody wrote down when it was asked for.
    since = attempt.started_at if attempt.state == RepairState.ASKED else ""
    ended = msgspec.structs.replace(
        attempt,
        asked_at=attempt.asked_at or since,
        ended_at=format_time(case.now),
        state=RepairState.PROVEN if replaced else RepairState.WITHDRAWN,
        proof="the Node is gone or another one" if replaced else "the session ended first",
    )
    repair = tuple(ended if a.object == attempt.object else a for a in status.repair)
    return touched(status, repair=repair)


def last_requests(case: Case, phase: Phase) -> Decision | TakenBack:
    """What is to be taken back before the session's end is written, or what is read first."""
    if case.shadow:
        return TakenBack()
    on_node = () if phase is Phase.NODE_GONE else taking_back(case, ends=True)
    attempts = _standing(case.status)
    return _taken_off(case, take_back(case, attempts, ends=True), on_node, case.status)


def requests_off(
    case: Case, attempt: RepairAttempt, status: QuarantineStatus
) -> Decision | TakenBack:
    """What takes the requests of a step that is over off, or a decision that comes first."""
    taken = take_back(case, (attempt,), ends=False)
    return _taken_off(case, taken, taking_back(case, ends=False), status)


def _taken_off(
    case: Case,
    taken: TakenBack,
    on_node: tuple[SetRepairCondition | WriteRepairObject, ...],
    status: QuarantineStatus,
) -> Decision | TakenBack:
    """What is sent for it; a decision while it has to be read, or waits for who does not
    answer.
    """
    if taken.needs is not None:
        return _reading(taken.needs)
    taken = replace(taken, writes=(*on_node, *taken.writes))
    taken = _heeding(case.seen, taken, case.now)
    if not taken.waits:
        return taken
    said = case.seen.refused.get(NodeWrite.UNREPAIR)
    said = said if said is not None and said.why == taken.waits else None
    refusal = Refusal(
        reason=said.reason if said is not None else WhyNot.REPAIR_REFUSED,
        why=f"a request still stands: {taken.waits}",
        permanent=said is not None and said.permanent,
    )
    status = st.with_refusal(status, case.now, refusal, f"Not ended: {refusal.why}.")
    status = touched(status, message=bounded(f"Not ended yet: {refusal.why}."))
    return case.decision(
        "TakeBack",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.WATCH,
        wake_at=case.now + _AGAIN_S,
    )


def with_left(status: QuarantineStatus, taken: TakenBack, now: float) -> QuarantineStatus:
    """`status` that says which requests stand although nobody wants them any more."""
    if not taken.left:
        return status
    # The remedy first: what stands may be named at length, and is cut then.
    message = f"take it off by hand: a request may still stand on {taken.left}"
    return st.noted(status, "RequestLeft", message, now)


def of_nobody(seen: NodeObservation, now: float, policy: Policy) -> Decision | TakenBack:
    """What no open session concerns any more, on the Node and on objects of sessions that somebody
    deleted: nobody follows it late.
    """
    whole = TakenBack()
    if (node := seen.node) is not None:
        if (may_have_strays(node) or _may_be_asked(node)) and not is_fresh(node):
            why = "what is on it may be left of a session that nobody knows"
            return Decision(step="ReadNode", because=why, needs_fresh_node=True)
        known = (*seen.siblings, *seen.deleted)
        writes = leftover_writes(node, now, known)
        whole = TakenBack(writes=writes, told=told(node, now, known, writes))
    for gone in seen.deleted:
        case = Case(session=gone, seen=seen, now=now, policy=policy)
        taken = take_back(case, _standing(gone.status), ends=True)
        if taken.needs is not None:
            return _reading(taken.needs)
        whole = TakenBack(
            waits=whole.waits or taken.waits,
            writes=(*whole.writes, *taken.writes),
            told=whole.told,
            left=", ".join(filter(None, (whole.left, taken.left))),
        )
    return _heeding(seen, whole, now)


def _may_be_asked(node: NodeView) -> bool:
    """Whether annotations say so that a kubelet can write too: their managers tell."""
    return ANNOTATION_REPAIR in node.annotations


def cleared(decision: Decision, taken: TakenBack, seen: NodeObservation, now: float) -> Decision:
    """`decision` about a node without a session, once what is left there comes off first.

    A request that stands keeps the node out of service for a while and no session from opening.
    """
    opens = decision.step in {"Open", "Reopen"}
    if taken.waits:
        said = seen.refused.get(NodeWrite.UNREPAIR)
        again_at = max(now + 1.0, said.until or 0.0) if said is not None else now + _AGAIN_S
        why = f"a request of a session that is gone still stands: {taken.waits}"
        blocked_by = said.reason if said is not None else WhyNot.REPAIR_REFUSED
        message = bounded(f"The node does not serve yet: {why}.")
        waiting = Decision(step="TakeBack", because=why, blocked_by=blocked_by, message=message)
        held = decision if opens else waiting
        return replace(
            held,
            writes=(*taken.writes, *held.writes),
            unfinished=True,
            wake_at=again_at if held.wake_at is None else min(again_at, held.wake_at),
        )
    writes: tuple[Write, ...] = (*taken.writes, *taken.told, *decision.writes)
    if taken.left:
        message = f"Take it off by hand: a repair request may still stand on {taken.left}."
        key = f"{seen.uid}/{taken.left}/RequestLeft"
        writes = (*writes, node_event(seen.name, seen.uid, st.NEEDS_HUMAN, message, now, key))
    return replace(decision, writes=writes) if writes != decision.writes else decision


def _reading(query: ObjectQuery) -> Decision:
    because = f"a request is to come off {query.address.words}"
    return Decision(step="ReadObject", because=because, needs_object=query)


def _heeding(seen: NodeObservation, taken: TakenBack, now: float) -> TakenBack:
    """`taken` as it is while the API server refuses such writes on the node: it waits, and after a
    while what stands is left to a person.
    """
    said = seen.refused.get(NodeWrite.UNREPAIR)
    if said is None or not taken.writes:
        return taken
    since = now if said.since is None else said.since
    if now - since < TAKE_BACK_S:
        return replace(taken, writes=(), told=(), waits=taken.waits or said.why)
    words = [
        w.address.words if isinstance(w, WriteRepairObject) else f"the Node ({w.kind})"
        for w in taken.writes
    ]
    left = ", ".join(filter(None, (taken.left, *(f"{each} ({said.reason})" for each in words))))
    return replace(taken, writes=(), told=(), left=left)


def _standing(status: QuarantineStatus) -> tuple[RepairAttempt, ...]:
    """Requests that may stand while the session is open."""
    running = under_way(status)
    return tuple(a for a in status.repair if a is running or a.step == Step.REPLACE_NODE)


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
    """Why the one that was asked gave up, a clause."""
    writes: tuple[WriteRepairObject, ...] = ()
    looks: bool = False
    """It is worth looking again soon."""


def followed_s(case: Case, attempt: RepairAttempt) -> float:
    """How soon the object of a step that was asked for is looked at again."""
    took_s = case.now - (parse_time(attempt.asked_at or attempt.started_at) or case.now)
    return min(FOLLOWED_S, max(_SOONEST_S, _YOUNG * took_s))


def follow_call(case: Case, attempt: RepairAttempt) -> Followed:
    """Whether the one that was asked gave up, and what is taken back meanwhile."""
    action = recorded(attempt.action)
    if not isinstance(action, NewObject) or attempt.target is None:
        return Followed()
    if action.done is None and action.failed is None:
        return Followed()
    query = query_for(attempt.target)
    # Read again at each look that is due, and not at every wake-up.
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
