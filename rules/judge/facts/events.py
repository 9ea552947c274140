"""Judge what the driver pushes: an event is a hint to look, and carries no more than an Xid's
number.

Called by `judge` for each NVML event and for time passing. Where the number alone does not
decide, the event waits for its kernel line; the two together are one sighting. What an event says
of recovery action and presence is read from the GPU: the event only makes that reading count at
once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.api.health import MigInstance
from rules.catalog.reason import Severity
from rules.catalog.reasons import REASONS
from rules.catalog.thresholds import Rules
from rules.catalog.xid import RECOVERY_ACTION_XID, reason_for_xid
from rules.judge.closing import close_where
from rules.judge.incident import Finding, Member
from rules.judge.observation import EventKind, GpuEvent, SourceName
from rules.judge.recording import SUPERSEDED, record
from rules.judge.state import (
    MAX_PENDING_EVENTS,
    NodeState,
    PendingEvent,
    find_gpu,
    identify,
    with_gpu,
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


def judge_event(state: NodeState, event: GpuEvent, now: float, rules: Rules) -> NodeState:
    """Take one pushed event."""
    gpu, pci = identify(state, event.gpu, event.pci)
    if event.kind is EventKind.RECOVERY_ACTION:
        return hint_to_look(state, gpu, pci, now)
    if event.kind is EventKind.GPU_UNAVAILABLE:
        if state.standing_down or not (gpu or pci):
            return state
        state = hint_to_look(state, gpu, pci, now, unavailable=True)
        return _judge_unavailable(state, event, gpu, pci, now, rules)
    xid = event.data if event.kind is EventKind.XID else _XID_OF_EVENT.get(event.kind)
    if xid is None or not 0 < xid < 1 << 16:
        return state
    if xid == RECOVERY_ACTION_XID:
        state = hint_to_look(state, gpu, pci, now)
    return _judge_number(state, event, xid, now, rules)


def mature_events(state: NodeState, now: float, rules: Rules) -> NodeState:
    """Judge the events whose kernel line did not come."""
    longest_s = rules["ContextDelay"].value
    # Further away than the whole delay: the clock went back, so the event waited long enough.
    left = tuple(p for p in state.pending_events if now < p.due_at <= now + longest_s)
    due = [pending for pending in state.pending_events if pending not in left]
    if not due:
        return state
    state = replace(state, pending_events=left)
    for pending in due:
        state = record(state, pending.finding, now, rules)
    return state


def forget_event(state: NodeState, xid: int, gpu: str, pci: str) -> tuple[NodeState, bool]:
    """Drop the waiting events that this kernel line explains; says whether there were any."""
    left = tuple(
        pending
        for pending in state.pending_events
        if pending.finding.xid != xid or not _same(pending.finding, gpu, pci)
    )
    if len(left) == len(state.pending_events):
        return state, False
    return replace(state, pending_events=left), True


def hint_to_look(
    state: NodeState, gpu: str, pci: str, now: float, *, unavailable: bool = False
) -> NodeState:
    """Let what is read of this GPU next count at once; the driver said that something changed."""
    view = find_gpu(state, gpu, pci)
    if view is None:
        return state
    lost_at = now if unavailable else view.unavailable_at
    return with_gpu(state, replace(view, told_at=now, unavailable_at=lost_at))


def _judge_unavailable(
    state: NodeState, event: GpuEvent, gpu: str, pci: str, now: float, rules: Rules
) -> NodeState:
    """Lost, or a fatal time-out that a reset heals: no proof of either until the GPU was read."""
    finding = Finding(
        at=event.at,
        row=REASONS[UNAVAILABLE],
        gpu=gpu,
        pci=pci,
        source=SourceName.NVML,
        evidence="NVML event: GPU unavailable",
        needs_present=True,
    )
    return record(state, finding, now, rules)


def name_unavailable(state: NodeState, now: float) -> NodeState:
    """Once it is known why a GPU is unavailable, that it is so is no finding of its own."""
    named = [
        incident
        for incident in state.incidents
        if incident.active and incident.row.severity is Severity.FATAL
    ]
    return close_where(
        state,
        lambda i: i.row.reason == UNAVAILABLE and any(fatal.shares_gpu(i) for fatal in named),
        now,
        SUPERSEDED,
    )


def _judge_number(
    state: NodeState, event: GpuEvent, xid: int, now: float, rules: Rules
) -> NodeState:
    gpu, pci = identify(state, event.gpu, event.pci)
    mig = None
    if event.gi is not None or event.ci is not None:
        mig = MigInstance(gi=event.gi, ci=event.ci)
    finding = Finding(
        at=event.at,
        row=reason_for_xid(xid, driver=state.branch),
        gpu=gpu,
        pci=pci,
        xid=xid,
        source=SourceName.NVML,
        evidence=f"NVML event: {event.kind.value} {event.data}",
        mig=mig,
    )
    wait_s = rules["ContextDelay"].value
    printed = _line_was_there(state, finding, wait_s)
    if printed is not None:
        # The line said more than the number does: its row stands.
        finding = replace(finding, row=printed.row, asks=printed.asks, counts=False, evidence="")
        return record(state, finding, now, rules)
    if event.kind is EventKind.XID and xid not in WAITING_XIDS:
        return record(state, finding, now, rules)
    pending = (*state.pending_events, PendingEvent(due_at=now + wait_s, finding=finding))
    return replace(state, pending_events=pending[-MAX_PENDING_EVENTS:])


def _line_was_there(state: NodeState, finding: Finding, within_s: float) -> Member | None:
    """What the kernel log just said of the same Xid."""
    return next(
        (
            member
            for incident in state.incidents
            if incident.active
            and incident.concerns(finding.gpu, finding.pci)
            and SourceName.KERNEL_LOG in incident.sources
            and abs(finding.at - incident.last_seen) <= within_s
            for member in incident.members
            if member.xid == finding.xid
        ),
        None,
    )


def _same(finding: Finding, gpu: str, pci: str) -> bool:
    if gpu and finding.gpu:
        return gpu == finding.gpu
    return bool(pci) and pci == finding.pci
