"""The row of an incident, from its members and the driver's recovery action.

The same members and recovery action always give the same row, in any order.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rules.catalog import reason, reasons
from rules.catalog.reason import Action, ClosesKind, Level, Reason, ReasonClass, Severity
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Thresholds
from rules.catalog.xid import ANSWERED_XIDS, NVLINK_XIDS, catalog, like, reason_for_xid
from rules.judge.incident import Incident, IncidentPhase, Member, Scope

DOUBLE_BIT_XID: Final = 48
CONTAINED: Final = frozenset({DOUBLE_BIT_XID, 63, 94})
"""A double-bit error with a remapped row, contained to one program."""

SECURITY_FAULT_XID: Final = 110
"""The GPU shuts itself off until a cold reset. Source: open GPU kernel modules 595.45.04."""

_EXPLAINED: Final = frozenset({48, 63, 171, 172})
"""Xids printed with a 94 or 95 about the same memory error. Source: open GPU kernel modules."""

_DETAILED: Final = frozenset({48, 94, 95})
_DETAILS: Final = frozenset({171, 172})
"""The location of a memory error that another line reports. Source: NVIDIA Xid catalog."""

_CONSEQUENCES: Final = frozenset({43, 45})
"""A program's channels end because of an earlier error. Source: NVIDIA Xid catalog."""

FABRIC_XIDS: Final = frozenset(range(145, 151))
_LINKS_BACK: Final = reason.closes_on_state(Signal.NVLINK_STATES, 3, 5)

DRAIN_P2P: Final = 3

_CLOSES_ON: Final = {Action.RESTART_NODE: reason.ON_REBOOT, Action.REPLACE_NODE: reason.BY_HUMAN}
"""The evidence that closes an incident after lighter repairs did not last."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the node that change a row: driver branch, virtual machine, NVLink."""

    branch: int | None = None
    virtual: bool = False
    nvlink: bool = True


def being_judged(row: Reason) -> Reason:
    """Return the row to publish while its severity is not yet known."""
    return replace(row, severity=Severity.INFO, level=Level.REPORT, action=Action.NONE)


def unconfirmed(row: Reason) -> Reason:
    """Return the row of a past fault without current data: at most Degraded, Report."""
    return replace(row, severity=min(row.severity, Severity.DEGRADED), level=Level.REPORT)


def row_for_action(value: int, around: Surroundings) -> Reason:
    """Return the row of the driver's recovery action; draining P2P traffic requires NVLink."""
    row = reasons.reason_for_recovery_action(value, around.branch)
    if value == DRAIN_P2P and not around.nvlink:
        return replace(row, severity=Severity.DEGRADED, level=Level.REPORT)
    return row


def judged_row(
    members: Sequence[Member], answer: int | None, around: Surroundings, thresholds: Thresholds
) -> Reason:
    """Return the full row of a burst that is complete.

    The most severe member determines it. The driver's recovery action replaces the row of the
    catalog for an Xid that this branch links to Xid 154, and can only raise it for others. No
    recovery action counts for `ANSWERED_XIDS` only. A lost GPU needs at least a restart of the
    node, after a security fault a power cycle, and in a virtual machine another node.
    """
    lead = _lead(members)
    row = asked = thresholds.apply(lead.row)
    if answer == reasons.NO_ACTION and _is_answered(lead, around):
        row = thresholds.apply(no_need(lead.row))
    elif answer is not None and answer != reasons.NO_ACTION:
        row = _answered(lead.xid, asked, answer, around)
    if any(member.lost for member in members):
        floor = Action.RESTART_NODE
        if any(member.xid == SECURITY_FAULT_XID for member in members):
            floor = Action.POWER_CYCLE
        if around.virtual:
            floor = Action.REPLACE_NODE
        row = _at_least(floor, row, asked)
    if row.severity is not Severity.INFO and row.closes_on.kind is ClosesKind.SILENCE:
        row = replace(row, closes_on=reason.ON_RESET)  # silence closes only Info
    return row


def settled(
    incident: Incident, now: float, around: Surroundings, thresholds: Thresholds
) -> Incident:
    """Return an active incident with its phase and row at `now`."""
    full = judged_row(incident.members, incident.answer, around, thresholds)
    full = _raised_to(incident.floor, full)
    if incident.scope is Scope.NODE and (incident.gpus or incident.pci):
        full = thresholds.apply(_of_many(incident, full))
    if incident.phase is IncidentPhase.PRESENT:
        often = incident.held_at is not None
        return replace(incident, row=unconfirmed(full) if often else being_judged(full))
    if incident.answer is None and _waits(incident):
        due_at = min(
            incident.touched_at + thresholds["ContextDelay"].value,
            incident.opened_at + thresholds["IncidentGrouping"].value,
        )
        if asks_driver(incident, around):
            due_at = incident.opened_at + thresholds["AnswerDelay"].value
            if incident.unasked:  # wait for the second read
                due_at += thresholds["AnswerDelay"].value / 2
        elif _may_be_contained(incident):
            due_at = incident.opened_at + thresholds["IncidentGrouping"].value
        if incident.opened_at <= now < due_at:  # no wait after the clock was set back
            return _in_phase(incident, IncidentPhase.CONTEXT, being_judged(full), due_at)
    return _in_phase(incident, IncidentPhase.SETTLED, full)


def _in_phase(
    incident: Incident, phase: IncidentPhase, row: Reason, due_at: float | None = None
) -> Incident:
    """Return the incident with this phase and row; the same object if nothing changed."""
    if (incident.phase, incident.due_at, incident.row) == (phase, due_at, row):
        return incident
    cut = incident.cut and phase is not IncidentPhase.SETTLED
    return replace(incident, phase=phase, due_at=due_at, row=row, cut=cut)


def no_need(row: Reason) -> Reason:
    """Return the row of an Xid for which the driver requires no recovery action."""
    return replace(row, severity=Severity.DEGRADED, level=Level.REPORT, action=Action.INVESTIGATE)


def asks_driver(incident: Incident, around: Surroundings) -> bool:
    """Return whether the severity depends on the driver's recovery action alone."""
    severe = [member for member in incident.members if member.row.severity is not Severity.INFO]
    return bool(severe) and all(_is_answered(member, around) for member in severe)


def _is_answered(member: Member, around: Surroundings) -> bool:
    entry = catalog().get(member.xid) if member.xid in ANSWERED_XIDS else None
    return entry is not None and entry.linked(around.branch)


def stronger_action(one: Action, other: Action) -> bool:
    """Return whether the first repair is the more disruptive one."""
    return reason.ACTIONS.index(one) > reason.ACTIONS.index(other)


def _raised_to(floor: Action | None, row: Reason) -> Reason:
    if floor is None or row.severity is Severity.INFO or not stronger_action(floor, row.action):
        return row
    return replace(row, action=floor, closes_on=_CLOSES_ON.get(floor, row.closes_on))


def _of_many(incident: Incident, row: Reason) -> Reason:
    """Return the row of an incident of many GPUs; a failed fabric cordons the node.

    Severity Info stays Info. Link errors close when the links are up again, unless a reset is
    required.
    """
    xids = frozenset(incident.xids)
    if row.severity is not Severity.INFO and not xids.isdisjoint(FABRIC_XIDS):
        row = replace(row, level=max(row.level, Level.CORDON))
    if row.severity is Severity.DEGRADED and not xids.isdisjoint(NVLINK_XIDS):
        row = replace(row, closes_on=_LINKS_BACK)
    if row.severity is not Severity.INFO and row.closes_on.kind is ClosesKind.SILENCE:
        row = replace(row, closes_on=reason.ON_RESET)
    return row


def _waits(incident: Incident) -> bool:
    if incident.phase is IncidentPhase.SETTLED and incident.row.severity is not Severity.INFO:
        return False  # more of the same does not lower it to Info again
    classes = {member.row.klass for member in incident.members}
    severe = any(member.row.severity is not Severity.INFO for member in incident.members)
    return severe and ReasonClass.NEEDS_CONTEXT in classes and ReasonClass.DECISIVE not in classes


def _may_be_contained(incident: Incident) -> bool:
    """Return whether lines that show a double-bit error as contained may still come."""
    flagged = any(member.asks is not None for member in incident.members)
    return DOUBLE_BIT_XID in incident.xids and not flagged and not set(incident.xids) >= CONTAINED


def _lead(members: Sequence[Member]) -> Member:
    members = _flagged(members)
    xids = {member.xid for member in members}
    decisive = any(member.row.klass is ReasonClass.DECISIVE for member in members)
    if xids >= CONTAINED and not decisive:
        return Member(reason_for_xid(48, contained=True), 48)
    causes = [member for member in members if member.xid not in _CONSEQUENCES] or members
    return max(
        causes,
        key=lambda m: (reason.strength(m.row), m.row.reason, m.row.closes_on == reason.ON_REBOOT),
    )


def _flagged(members: Sequence[Member]) -> Sequence[Member]:
    """Return the members that count: lines with a recovery flag replace the Xids they explain."""
    flagged = frozenset(member.xid for member in members if member.asks is not None)
    if not flagged:
        detailed = any(member.xid in _DETAILED for member in members)
        return [m for m in members if m.xid not in _DETAILS] if detailed else members
    explained = flagged | _EXPLAINED
    return [member for member in members if member.asks is not None or member.xid not in explained]


def _answered(xid: int | None, row: Reason, answer: int, around: Surroundings) -> Reason:
    """Return the row of the recovery action if this branch links the Xid to it, else the more
    severe one of both.
    """
    entry = catalog().get(xid) if xid is not None else None
    required = row_for_action(answer, around)
    if row.reason in reasons.RECOVERY_REASONS:
        return required  # the latest value wins, and the reason names the action
    linked = entry is not None and entry.linked(around.branch)
    if not linked and reason.strength(required) <= reason.strength(row):
        return row
    return like(row, required)


def _at_least(floor: Action, row: Reason, asked: Reason) -> Reason:
    """Return the row of a lost GPU: not below `asked`, the row of the catalog and the rules."""
    action = (
        row.action if reason.ACTIONS.index(row.action) > reason.ACTIONS.index(floor) else floor
    )
    return replace(
        row,
        severity=max(row.severity, asked.severity),
        level=max(row.level, asked.level),
        action=action,
        closes_on=reason.ON_REBOOT
        if action is floor and row.action is not floor
        else row.closes_on,
    )
