"""Judge what the driver pushes: an event is a hint to look, and carries no more than an Xid's
number.

Called by `judge` for each NVML event and for time passing. Where the number alone does not
decide, the event waits for its kernel line; the two together are one sighting. What an event says
of recovery action and presence is read from the GPU: the event only makes that reading count at
once.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from rules.api.health import MigInstance
from rules.catalog.reason import Severity
from rules.catalog.reasons import REASONS
from rules.catalog.xid import RECOVERY_ACTION_XID, reason_for_xid
from rules.judge.incident import Finding, Member, Named
from rules.judge.observation import EventKind, GpuEvent, SourceName
from rules.judge.recording import SUPERSEDED, record
from rules.judge.state import (
    MAX_PENDING_EVENTS,
    Judging,
    NodeState,
    PendingEvent,
    close_where,
    find_gpu,
    identify,
)

WAITING_XIDS: Final = frozenset({13, 74, 94, 95, *range(144, 151), RECOVERY_ACTION_XID})
"""The Xids whose line says more than their number."""

_XID_OF_EVENT: Final = {
    EventKind.DOUBLE_BIT_ECC: 48,
    EventKind.SINGLE_BIT_STORM: 92,
    EventKind.DRAM_RETIREMENT: 63,
    EventKind.DRAM_RETIREMENT_FAILURE: 64,
    EventKind.NON_FATAL_POISON: 94,
    EventKind.FATAL_POISON: 95,
}
"""The Xid that the driver prints for the same thing."""

_READ_LATE_S: Final = 20.0
"""syslog(2) is read every 15 s. Source: gpuward."""

UNAVAILABLE: Final = "GPUUnavailable"


def judge_event(on: Judging, event: GpuEvent) -> Judging:
    """Take one pushed event."""
    who = identify(on.state, event.gpu, event.pci)
    if event.kind is EventKind.RECOVERY_ACTION:
        return hint_to_look(on, who)
    if event.kind is EventKind.GPU_UNAVAILABLE:
        if on.state.standing_down or not any(who):
            return on
        on = hint_to_look(on, who, unavailable=True)
        return _judge_unavailable(on, event, who)
    xid = event.data if event.kind is EventKind.XID else _XID_OF_EVENT.get(event.kind)
    if xid is None or not 0 < xid < 1 << 16:
        return on
    if xid == RECOVERY_ACTION_XID:
        on = hint_to_look(on, who)
    return _judge_number(on, event, xid)


def mature_events(on: Judging) -> Judging:
    """Judge the events whose kernel line did not come, and forget those that have no more to
    wait for.
    """
    delay_s = on.thresholds["ContextDelay"].value
    apart_s = on.thresholds["IncidentGrouping"].value
    kept, due = [], []
    for event in on.state.pending_events:
        # Further away than the longest wait: the clock went back, so the event waited long enough.
        matures = not event.judged and not on.now < event.due_at <= on.now + delay_s
        if matures:
            due.append(event.finding)
        if on.now - apart_s - _READ_LATE_S <= event.due_at <= on.now + delay_s:
            kept.append(replace(event, judged=True) if matures else event)
    if len(kept) == len(on.state.pending_events) and not due:
        return on
    on = on.then(replace(on.state, pending_events=tuple(kept)))
    for finding in due:
        on = record(on, finding)
    return on


def take_event(
    on: Judging, xid: int, who: Named, at: float
) -> tuple[Judging, PendingEvent | None]:
    """Take the events that a kernel line of the time `at` explains: of each kind the oldest.

    Returns one that has been judged, else any of them.
    """
    apart_s = on.thresholds["IncidentGrouping"].value
    taken: dict[EventKind, PendingEvent] = {}
    for event in on.state.pending_events:
        near = min(abs(on.now - event.due_at), abs(at - event.finding.at)) <= apart_s
        if event.finding.xid == xid and _same(event.finding, who) and near:
            taken.setdefault(event.kind, event)
    if not taken:
        return on, None
    left = tuple(e for e in on.state.pending_events if taken.get(e.kind) is not e)
    on = on.then(replace(on.state, pending_events=left))
    return on, max(taken.values(), key=lambda event: event.judged)


def hint_to_look(on: Judging, who: Named, *, unavailable: bool = False) -> Judging:
    """Let what is read of this GPU next count at once; the driver said that something changed."""
    view = find_gpu(on.state, *who)
    if view is None:
        return on
    lost_at = on.now if unavailable else view.unavailable_at
    return on.with_gpu(replace(view, told_at=on.now, unavailable_at=lost_at))


def _judge_unavailable(on: Judging, event: GpuEvent, who: Named) -> Judging:
    """Lost, or a fatal time-out that a reset heals: no proof of either until the GPU was read."""
    finding = Finding(
        at=event.at,
        row=REASONS[UNAVAILABLE],
        gpu=who.uuid,
        pci=who.pci,
        source=SourceName.NVML,
        evidence="NVML event: GPU unavailable",
        needs_present=True,
    )
    return record(on, finding)


def name_unavailable(on: Judging) -> Judging:
    """Once it is known why a GPU is unavailable, that it is so is no finding of its own."""
    named = [
        incident
        for incident in on.state.incidents
        if incident.active and incident.row.severity is Severity.FATAL
    ]
    return close_where(
        on,
        lambda i: i.row.reason == UNAVAILABLE and any(fatal.shares_gpu(i) for fatal in named),
        SUPERSEDED,
    )


def _judge_number(on: Judging, event: GpuEvent, xid: int) -> Judging:
    who = identify(on.state, event.gpu, event.pci)
    mig = None
    if event.gi is not None or event.ci is not None:
        mig = MigInstance(gi=event.gi, ci=event.ci)
    finding = Finding(
        at=event.at,
        row=reason_for_xid(xid, driver=on.state.branch),
        gpu=who.uuid,
        pci=who.pci,
        xid=xid,
        source=SourceName.NVML,
        evidence=f"NVML event: {event.kind.value} {event.data}",
        mig=mig,
    )
    printed = _line_was_there(on.state, finding, on.thresholds["IncidentGrouping"].value)
    if printed is not None:
        # The line said more than the number does: its row stands.
        finding = replace(finding, row=printed.row, asks=printed.asks, counts=False, evidence="")
        return record(on, finding)
    others = (other for other in on.state.pending_events if other.kind is not event.kind)
    if any(other.finding.xid == xid and _same(other.finding, who) for other in others):
        finding = replace(finding, counts=False)  # the driver tells of the same thing in two ways
    at_once = event.kind is EventKind.XID and xid not in WAITING_XIDS
    wait_s = 0.0 if at_once else on.thresholds["ContextDelay"].value
    pending = PendingEvent(
        kind=event.kind, due_at=on.now + wait_s, finding=finding, judged=at_once
    )
    kept = (*on.state.pending_events, pending)[-MAX_PENDING_EVENTS:]
    on = on.then(replace(on.state, pending_events=kept))
    return record(on, finding) if at_once else on


def _line_was_there(state: NodeState, finding: Finding, within_s: float) -> Member | None:
    """What the kernel log just said of the same Xid."""
    return next(
        (
            member
            for incident in state.incidents
            if incident.active
            and incident.concerns(finding.who)
            and SourceName.KERNEL_LOG in incident.sources
            and abs(finding.at - incident.last_seen) <= within_s
            for member in incident.members
            if member.xid == finding.xid
        ),
        None,
    )


def _same(finding: Finding, who: Named) -> bool:
    if who.uuid and finding.gpu:
        return who.uuid == finding.gpu
    return bool(who.pci) and who.pci == finding.pci
