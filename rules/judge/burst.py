"""What an incident means, given all its members and the driver's answer.

Called by `judge.recording` whenever an incident gains a member, an answer or time. Pure: the same
members and answer always give the same row, so the order in which they came never matters.
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
"""A double-bit error whose row was remapped and whose damage was contained to one program."""

SECURITY_FAULT_XID: Final = 110
"""The GPU shuts itself off; only a cold reset ends that. Source: open GPU kernel modules
595.45.04.
"""

_EXPLAINED: Final = frozenset({48, 63, 171, 172})
"""What is printed beside a 94 or 95 about the same memory error. Source: open GPU kernel modules.
"""

_DETAILED: Final = frozenset({48, 94, 95})
_DETAILS: Final = frozenset({171, 172})
"""Where the memory error lies that the other line judges. Source: NVIDIA Xid catalog."""

_CONSEQUENCES: Final = frozenset({43, 45})
"""A program's channels end because of what came before. Source: NVIDIA Xid catalog."""

FABRIC_XIDS: Final = frozenset(range(145, 151))
_LINKS_BACK: Final = reason.closes_on_state(Signal.NVLINK_STATES, 3, 5)

DRAIN_P2P: Final = 3

_CLOSES_ON: Final = {Action.RESTART_NODE: reason.ON_REBOOT, Action.REPLACE_NODE: reason.BY_HUMAN}
"""What ends an incident whose lighter repairs did not last."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What about the node changes a meaning: driver branch, virtual machine, NVLink or not."""

    branch: int | None = None
    virtual: bool = False
    nvlink: bool = True


def being_judged(row: Reason) -> Reason:
    """The row as it is published while its severity is not yet known."""
    return replace(row, severity=Severity.INFO, level=Level.REPORT, action=Action.NONE)


def unconfirmed(row: Reason) -> Reason:
    """The row of a past fault while nothing can see the present: at most Degraded, Report."""
    return replace(row, severity=min(row.severity, Severity.DEGRADED), level=Level.REPORT)


def row_for_action(value: int, around: Surroundings) -> Reason:
    """The driver's recovery action as a row; draining P2P traffic asks for NVLink."""
    row = reasons.reason_for_recovery_action(value, around.branch)
    if value == DRAIN_P2P and not around.nvlink:
        return replace(row, severity=Severity.DEGRADED, level=Level.REPORT)
    return row


def judged_row(
    members: Sequence[Member], answer: int | None, around: Surroundings, thresholds: Thresholds
) -> Reason:
    """The full row of a burst, once nothing more is waited for.

    The strongest member leads. The driver's answer replaces the catalog's word for an Xid that
    this branch links to Xid 154, and can only raise it for others; that it asks for nothing says
    something about `ANSWERED_XIDS` alone. A lost GPU needs at least a restart of the node, one
    that its own security shut down a power cycle, and in a virtual machine another node.
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
        row = replace(row, closes_on=reason.ON_RESET)  # silence ends a record, never a fault
    return row


def settled(
    incident: Incident, now: float, around: Surroundings, thresholds: Thresholds
) -> Incident:
    """Work out phase and row of an active incident at `now`."""
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
            if incident.unasked:  # the reading that confirms or denies the first one is due
                due_at += thresholds["AnswerDelay"].value / 2
        elif _may_be_contained(incident):
            due_at = incident.opened_at + thresholds["IncidentGrouping"].value
        if incident.opened_at <= now < due_at:  # a clock that went back waits no longer
            return _in_phase(incident, IncidentPhase.CONTEXT, being_judged(full), due_at)
    return _in_phase(incident, IncidentPhase.SETTLED, full)


def _in_phase(
    incident: Incident, phase: IncidentPhase, row: Reason, due_at: float | None = None
) -> Incident:
    """The incident itself where it is so already: what is the same object needs no second
    check.
    """
    if (incident.phase, incident.due_at, incident.row) == (phase, due_at, row):
        return incident
    cut = incident.cut and phase is not IncidentPhase.SETTLED
    return replace(incident, phase=phase, due_at=due_at, row=row, cut=cut)


def no_need(row: Reason) -> Reason:
    """The row of an Xid that the driver, asked for its answer, saw no need to act upon."""
    return replace(row, severity=Severity.DEGRADED, level=Level.REPORT, action=Action.INVESTIGATE)


def asks_driver(incident: Incident, around: Surroundings) -> bool:
    """Whether nothing but the driver's answer can say how severe this is."""
    severe = [member for member in incident.members if member.row.severity is not Severity.INFO]
    return bool(severe) and all(_is_answered(member, around) for member in severe)


def _is_answered(member: Member, around: Surroundings) -> bool:
    entry = catalog().get(member.xid) if member.xid in ANSWERED_XIDS else None
    return entry is not None and entry.linked(around.branch)


def stronger_action(one: Action, other: Action) -> bool:
    """Whether the first repair is the heavier one."""
    return reason.ACTIONS.index(one) > reason.ACTIONS.index(other)


def _raised_to(floor: Action | None, row: Reason) -> Reason:
    if floor is None or row.severity is Severity.INFO or not stronger_action(floor, row.action):
        return row
    return replace(row, action=floor, closes_on=_CLOSES_ON.get(floor, row.closes_on))


def _of_many(incident: Incident, row: Reason) -> Reason:
    """The row of what many GPUs share: with a fabric that fails them all the node takes no new
    work.

    What is harmless on one GPU is harmless on many. Errors of links end when the links are back,
    unless a reset is asked for.
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
        return False  # judged before: more of the same must not make it harmless again
    classes = {member.row.klass for member in incident.members}
    severe = any(member.row.severity is not Severity.INFO for member in incident.members)
    return severe and ReasonClass.NEEDS_CONTEXT in classes and ReasonClass.DECISIVE not in classes


def _may_be_contained(incident: Incident) -> bool:
    """Whether the lines that would make a double-bit error a contained one may still come."""
    spoken = any(member.asks is not None for member in incident.members)
    return DOUBLE_BIT_XID in incident.xids and not spoken and not set(incident.xids) >= CONTAINED


def _lead(members: Sequence[Member]) -> Member:
    members = _spoken(members)
    xids = {member.xid for member in members}
    decisive = any(member.row.klass is ReasonClass.DECISIVE for member in members)
    if xids >= CONTAINED and not decisive:
        return Member(reason_for_xid(48, contained=True), 48)
    causes = [member for member in members if member.xid not in _CONSEQUENCES] or members
    return max(
        causes,
        key=lambda m: (reason.strength(m.row), m.row.reason, m.row.closes_on == reason.ON_REBOOT),
    )


def _spoken(members: Sequence[Member]) -> Sequence[Member]:
    """Where lines say themselves what is needed, the numbers that they explain say nothing
    more.
    """
    spoken = frozenset(member.xid for member in members if member.asks is not None)
    if not spoken:
        detailed = any(member.xid in _DETAILED for member in members)
        return [m for m in members if m.xid not in _DETAILS] if detailed else members
    silent = spoken | _EXPLAINED
    return [member for member in members if member.asks is not None or member.xid not in silent]


def _answered(xid: int | None, row: Reason, answer: int, around: Surroundings) -> Reason:
    """The answer alone where this branch links the Xid to it, else the stronger of the two."""
    entry = catalog().get(xid) if xid is not None else None
    said = row_for_action(answer, around)
    if row.reason in reasons.RECOVERY_REASONS:
        return said  # the latest value wins, and a reason must say what its action does
    linked = entry is not None and entry.linked(around.branch)
    if not linked and reason.strength(said) <= reason.strength(row):
        return row
    return like(row, said)


def _at_least(floor: Action, row: Reason, asked: Reason) -> Reason:
    """No answer makes a lost GPU less than lost; `asked` is what people and catalog say of it."""
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
