"""Repairing: the step under way followed to its proof.

One rule that reads `status.repair[]` and what is seen now, and nothing else: a restart, a crash
between two writes and a change of leader all continue here. The entry is written before anybody
is asked; whether the step happened, `rules.repair.proof` says. Called by `rules.session.phases`.
"""

from __future__ import annotations

from typing import Final

from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.sentences import bounded, causes_clause
from rules.api.timestamps import format_time, parse_time, utc
from rules.api.writes import Decision, Evicting
from rules.catalog.why_not import Refusal
from rules.repair.ladder import Step
from rules.repair.objects import address_of
from rules.repair.proof import prove
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.refused import NotKept, entries_lost
from rules.session.repair.beginning import awaited
from rules.session.repair.entry import changed, ended_as, reading, started_at, with_entry
from rules.session.repair.facts import seen_of
from rules.session.repair.following import follow_call, followed_s
from rules.session.repair.planned import go_on
from rules.session.repair.wants import under_way

HEALS_S: Final = 900.0
"""How long after its proof a step's causes may still hold before the next one: a verdict of a new
boot needs the start grace of the agent and a look at everything that was wrong before."""


def follow_step(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision | None:
    """The step that is under way, judged by what is seen; None where there is none."""
    attempt = under_way(status)
    if attempt is None:
        return _healing(case, status)
    proof = prove(Step(attempt.step), attempt.before, seen_of(case, attempt))
    asked = attempt.state == RepairState.ASKED
    if proof.proven and (asked or not case.settled):
        return ended_as(case, status, attempt, RepairState.PROVEN, proof.clause)
    lost = entries_lost(case.seen.not_kept, "repair")
    if not asked and lost is not None:
        return _unrecorded(case, status, attempt, lost.refusal)
    if not asked:
        return go_on(case, status, attempt, halt)
    if not attempt.started_at:
        return _undated(case, status, attempt, lost)
    if case.now - started_at(case, attempt) >= (timeout_s := _timeout_s(case, attempt)):
        why = f"not proven within {_spelled(timeout_s)}: {proof.clause}"
        return ended_as(case, status, attempt, RepairState.FAILED, why)
    followed = follow_call(case, attempt)
    if followed.needs is not None:
        return reading(followed.needs)
    if followed.gave_up and case.node.boot_id == attempt.before.boot_id:
        # In another boot its word is about the one before: a Job, say, that the reboot ended.
        why = f"{attempt.adapter} gave up: {followed.gave_up}"
        return ended_as(case, status, attempt, RepairState.FAILED, why)
    until = utc(started_at(case, attempt) + timeout_s)
    sentence = (
        f"{attempt.step} asked of {attempt.adapter}{_through(attempt)} at "
        f"{utc(started_at(case, attempt))} for "
        f"{case.asked_for}; not proven yet ({proof.clause}), it has until {until}."
    )
    status = st.with_refusal(status, case.now, None)
    status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
    return case.decision(
        "AwaitRepair",
        status,
        because=proof.clause,
        before=followed.writes,
        evicting=Evicting.WATCH,
        wake_at=min(
            started_at(case, attempt) + timeout_s,
            case.now + (followed_s(case, attempt) if followed.looks else timeout_s),
        ),
    )


def _unrecorded(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, refusal: Refusal
) -> Decision:
    """The API server did not keep the entry as it was sent, so nobody was asked: off with it."""
    status = touched(status, repair=tuple(a for a in status.repair if a is not attempt))
    status = st.with_refusal(status, case.now, refusal, f"Not repaired: {refusal.why}.")
    return case.decision(
        "NotRecorded",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.WATCH,
        wake_at=case.now,
    )


def _undated(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, lost: NotKept | None
) -> Decision:
    """A step that was asked for and whose beginning was lost: dated again where that is kept. Its
    proof ends it whatever is kept.
    """
    if lost is None or case.now >= lost.again_at:
        status = with_entry(status, changed(attempt, started_at=format_time(case.now)))
        why = "when it began was not kept"
        return case.decision(
            "DateRepair", status, because=why, evicting=Evicting.WATCH, wake_at=case.now
        )
    why = f"{attempt.step} cannot time out: {lost.refusal.why}"
    status = st.with_refusal(status, case.now, lost.refusal, st.sentence(why))
    status = st.enter(status, Phase.REPAIRING, bounded(st.sentence(why)), case.now)
    return case.decision(
        "AwaitRepair",
        status,
        because=why,
        blocked_by=lost.refusal.reason,
        evicting=Evicting.WATCH,
        wake_at=lost.again_at,
    )


def _healing(case: Case, status: QuarantineStatus) -> Decision | None:
    """A step was proven a moment ago: the verdict gets its time before the next one is thought
    of.
    """
    last = status.repair[-1] if status.repair else None
    if last is None or last.state != RepairState.PROVEN or case.phase is not Phase.REPAIRING:
        return None
    until = (parse_time(last.ended_at) or case.now) + HEALS_S
    if case.settled or case.now >= until:
        return None
    sentence = (
        f"{last.step} is proven ({last.proof}) and {causes_clause(case.causes)} holds still; if "
        f"it does at {utc(until)}, {awaited(case)}."
    )
    status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
    return case.decision(
        "Healing", status, because="its causes hold still", evicting=Evicting.WATCH, wake_at=until
    )


def _through(attempt: RepairAttempt) -> str:
    return f" through {address_of(attempt.target).words}" if attempt.target is not None else ""


def _spelled(seconds: float) -> str:
    """`30 min`, or `10 s` where that is shorter than two."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _timeout_s(case: Case, attempt: RepairAttempt) -> float:
    wanted = case.policy.repair.steps.get(Step(attempt.step))
    return wanted.timeout_s if wanted is not None else 3600.0
