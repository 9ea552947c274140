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
from rules.judge.judging import Judging, close_where
from rules.judge.observation import EventKind, GpuEvent, SourceName
from rules.judge.recording import SUPERSEDED, record
from rules.judge.state import (
    MAX_PENDING_EVENTS,
    NodeState,
    PendingEvent,
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
    """Judge the events whose kernel line did not come."""
    longest_s = on.thresholds["ContextDelay"].value
    # Further away than the whole delay: the clock went back, so the event waited long enough.
    left = tuple(p for p in on.state.pending_events if on.now < p.due_at <= on.now + longest_s)
    due = [pending for pending in on.state.pending_events if pending not in left]
    if not due:
        return on
    on = on.then(replace(on.state, pending_events=left))
    for pending in due:
        on = record(on, pending.finding)
    return on


def forget_event(state: NodeState, xid: int, who: Named) -> tuple[NodeState, bool]:
    """Drop the waiting events that this kernel line explains; says whether there were any."""
    left = tuple(
        pending
        for pending in state.pending_events
        if pending.finding.xid != xid or not _same(pending.finding, who)
    )
    if len(left) == len(state.pending_events):
        return state, False
    return replace(state, pending_events=left), True


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
    wait_s = on.thresholds["ContextDelay"].value
    printed = _line_was_there(on.state, finding, wait_s)
    if printed is not None:
        # The line said more than the number does: its row stands.
        finding = replace(finding, row=printed.row, asks=printed.asks, counts=False, evidence="")
        return record(on, finding)
    if event.kind is EventKind.XID and xid not in WAITING_XIDS:
        return record(on, finding)
    pending = (*on.state.pending_events, PendingEvent(due_at=on.now + wait_s, finding=finding))
    return on.then(replace(on.state, pending_events=pending[-MAX_PENDING_EVENTS:]))


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
