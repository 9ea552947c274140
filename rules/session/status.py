"""Change a session's status: phases, conditions, timeline and reports of refused writes."""

from collections.abc import Iterable, Iterator, Set
from typing import Any, Final

import msgspec

from rules.api import health, messages, quarantine, timestamps, writes
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause, Condition, Mode, Phase, QuarantineStatus, TimelineEntry
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import CreateTestJob, SetRepairCondition, WriteRepairObject
from rules.api.writes import (
    CreateSession,
    EmitEvent,
    PatchSessionSpec,
    RelabelNode,
    RemoveTaint,
    TaintAndCordon,
    Write,
    WriteSessionStatus,
)
from rules.catalog.reason import severity_rank
from rules.catalog.why_not import Refusal, WhyNot

BY_GPUWARD: Final = "gpuward"
BY_OPERATOR: Final = "person"
NEEDS_HUMAN: Final = "QuarantineNeedsHuman"
"""Reason of the Event on a node that needs operator action."""
PROPOSED: Final = "RepairProposed"
"""Condition: a repair step waits for an operator's approval; its reason is the step."""
APPROVED: Final = "LetGo"
"""Timeline entry of a repair step that an operator approved: `STEP`, or `STEP: REASON`."""
PAUSED_BY, PAUSE_OVER = "PausedBy", "PauseOver"
"""Timeline steps: a pause stops all disruption of the node, and the last pause ended. They keep
who paused the node after the GPUWardPause is deleted."""
NEW_BOOT: Final = "NewBoot"
"""Timeline step: a new boot was observed."""
MORE_SEVERE: Final = "Graver"
"""Timeline step: the severity of a cause rose above that in the session's evidence."""
EVIDENCE_INCIDENTS: Final = "incidents"
"""In `status.evidence`: the faults that opened the session."""
_REMEMBERED: Final = frozenset({"Paused"})
"""Conditions that keep their reason when they end: who had paused matters for another minute. The
others drop it, since the column Blocked of `kubectl get` prints it for status False, too."""
_OVER: Final = "No longer the case."
_FIRST_KEPT: Final = 20
"""Entries at the beginning of a long timeline that are kept; the others are the latest."""


def sentence(clause: str) -> str:
    """Return a clause as a sentence; "" stays empty."""
    return f"{clause[:1].upper()}{clause[1:]}." if clause else ""


def enter(
    status: QuarantineStatus,
    phase: Phase,
    message: str,
    now: float,
    by: str = BY_GPUWARD,
    *,
    until: float | None = None,
) -> QuarantineStatus:
    """Return the status in `phase`; only message and `until` change if it is already there."""
    status = with_message(status, message, until)
    if status.phase == phase:
        return status
    moved = msgspec.structs.replace(
        status, phase=str(phase), phase_since=timestamps.format_time(now)
    )
    return noted(moved, str(phase), message, now, by)


def with_message(
    status: QuarantineStatus, message: str, until: float | None = None
) -> QuarantineStatus:
    """Return the status with the message, and the time until which it holds at the latest."""
    at = "" if until is None else timestamps.format_time(until)
    return msgspec.structs.replace(status, message=message, until=at)


def noted(
    status: QuarantineStatus,
    step: str,
    message: str,
    now: float,
    by: str = BY_GPUWARD,
    subject: str = "",
) -> QuarantineStatus:
    """Return the status with a new timeline entry."""
    text = messages.shortened(messages.bounded(message), 256)
    entry = TimelineEntry(
        at=timestamps.format_time(now), step=step, subject=subject, message=text, by=by
    )
    timeline = (*status.timeline, entry)
    if len(timeline) > quarantine.MAX_TIMELINE:
        timeline = timeline[:_FIRST_KEPT] + timeline[_FIRST_KEPT - quarantine.MAX_TIMELINE :]
    return msgspec.structs.replace(status, timeline=timeline)


def named(status: QuarantineStatus, causes: Iterable[Cause]) -> QuarantineStatus:
    """Return `status` with the reason of the most severe of `causes`."""
    return msgspec.structs.replace(status, reason=quarantine.most_severe_reason(causes))


def write_of(session: QuarantineView, status: QuarantineStatus) -> WriteSessionStatus:
    """Return the write of the entire status, guarded by the session's resourceVersion."""
    return WriteSessionStatus(
        name=session.name,
        node=session.spec.node_name,
        resource_version=session.metadata.resource_version,
        status=named(status, session.spec.causes),
    )


def with_more_severe(
    status: QuarantineStatus, causes: Iterable[Cause], now: float
) -> QuarantineStatus:
    """Return the status with a timeline entry for each cause that became more severe.

    The evidence takes over the severity, so that each rise is reported once. Causes that joined
    after the opening have no evidence and no entry.
    """
    kept: Any = status.evidence.get(EVIDENCE_INCIDENTS)
    if not isinstance(kept, list):
        return status
    by_id = {cause.incident: cause for cause in causes if cause.incident}
    current: list[Any] = []
    for one in kept:
        cause = by_id.get(str(one.get("id"))) if isinstance(one, dict) else None
        was = str(one.get("severity")) if cause is not None else ""
        if cause is None or severity_rank(cause.severity) <= severity_rank(was):
            current.append(one)
            continue
        current.append({**one, "severity": cause.severity})
        message = f"{cause.reason} is {cause.severity} now, it was {was}"
        status = noted(status, MORE_SEVERE, message, now)
    if current == kept:
        return status
    evidence = {**status.evidence, EVIDENCE_INCIDENTS: current}
    return msgspec.structs.replace(status, evidence=evidence)


def condition(status: QuarantineStatus, kind: str) -> Condition | None:
    """Return the condition of that type; None if it was never set."""
    return next((c for c in status.conditions if c.type == kind), None)


def is_true(status: QuarantineStatus, kind: str) -> bool:
    """Return whether the condition is True."""
    found = condition(status, kind)
    return found is not None and found.status == "True"


def since(status: QuarantineStatus, kind: str) -> float | None:
    """Return when the condition last changed its status."""
    found = condition(status, kind)
    return timestamps.parse_time(found.last_transition_time) if found else None


def with_condition(
    status: QuarantineStatus, kind: str, now: float, reason: str = "", message: str = ""
) -> QuarantineStatus:
    """Return the status with the condition True for a `reason`, else False if it exists."""
    known = condition(status, kind)
    if known is None and not reason:
        return status
    value = "True" if reason else "False"
    changed = known is None or known.status != value
    updated = Condition(
        type=kind,
        status=value,
        reason=str(reason) or (known.reason if known and kind in _REMEMBERED else ""),
        message=messages.bounded(message) if reason else _OVER,
        last_transition_time=timestamps.format_time(now)
        if changed or known is None
        else known.last_transition_time,
    )
    others = [c for c in status.conditions if c.type != kind]
    ordered = tuple(sorted((*others, updated), key=lambda c: c.type))
    return msgspec.structs.replace(status, conditions=ordered)


def with_refusal(
    status: QuarantineStatus,
    now: float,
    refusal: Refusal | None,
    message: str = "",
    *,
    human: WhyNot | None = None,
) -> QuarantineStatus:
    """Return the status with conditions Blocked and NeedsHuman of `refusal`; None ends both.

    `human`: why operator action is needed, if that differs from the refusal.
    """
    needed = refusal.reason if refusal is not None and refusal.permanent else human
    blocked = refusal.reason if refusal is not None else None
    status = with_condition(status, "Blocked", now, blocked or "", message)
    return with_condition(status, "NeedsHuman", now, needed or "", message)


def blocked_by(status: QuarantineStatus) -> str:
    """Return the stored reason of condition Blocked, possibly of another release; "" without."""
    found = condition(status, "Blocked")
    return found.reason if found is not None and found.status == "True" else ""


def steady(status: QuarantineStatus, stored: QuarantineStatus) -> QuarantineStatus:
    """Return `status` in which unchanged conditions keep their stored transition time.

    Rules may clear and set a condition within one decision, which is no change.
    """
    kept = []
    for found in status.conditions:
        known = condition(stored, found.type)
        same = known is not None and known.status == found.status
        at = known.last_transition_time if known is not None and same else ""
        kept.append(msgspec.structs.replace(found, last_transition_time=at) if at else found)
    return msgspec.structs.replace(status, conditions=tuple(kept))


def times(status: QuarantineStatus, step: str) -> int:
    """Return how often the timeline has `step`."""
    return sum(1 for entry in status.timeline if entry.step == step)


def with_taint_found(
    status: QuarantineStatus, tainted_at: str, opened_at: float, now: float
) -> QuarantineStatus:
    """Return the status of a session with a taint and cordon that was found on its node.

    If the session ended before it recorded the taint and cordon, an entry is added with the time
    in the node's annotation.
    """
    if times(status, str(Phase.MARKED)) or status.mode == Mode.SHADOW:
        return status
    at = min(now, max(opened_at, timestamps.parse_time(tainted_at) or now))
    return noted(status, str(Phase.MARKED), "its taint and cordon was found on the node", at)


# Reports of writes on the node that the API server refuses. A refusal replaces no other blocker
# and never changes a phase. The evidence keeps its message and the session's message without it,
# so that the report can be removed.

EVIDENCE_REFUSED: Final = "refusedWrite"
"""Evidence key of the report of a refused write."""
_REFUSABLE: Final = ("Blocked", "NeedsHuman")


class _RefusedWrite(msgspec.Struct, frozen=True):
    """The report in the evidence: message of the conditions, session's message without it."""

    message: str = ""
    before: str = ""

    @property
    def joined(self) -> str:
        """The session's message with the report as its last sentence."""
        return messages.bounded(f"{self.before} {self.message}".strip())


def kind_of(write: Write) -> NodeWrite | None:
    """Return the kind of a write that can be refused; None for others."""
    match write:
        case TaintAndCordon():
            return NodeWrite.TAINT
        case RelabelNode():
            return NodeWrite.LABEL
        case RemoveTaint():
            return NodeWrite.REMOVE_TAINT
        case CreateSession():
            return NodeWrite.OPEN
        case PatchSessionSpec():
            return NodeWrite.SPEC
        case SetRepairCondition() | WriteRepairObject():
            return NodeWrite.REPAIR if write.asks else NodeWrite.UNREPAIR
        case TaintDevice() | UntaintDevice():
            return NodeWrite.DEVICE
        case CreateTestJob():
            return NodeWrite.TEST
        case WriteSessionStatus():
            return NodeWrite.STATUS
        case _:
            return None


def not_recorded(
    write: WriteSessionStatus, refusal: Refusal, node_uid: str, now: float
) -> EmitEvent:
    """Return the Event for a refused write of a session's status."""
    message = f"Session {write.name} of this node is stopped: {refusal.why}."
    key = f"{write.name}/{refusal.reason}/NotRecorded/{write.status.phase_since}"
    return writes.node_event(write.node, node_uid, NEEDS_HUMAN, message, now, key)


def lost_fields(sent: QuarantineStatus, stored: QuarantineStatus) -> tuple[str, ...]:
    """Return the paths of sent fields that the API server dropped, such as `status.evidence`.

    Keys inside the free-form evidence do not count.
    """
    return tuple(sorted(set(_lost("status", health.plain(sent), health.plain(stored)))))


def _lost(path: str, sent: Any, stored: Any) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(stored, dict) and path != "status.evidence":
        for name, value in sent.items():
            if name not in stored:
                yield f"{path}.{name}"
            else:
                yield from _lost(f"{path}.{name}", value, stored[name])
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for one, other in zip(sent, stored, strict=True):
            yield from _lost(path, one, other)


def not_kept(
    write: WriteSessionStatus, lost: tuple[str, ...], node_uid: str, now: float
) -> EmitEvent:
    """Return the Event for status fields that the CRD of an older release silently drops."""
    message = (
        f"The GPUQuarantine CRD in this cluster drops {messages.name_list(lost)}, so it is older "
        "than gpuward-remediator: update it with kubectl apply -k daemonset/crds."
    )
    key = f"{write.name}/NotKept/{','.join(lost)}"[:253]
    return writes.node_event(write.node, node_uid, NEEDS_HUMAN, message, now, key)


NOT_KEPT_S: Final = 3600.0
"""How long, in seconds, no step or test begins after the API server dropped a field of its record.
Then it is retried: the CRD may have been updated."""


def entries_lost(dropped: Set[str], part: str) -> Refusal | None:
    """Return why no entry of `status.PART` may begin; None if the API server keeps its fields.

    `dropped`: status fields that the API server dropped recently.
    """
    place = f"status.{part}"
    lost = sorted(f for f in dropped if f == place or f.startswith(f"{place}."))
    if not lost:
        return None
    remedy = "kubectl apply -k daemonset/crds"
    why = (
        f"the GPUQuarantine CRD in this cluster is older than gpuward-remediator and drops "
        f"{messages.name_list(lost)}, update it ({remedy})"
    )
    return Refusal(reason=WhyNot.SESSION_REFUSED, why=why, permanent=True, remedy=remedy)


def with_refused_write(status: QuarantineStatus, refusal: Refusal, now: float) -> QuarantineStatus:
    """Return `status` with the refusal in its conditions and its message."""
    lead = "Failed" if refusal.reason is WhyNot.UNEXPECTED_ERROR else "Refused"
    report = _RefusedWrite(
        messages.bounded(f"{lead}: {refusal.why}."), _without_report(status).message
    )
    wanted = {"Blocked": True, "NeedsHuman": refusal.permanent}
    for kind in _REFUSABLE:
        if not is_true(status, kind) or _is_reported_by(status, kind):
            reason = refusal.reason if wanted[kind] else ""
            status = with_condition(status, kind, now, reason, report.message)
    evidence = {**status.evidence, EVIDENCE_REFUSED: msgspec.to_builtins(report)}
    return msgspec.structs.replace(status, message=report.joined, evidence=evidence)


def without_refused_write(status: QuarantineStatus, now: float) -> QuarantineStatus:
    """Return `status` without the report of a refused write."""
    for kind in _REFUSABLE:
        if _is_reported_by(status, kind):
            status = with_condition(status, kind, now)
    return _without_report(status)


def _without_report(status: QuarantineStatus) -> QuarantineStatus:
    """Return `status` without the report in its message and evidence."""
    report = _report(status)
    if report is None:
        return status
    # None and not left out: the status is written as a merge patch.
    evidence = {**status.evidence, EVIDENCE_REFUSED: None}
    message = report.before if status.message == report.joined else status.message
    return msgspec.structs.replace(status, message=message, evidence=evidence)


def _is_reported_by(status: QuarantineStatus, kind: str) -> bool:
    """Return whether the condition is True because of a refused write."""
    found, report = condition(status, kind), _report(status)
    if found is None or report is None or found.status != "True":
        return False
    return found.message == report.message


def _report(status: QuarantineStatus) -> _RefusedWrite | None:
    kept = status.evidence.get(EVIDENCE_REFUSED)
    try:
        return None if kept is None else msgspec.convert(kept, _RefusedWrite)
    except msgspec.ValidationError:
        return None
