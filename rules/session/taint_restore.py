"""Restore a part of the taint and cordon that another controller removed.

A missing part counts as an operator's request unless one of three explanations applies: an owner
that was observed at work has just left, the node has just booted (GPU driver managers uncordon
their node at each boot), or another controller wrote to the node since the part was last observed.
A boot allows one restoration, recorded in the patch that makes it, so that a crash or a new leader
does not make a second one. A controller's removal is restored once. After a second one within
`AGAIN_S` gpuward leaves the node as it is and reports it. Called by `rules.session.decide` on a
fresh read of the node.
"""

from dataclasses import replace
from typing import Final

from rules.api import node_managers, quarantine_taint, timestamps, writes
from rules.api.node_managers import ManagerKind
from rules.api.quarantine import Mode, Phase, QuarantineStatus, TimelineEntry
from rules.api.quarantine_taint import QuarantineState
from rules.api.writes import Decision, EmitEvent
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import drain_plan
from rules.session import halts, phases
from rules.session import status as st
from rules.session.case import Case

BOOT_WORK_S: Final = 600.0
"""How long after a boot a lost cordon is attributed to it. The driver container starts with the
kubelet; its image pull and init containers take minutes, not an hour.
"""
JOINING_S: Final = 300.0
"""A node that became Ready this soon after its object was created runs its first boot. A kubelet
registers first and becomes Ready with its network, within seconds to a few minutes.
"""
NEW_BOOT: Final = st.NEW_BOOT
_LOST: Final = "CordonLost"
OWNER_LEFT_S: Final = 60.0
"""How long after an owner's work a missing part of the taint and cordon is attributed to it."""
AGAIN_S: Final = 3600.0
"""A second removal by a controller within this time needs operator action."""
_REACTION_S: Final = 5.0
"""A removal is observed within this time. A write in the same second as the last check may precede
it and does not explain a later removal.
"""
_PART: Final = {
    QuarantineState.UNCORDONED: "cordon",
    QuarantineState.UNTAINTED: "quarantine taint",
}


def restored(case: Case) -> Decision | None:
    """Return the decision to restore the missing part, or to leave it to the controller; None if
    an operator removed it.
    """
    program = _noted_program(case)
    if not program and _owner_just_left(case):
        return _restore(case, "")
    if not program and (again := put_back(case)) is not None:
        return again
    program = program or _program_that_wrote(case)
    if not program:
        return None
    if _removed_before(case):
        return _left_alone(case, program)
    return _restore(case, program)


def _noted_program(case: Case) -> str:
    """Return the program that removed this part, from the session's evidence; "" for none."""
    kept = case.status.evidence.get(halts.EVIDENCE_PART_TAKEN)
    if not isinstance(kept, dict) or kept.get("part") != case.taint_state:
        return ""
    return str(kept.get("by", ""))


def _owner_just_left(case: Case) -> bool:
    """Return whether an owner was observed at work until `OWNER_LEFT_S` ago."""
    paused = st.condition(case.status, "Paused")
    if paused is None or paused.reason != WhyNot.STAND_DOWN:
        return False
    if paused.status != "True":
        left_at = st.since(case.status, "Paused")
        return left_at is not None and case.now - left_at <= OWNER_LEFT_S
    if case.status.evidence.get(halts.EVIDENCE_PART_TAKEN):
        # The owner's removal is recorded; the restoration was refused or halted since.
        return True
    seen_at = case.seen.last_active_at
    return seen_at is not None and not drain_plan.was_away(case.now, seen_at)


def _program_that_wrote(case: Case) -> str:
    """Return the controller that wrote to the node since the part was last observed; "" if none
    or an operator did.

    An uncordon itself has no managed field. Most controllers set a label, a taint or an annotation
    with it. After an absence of gpuward only programs that are known to uncordon count.
    """
    note = quarantine_taint.read_note(case.node)
    if case.taint_state not in _PART or note is None:
        return ""
    seen_at = case.seen.last_active_at
    away = seen_at is None or drain_plan.was_away(case.now, seen_at)
    times = (seen_at, timestamps.parse_time(note.at), timestamps.parse_time(note.restored_at))
    since = max((at for at in times if at is not None), default=case.now)
    changes = [
        change
        for change in node_managers.changes_since(case.node, since)
        if change.at > since or case.now - change.at <= _REACTION_S
    ]
    if any(change.kind is ManagerKind.INTERACTIVE for change in changes):
        return ""
    accused = {ManagerKind.CONTROLLER} if away else {ManagerKind.CONTROLLER, ManagerKind.UNKNOWN}
    found = [change for change in changes if change.kind in accused]
    found.sort(key=lambda change: change.kind is not ManagerKind.CONTROLLER)
    return found[0].program if found else ""


def _removed_before(case: Case) -> bool:
    paused = st.condition(case.status, "Paused")
    if paused is not None and paused.status == "True" and paused.reason == WhyNot.UNDONE_AGAIN:
        return True
    note = quarantine_taint.read_note(case.node)
    before = timestamps.parse_time(note.restored_at) if note is not None else None
    return before is not None and case.now - before < AGAIN_S


def _left_alone(case: Case, program: str) -> Decision:
    """Return the decision after a second removal: no eviction, repair or restoration until an
    operator decides.
    """
    part = _PART[case.taint_state]
    refusal = Refusal(
        reason=WhyNot.UNDONE_AGAIN,
        why=f"the {part} was removed again by {program} within an hour of its restoration",
        subject=halts.PART_OF_TAINT,
        owner=program,
        permanent=True,
    )
    decision = phases.in_phase(case, refusal)
    paused = st.condition(case.status, "Paused")
    if paused is not None and paused.status == "True" and paused.reason == WhyNot.UNDONE_AGAIN:
        return decision
    message = (
        f"{st.sentence(refusal.why)} gpuward leaves the node as it is and keeps its session open. "
        f"Stop {program} on this node and cordon it again, or end the quarantine with kubectl "
        f"gpuward release {case.node.name}."
    )
    event = _event(case, "UndoneAgain", message, int(case.now))
    return replace(decision, writes=(*decision.writes, event))


def _event(case: Case, what: str, message: str, at: object) -> EmitEvent:
    """Return the Event on the node, unique for `at`."""
    key = f"{case.session.metadata.uid}/{what}/{at}"
    node = case.node
    return writes.node_event(node.name, node.uid, f"Quarantine{what}", message, case.now, key)


def _restore(case: Case, program: str) -> Decision:
    """Return the decision to restore taint and cordon; `program` is "" for an observed owner."""
    taken = Refusal(
        reason=WhyNot.STAND_DOWN,
        why=f"a part of the quarantine was removed by {program or _OWNER}",
        subject=halts.PART_OF_TAINT,
        owner=program,
    )
    if (halt := halts.halt_of(case)) is not None:
        why = f"{taken.why} and is restored after this ends: {halt.why}"
        return phases.in_phase(case, replace(taken, why=why))
    again = phases.taint_write(case, restored=bool(program))
    # Until it is restored the owner counts as just gone, so the missing part cancels nothing.
    halt = taken if case.refusal(again) is not None else None
    status = halts.with_halts(case, halt)
    why = f"{_OWNER} finished its work and had removed a part of the quarantine, which is restored"
    if program:
        why = f"the {_PART[case.taint_state]} was removed by {program} and is restored once"
    if halt is not None:
        return case.decision("RestoreTaint", status, because=why, before=(again,))
    return case.decision(
        "RestoreTaint",
        st.noted(status, "MarkRestored", why, case.now),
        because=why,
        before=(again,),
        after=(_restored_event(case, program, why),),
    )


_OWNER: Final = "another controller"


def _restored_event(case: Case, program: str, why: str) -> EmitEvent:
    release = f"kubectl gpuward release {case.node.name}"
    end = (
        f"after a second removal within an hour it stays off; to end the quarantine, {release}"
        if program
        else f"to end the quarantine, remove it again after {OWNER_LEFT_S:.0f} s, or {release}"
    )
    return _event(case, "MarkRestored", st.sentence(f"{why}; {end}"), int(case.now))


def boot_unbooked(case: Case) -> bool:
    """Return whether the node runs another boot than the session has recorded."""
    boot, known = case.node.boot_id, case.status.boot_id
    return bool(boot) and bool(known) and boot != known


def awaits_booking(case: Case) -> bool:
    """Return whether a lost cordon may belong to a boot that is not recorded yet."""
    if case.taint_state is not QuarantineState.UNCORDONED or not boot_unbooked(case):
        return False
    seen_at = case.seen.last_active_at
    if seen_at is None or case.now - seen_at <= BOOT_WORK_S:
        return True
    # After a longer absence of gpuward the Ready condition shows when the kubelet returned.
    back_at = _kubelet_back_at(case)
    return back_at is None or back_at <= seen_at or case.now - back_at <= BOOT_WORK_S


def put_back(case: Case) -> Decision | None:
    """Return the decision to cordon the node again, once per boot; None if the boot did not
    uncordon it.
    """
    if case.taint_state is not QuarantineState.UNCORDONED or not _of_the_boot(case):
        return None
    status = case.status
    noted = _lost_since_boot(case.status)
    if not noted:
        status = st.noted(status, _LOST, _BOOT_SENTENCE, case.now)
    if case.policy.mode == Mode.SHADOW or halts.halt_of(case) is not None:
        # The node stays as it is for now; the loss is recorded.
        return (
            phases.in_phase(case)
            if noted
            else case.decision(_LOST, status, because=_BOOT_SENTENCE)
        )
    return case.decision(
        "CordonAgain",
        status,
        because=_BOOT_SENTENCE,
        before=(phases.taint_write(case, boot=case.node.boot_id),),
        after=(_event(case, "CordonRestored", _BOOT_SENTENCE, case.node.boot_id),),
    )


_BOOT_SENTENCE: Final = (
    "The node was uncordoned right after a reboot, as GPU driver managers do, so gpuward cordons "
    "it once more; uncordon it again to end the quarantine."
)


def _of_the_boot(case: Case) -> bool:
    note = quarantine_taint.read_note(case.node)
    boot = case.node.boot_id
    if note is None or not boot or boot_unbooked(case) or note.restored_boot == boot:
        return False
    siblings = (other.status for other in case.seen.siblings)
    if any(other.boot_id == boot and _lost_since_boot(other) for other in siblings):
        # An earlier session used the one restoration of this boot.
        return False
    if _lost_since_boot(case.status):
        return True
    began = _boot_began(case)
    return began is not None and case.now - began <= BOOT_WORK_S


def _boot_began(case: Case) -> float | None:
    """Return when the current boot began, or a later time at which it ran; None if unknown.

    A session that was opened in this boot has not observed its begin. The boot then began when the
    kubelet returned, at the latest when the session was created: a short absence of the kubelet
    does not make an old boot a recent one.
    """
    booked = _latest(case.status, {NEW_BOOT})
    if booked is not None:
        return timestamps.parse_time(booked.at)
    back_at = _kubelet_back_at(case)
    if back_at is None or case.session.spec.boot_id != case.node.boot_id:
        return back_at
    if back_at - case.node.metadata.created_at < JOINING_S:
        # The node has just joined: this is no reboot, and an uncordon is an operator's request.
        return None
    return min(back_at, case.session.metadata.created_at)


def _kubelet_back_at(case: Case) -> float | None:
    ready = case.node.condition("Ready")
    if ready is None or ready.status == "Unknown":
        return None
    return timestamps.parse_time(ready.last_transition_time or "")


def _lost_since_boot(status: QuarantineStatus) -> bool:
    latest = _latest(status, {NEW_BOOT, _LOST})
    return latest is not None and latest.step == _LOST


def _latest(status: QuarantineStatus, steps: set[str]) -> TimelineEntry | None:
    """Return the last of these timeline entries since the session was opened or reopened."""
    for entry in reversed(status.timeline):
        if entry.step in steps:
            return entry
        if entry.step == Phase.PENDING:
            return None
    return None
