"""The end of a step or of a session: what asked for it comes off before the end is written."""

from dataclasses import replace
from typing import Final

import msgspec

from rules.api import messages, names, quarantine_taint, timestamps
from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import ObjectAddress, SetRepairCondition, WriteRepairObject
from rules.api.writes import Decision, Evicting, Write, node_event
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy.policy import Policy
from rules.repair.ladder import Step
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.observation import NodeObservation
from rules.session.repair import ladder, withdrawal
from rules.session.repair.withdrawal import Withdrawal

MAX_ATTEMPTS: Final = 16
"""Entries of `status.repair`; the CRD allows as many."""


def with_entry(
    status: QuarantineStatus, attempt: RepairAttempt, **changes: object
) -> QuarantineStatus:
    """`status` with these fields of the entry changed."""
    entry = msgspec.structs.replace(attempt, **changes)
    return touched(
        status, repair=tuple(entry if a.object == attempt.object else a for a in status.repair)
    )


def is_complete(case: Case, attempt: RepairAttempt) -> bool:
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
    return (
        timestamps.parse_time(attempt.started_at)
        or timestamps.parse_time(attempt.asked_at)
        or case.phase_since
    )


def with_room(attempts: tuple[RepairAttempt, ...]) -> tuple[RepairAttempt, ...]:
    """`attempts` with a place for one more: of those that count for nothing the oldest goes."""
    spare = next((each for each in attempts if not each.counts), None)
    if len(attempts) < MAX_ATTEMPTS or spare is None:
        return attempts
    return tuple(each for each in attempts if each is not spare)


def reading(query: ObjectAddress, why: str = "the repair rests on") -> Decision:
    """The decision that reads this first."""
    because = f"{why} {query.words}"
    return Decision(step="ReadObject", because=because, needs_object=query)


def ended_as(
    case: Case,
    status: QuarantineStatus,
    attempt: RepairAttempt,
    state: RepairState,
    proof: str,
) -> Decision:
    """The step is over; what asked for it comes off before that is written."""
    taken = withdrawal.withdraw(case, (attempt,), ends=False)
    off = _taken_off(case, taken, withdrawal.node_withdrawals(case, ends=False), status)
    if isinstance(off, Decision):
        return off
    ended_at = timestamps.format_time(case.now)
    status = with_entry(status, attempt, state=state, ended_at=ended_at, proof=proof[:512])
    status = st.with_refusal(status, case.now, None)
    said = f"{attempt.step} by {attempt.adapter}: {proof}"
    status = with_left(st.noted(status, f"Repair{state}", said, case.now), off, case.now)
    words = {RepairState.PROVEN: "Proven", RepairState.FAILED: "Failed"}.get(state, "Given up")
    status = touched(status, message=messages.bounded(f"{words}: {said}."))
    return case.decision(
        f"Repair{state}",
        status,
        because=proof,
        before=off.writes,
        evicting=Evicting.WATCH,
        wake_at=case.now,
    )


_AGAIN_S = 10.0
_COMES_OFF: Final = "a request is to come off"


def closed_repair(case: Case, status: QuarantineStatus, phase: Phase) -> QuarantineStatus:
    """`status` whose step under way is over with the session, proven where the node went with
    it.
    """
    attempt = ladder.under_way(status)
    if attempt is None:
        return status
    replaced = phase is Phase.NODE_GONE and attempt.step == Step.REPLACE_NODE
    # Of an older release's entry nobody wrote down when it was asked for.
    since = attempt.started_at if attempt.state == RepairState.ASKED else ""
    return with_entry(
        status,
        attempt,
        asked_at=attempt.asked_at or since,
        ended_at=timestamps.format_time(case.now),
        state=RepairState.PROVEN if replaced else RepairState.WITHDRAWN,
        proof="the Node is gone or another one" if replaced else "the session ended first",
    )


def last_requests(case: Case, phase: Phase) -> Decision | Withdrawal:
    """What is to be taken back before the session's end is written, or what is read first."""
    if case.shadow:
        return Withdrawal()
    on_node = () if phase is Phase.NODE_GONE else withdrawal.node_withdrawals(case, ends=True)
    attempts = _standing(case.status)
    return _taken_off(case, withdrawal.withdraw(case, attempts, ends=True), on_node, case.status)


def _taken_off(
    case: Case,
    taken: Withdrawal,
    on_node: tuple[SetRepairCondition | WriteRepairObject, ...],
    status: QuarantineStatus,
) -> Decision | Withdrawal:
    """What is sent for it; a decision while it has to be read, or waits for who does not
    answer.
    """
    if taken.needs is not None:
        return reading(taken.needs, _COMES_OFF)
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
    status = touched(status, message=messages.bounded(f"Not ended yet: {refusal.why}."))
    return case.decision(
        "TakeBack",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.WATCH,
        wake_at=case.now + _AGAIN_S,
    )


def with_left(status: QuarantineStatus, taken: Withdrawal, now: float) -> QuarantineStatus:
    """`status` that says which requests stand although nobody wants them any more."""
    if not taken.left:
        return status
    # The remedy first: what stands may be named at length, and is cut then.
    message = f"take it off by hand: a request may still stand on {taken.left}"
    return st.noted(status, "RequestLeft", message, now)


def withdraw_leftovers(seen: NodeObservation, now: float, policy: Policy) -> Decision | Withdrawal:
    """What no open session concerns any more, on the Node and on objects of sessions that somebody
    deleted: nobody follows it late.
    """
    whole = Withdrawal()
    if (node := seen.node) is not None:
        # Annotations that a kubelet can write too: their managers tell.
        if (
            quarantine_taint.may_have_strays(node) or names.ANNOTATION_REPAIR in node.annotations
        ) and not is_fresh(node):
            why = "what is on it may be left of a session that nobody knows"
            return Decision(step="ReadNode", because=why, needs_fresh_node=True)
        known = (*seen.siblings, *seen.deleted)
        writes = withdrawal.leftover_writes(node, now, known)
        whole = Withdrawal(writes=writes, told=withdrawal.told(node, now, known, writes))
    for gone in seen.deleted:
        case = Case(session=gone, seen=seen, now=now, policy=policy)
        taken = withdrawal.withdraw(case, _standing(gone.status), ends=True)
        if taken.needs is not None:
            return reading(taken.needs, _COMES_OFF)
        whole = Withdrawal(
            waits=whole.waits or taken.waits,
            writes=(*whole.writes, *taken.writes),
            told=whole.told,
            left=", ".join(filter(None, (whole.left, taken.left))),
        )
    return _heeding(seen, whole, now)


def cleared(decision: Decision, taken: Withdrawal, seen: NodeObservation, now: float) -> Decision:
    """`decision` about a node without a session, once what is left there comes off first.

    A request that stands keeps the node out of service for a while and no session from opening.
    """
    opens = decision.step in {"Open", "Reopen"}
    if taken.waits:
        said = seen.refused.get(NodeWrite.UNREPAIR)
        again_at = max(now + 1.0, said.until or 0.0) if said is not None else now + _AGAIN_S
        why = f"a request of a session that is gone still stands: {taken.waits}"
        blocked_by = said.reason if said is not None else WhyNot.REPAIR_REFUSED
        message = messages.bounded(f"The node does not serve yet: {why}.")
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


def _heeding(seen: NodeObservation, taken: Withdrawal, now: float) -> Withdrawal:
    """`taken` as it is while the API server refuses such writes on the node: it waits, and after a
    while what stands is left to an operator.
    """
    said = seen.refused.get(NodeWrite.UNREPAIR)
    if said is None or not taken.writes:
        return taken
    since = now if said.since is None else said.since
    if now - since < withdrawal.TAKE_BACK_S:
        return replace(taken, writes=(), told=(), waits=taken.waits or said.why)
    words = [
        w.address.words if isinstance(w, WriteRepairObject) else f"the Node ({w.kind})"
        for w in taken.writes
    ]
    left = ", ".join(filter(None, (taken.left, *(f"{each} ({said.reason})" for each in words))))
    return replace(taken, writes=(), told=(), left=left)


def _standing(status: QuarantineStatus) -> tuple[RepairAttempt, ...]:
    """Requests that may stand while the session is open."""
    running = ladder.under_way(status)
    return tuple(a for a in status.repair if a is running or a.step == Step.REPLACE_NODE)
