"""End a repair step or a session: withdraw its requests before the end is written."""

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
    """Return `status` with these fields of the entry changed."""
    entry = msgspec.structs.replace(attempt, **changes)
    return touched(
        status, repair=tuple(entry if a.object == attempt.object else a for a in status.repair)
    )


def is_complete(case: Case, attempt: RepairAttempt) -> bool:
    """Return whether the entry has all its fields; an older CRD of GPUQuarantine drops some."""
    before = attempt.before
    written = (attempt.adapter, attempt.object, attempt.started_at, attempt.state, before.node_uid)
    return all(written) and bool(before.boot_id or not case.node.boot_id)


def started_at(case: Case, attempt: RepairAttempt) -> float:
    """Return the Unix time at which the timeout of the step began.

    If an older CRD dropped it, the time of the request or the begin of the phase is used.
    """
    return (
        timestamps.parse_time(attempt.started_at)
        or timestamps.parse_time(attempt.asked_at)
        or case.phase_since
    )


def with_room(attempts: tuple[RepairAttempt, ...]) -> tuple[RepairAttempt, ...]:
    """Return `attempts` with room for one more: the oldest one that does not count is dropped."""
    spare = next((each for each in attempts if not each.counts), None)
    if len(attempts) < MAX_ATTEMPTS or spare is None:
        return attempts
    return tuple(each for each in attempts if each is not spare)


def reading(query: ObjectAddress, why: str = "the repair rests on") -> Decision:
    """Return the decision that reads this object first."""
    because = f"{why} {query.text}"
    return Decision(step="ReadObject", because=because, needs_object=query)


def ended_as(
    case: Case,
    status: QuarantineStatus,
    attempt: RepairAttempt,
    state: RepairState,
    proof: str,
) -> Decision:
    """Return the decision that ends the step and withdraws its request first."""
    taken = withdrawal.withdraw(case, (attempt,), ends=False)
    off = _taken_off(case, taken, withdrawal.node_withdrawals(case, ends=False), status)
    if isinstance(off, Decision):
        return off
    ended_at = timestamps.format_time(case.now)
    status = with_entry(status, attempt, state=state, ended_at=ended_at, proof=proof[:512])
    status = st.with_refusal(status, case.now, None)
    result = f"{attempt.step} by {attempt.adapter}: {proof}"
    status = with_left(st.noted(status, f"Repair{state}", result, case.now), off, case.now)
    label = {RepairState.PROVEN: "Proven", RepairState.FAILED: "Failed"}.get(state, "Withdrawn")
    status = touched(status, message=messages.bounded(f"{label}: {result}."))
    return case.decision(
        f"Repair{state}",
        status,
        because=proof,
        before=off.writes,
        evicting=Evicting.WATCH,
        wake_at=case.now,
    )


_AGAIN_S = 10.0
_WITHDRAWING: Final = "a request has to be withdrawn from"


def closed_repair(case: Case, status: QuarantineStatus, phase: Phase) -> QuarantineStatus:
    """Return `status` with the running step ended with the session; a replaced node proves it."""
    attempt = ladder.under_way(status)
    if attempt is None:
        return status
    replaced = phase is Phase.NODE_GONE and attempt.step == Step.REPLACE_NODE
    # An entry of an older release has no time of the request.
    since = attempt.started_at if attempt.state == RepairState.ASKED else ""
    return with_entry(
        status,
        attempt,
        asked_at=attempt.asked_at or since,
        ended_at=timestamps.format_time(case.now),
        state=RepairState.PROVEN if replaced else RepairState.WITHDRAWN,
        proof="the Node was deleted or replaced" if replaced else "the session ended first",
    )


def last_requests(case: Case, phase: Phase) -> Decision | Withdrawal:
    """Return the requests to withdraw before the session ends, or what to read first."""
    if case.shadow:
        return Withdrawal()
    on_node = () if phase is Phase.NODE_GONE else withdrawal.node_withdrawals(case, ends=True)
    attempts = _open_requests(case.status)
    return _taken_off(case, withdrawal.withdraw(case, attempts, ends=True), on_node, case.status)


def _taken_off(
    case: Case,
    taken: Withdrawal,
    on_node: tuple[SetRepairCondition | WriteRepairObject, ...],
    status: QuarantineStatus,
) -> Decision | Withdrawal:
    """Return the writes that withdraw requests; a decision while they have to be read or wait."""
    if taken.needs is not None:
        return reading(taken.needs, _WITHDRAWING)
    taken = replace(taken, writes=(*on_node, *taken.writes))
    taken = _with_refusal(case.seen, taken, case.now)
    if not taken.waits:
        return taken
    answer = case.seen.refused.get(NodeWrite.UNREPAIR)
    answer = answer if answer is not None and answer.why == taken.waits else None
    refusal = Refusal(
        reason=answer.reason if answer is not None else WhyNot.REPAIR_REFUSED,
        why=f"a repair request could not be withdrawn yet: {taken.waits}",
        permanent=answer is not None and answer.permanent,
    )
    status = st.with_refusal(status, case.now, refusal, f"Not ended: {refusal.why}.")
    status = touched(status, message=messages.bounded(f"Not ended yet: {refusal.why}."))
    return case.decision(
        "WithdrawRequest",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.WATCH,
        wake_at=case.now + _AGAIN_S,
    )


def with_left(status: QuarantineStatus, taken: Withdrawal, now: float) -> QuarantineStatus:
    """Return `status` with a timeline entry for requests that could not be withdrawn."""
    if not taken.left:
        return status
    # The remedy comes first: a long list of requests is cut.
    message = f"remove it manually: a repair request may remain on {taken.left}"
    return st.noted(status, "RequestLeft", message, now)


def withdraw_leftovers(seen: NodeObservation, now: float, policy: Policy) -> Decision | Withdrawal:
    """Return what withdraws requests without an open session, on the Node and on objects of
    deleted sessions.
    """
    total = Withdrawal()
    if (node := seen.node) is not None:
        # A kubelet can write these annotations, too: the managed fields show who did.
        if (
            quarantine_taint.may_have_strays(node) or names.ANNOTATION_REPAIR in node.annotations
        ) and not is_fresh(node):
            why = "it may have leftovers of an unknown session"
            return Decision(step="ReadNode", because=why, needs_fresh_node=True)
        known = (*seen.siblings, *seen.deleted)
        writes = withdrawal.leftover_writes(node, now, known)
        events = withdrawal.leftover_events(node, now, known, writes)
        total = Withdrawal(writes=writes, events=events)
    for gone in seen.deleted:
        case = Case(session=gone, seen=seen, now=now, policy=policy)
        taken = withdrawal.withdraw(case, _open_requests(gone.status), ends=True)
        if taken.needs is not None:
            return reading(taken.needs, _WITHDRAWING)
        total = Withdrawal(
            waits=total.waits or taken.waits,
            writes=(*total.writes, *taken.writes),
            events=total.events,
            left=", ".join(filter(None, (total.left, taken.left))),
        )
    return _with_refusal(seen, total, now)


def cleared(decision: Decision, taken: Withdrawal, seen: NodeObservation, now: float) -> Decision:
    """Return `decision` about a node without a session, with its leftovers withdrawn first.

    A remaining request keeps the node out of service for a while, and no session from opening.
    """
    opens = decision.step in {"Open", "Reopen"}
    if taken.waits:
        answer = seen.refused.get(NodeWrite.UNREPAIR)
        again_at = max(now + 1.0, answer.until or 0.0) if answer is not None else now + _AGAIN_S
        why = f"a repair request of a deleted session remains: {taken.waits}"
        blocked_by = answer.reason if answer is not None else WhyNot.REPAIR_REFUSED
        message = messages.bounded(f"The node stays out of service: {why}.")
        waiting = Decision(
            step="WithdrawRequest", because=why, blocked_by=blocked_by, message=message
        )
        held = decision if opens else waiting
        return replace(
            held,
            writes=(*taken.writes, *held.writes),
            unfinished=True,
            wake_at=again_at if held.wake_at is None else min(again_at, held.wake_at),
        )
    writes: tuple[Write, ...] = (*taken.writes, *taken.events, *decision.writes)
    if taken.left:
        message = f"Remove it manually: a repair request may remain on {taken.left}."
        key = f"{seen.uid}/{taken.left}/RequestLeft"
        writes = (*writes, node_event(seen.name, seen.uid, st.NEEDS_HUMAN, message, now, key))
    return replace(decision, writes=writes) if writes != decision.writes else decision


def _with_refusal(seen: NodeObservation, taken: Withdrawal, now: float) -> Withdrawal:
    """Return `taken` while the API server refuses its writes: it waits, and after
    `WITHDRAWAL_S` the requests are left to an operator.
    """
    answer = seen.refused.get(NodeWrite.UNREPAIR)
    if answer is None or not taken.writes:
        return taken
    since = now if answer.since is None else answer.since
    if now - since < withdrawal.WITHDRAWAL_S:
        return replace(taken, writes=(), events=(), waits=taken.waits or answer.why)
    targets = [
        w.address.text if isinstance(w, WriteRepairObject) else f"the Node ({w.kind})"
        for w in taken.writes
    ]
    refused = (f"{each} ({answer.reason})" for each in targets)
    left = ", ".join(filter(None, (taken.left, *refused)))
    return replace(taken, writes=(), events=(), left=left)


def _open_requests(status: QuarantineStatus) -> tuple[RepairAttempt, ...]:
    """Return the attempts that may have a request while the session is open."""
    running = ladder.under_way(status)
    return tuple(a for a in status.repair if a is running or a.step == Step.REPLACE_NODE)
