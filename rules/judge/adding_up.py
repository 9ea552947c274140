"""Small things add up: states that flap, repairs that do not last, events over a day's budget.

`judge` calls `add_up` after every observation, with the state before it. The counts lie in the
`ledger`; what a person repaired is counted anew.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from rules.catalog.reason import Action, ClosesKind, Severity
from rules.catalog.reasons import REASONS
from rules.judge.burst import REASON_LOST, is_lost, settled, stronger_action
from rules.judge.closing import NOT_CONFIRMED
from rules.judge.facts.presence import LOST_POLL, MISMATCH
from rules.judge.facts.readings import LINK_ERRORS
from rules.judge.facts.standing import record_standing
from rules.judge.incident import (
    Finding,
    Incident,
    IncidentPhase,
    Named,
    held_still,
    with_conclusion,
)
from rules.judge.observation import SourceName
from rules.judge.recording import BEFORE_START, CONTAINED_ERROR, surroundings
from rules.judge.state import Judging, NodeState, close_where, find_gpu
from rules.text.printable import count

_CLOSED: Final = "closed "
_RESET: Final = "reset after "
_REBOOT: Final = "restart after "
_REPAIRED_BY: Final = {ClosesKind.RESET.value: _RESET, ClosesKind.REBOOT.value: _REBOOT}
_DAY_S: Final = 86_400
_HOUR_S: Final = 3600
_WINDOW: Final = "BudgetWindow"
_REPAIRABLE: Final = (Action.RESET_GPU, Action.RESTART_NODE, Action.POWER_CYCLE)


class Budget(NamedTuple):
    """What may happen so often in `BudgetWindow`; the reason names the threshold, too.

    While one of `told_by` stands, that tells of the same trouble, and more.
    """

    what: str
    reason: str
    source: SourceName
    told_by: tuple[str, ...] = ()


BUDGETS: Final = (
    Budget(CONTAINED_ERROR, "ContainedErrorsOften", SourceName.KERNEL_LOG),
    Budget(LINK_ERRORS, "NVLinkErrorsOften", SourceName.NVML, ("NVLinkErrorRate",)),
    Budget(LOST_POLL, "GPULostOften", SourceName.NVML, (REASON_LOST, MISMATCH)),
)

_BY_REASON: Final = {budget.reason: budget for budget in BUDGETS}
_BUDGETS: Final = {budget.what: budget for budget in BUDGETS}


def add_up(before: NodeState, on: Judging) -> Judging:
    """Note what ended or came again, and draw the conclusions."""
    if on.state.incidents is not before.incidents:
        on = _endings(before, on)
    if on.state.ledger is not before.ledger:
        on = _over_budget(before, on)
    on = _within_budget_again(on)
    return _next_rung(before, on)


def _next_rung(before: NodeState, on: Judging) -> Judging:
    """Raise what is recommended where lighter repairs of the same reason did not last."""
    if on.state.incidents is before.incidents:
        return on
    known = {id(incident) for incident in before.incidents}
    changed = [
        _floored(on, incident)
        if incident.active
        and incident.phase is IncidentPhase.SETTLED
        and id(incident) not in known
        else incident
        for incident in on.state.incidents
    ]
    same = all(new is old for new, old in zip(changed, on.state.incidents, strict=True))
    return on if same else on.then(replace(on.state, incidents=tuple(changed)))


def _floored(on: Judging, incident: Incident) -> Incident:
    row = incident.row
    override = on.thresholds.reasons.get(row.reason)
    fixed = override is not None and override.action is not None
    if row.severity is Severity.INFO or row.action not in _REPAIRABLE or fixed:
        return incident
    reboots = _total(on, incident, _REBOOT + row.reason, "RepairWindow")
    resets = _total(on, incident, _RESET + row.reason, "RepairWindow")
    limit = on.thresholds["RepairsThatDidNotLast"].value
    floor = None
    if reboots >= limit:
        floor = Action.REPLACE_NODE
    elif reboots + resets >= limit:
        floor = Action.RESTART_NODE
    if floor is None or floor is incident.floor or not stronger_action(floor, row.action):
        return incident
    days = round(on.thresholds["RepairWindow"].value / _DAY_S)
    tried = f"{count(resets, 'reset')} and {count(reboots, 'restart')}"
    said = f"came again after {tried} within {count(days, 'day')}"
    raised = replace(with_conclusion(incident, said), floor=floor)
    return settled(raised, on.now, surroundings(on.state), on.thresholds)


def _endings(before: NodeState, on: Judging) -> Judging:
    was = {incident.id: incident for incident in before.incidents if incident.active}
    if not any(not incident.active and incident.id in was for incident in on.state.incidents):
        return on
    kept: list[Incident] = []
    for incident in on.state.incidents:
        old = was.get(incident.id)
        if old is None or incident.active:
            kept.append(incident)
        else:
            on, ended = _ended(on, old, incident)
            kept.append(ended)
    return on.then(replace(on.state, incidents=tuple(kept)))


def _ended(on: Judging, old: Incident, incident: Incident) -> tuple[Judging, Incident]:
    """Count an ending; a state that ended too often lately is kept open instead."""
    by, reason = incident.closed_by, incident.row.reason
    if by in _REPAIRED_BY:
        return _note(on, incident, _REPAIRED_BY[by] + reason, "RepairWindow"), incident
    held_at = old.held_at
    unconfirmed = by in (NOT_CONFIRMED, BEFORE_START)
    lately = on.now - incident.last_seen <= on.thresholds["FlapWindow"].value
    lost = unconfirmed and lately and any(map(is_lost, incident.members))
    if by != ClosesKind.STATE and not lost and not (held_at and unconfirmed):
        return on, incident
    if held_at is not None:
        still = held_still(old, on.now, on.thresholds) and on.state.node.repaired_at <= held_at
        return on, (_kept_open(on, old, incident, held_at) if still else incident)
    on = _note(on, incident, _CLOSED + reason, "FlapWindow")
    closings = _total(on, incident, _CLOSED + reason, "FlapWindow")
    if closings < on.thresholds["FlapClosings"].value:
        return on, incident
    hours = round(on.thresholds["FlapWindow"].value / _HOUR_S)
    said = f"ended {closings} times within {hours} h and is kept open until it stays away as long"
    return on, with_conclusion(_kept_open(on, old, incident, on.now), said)


def _kept_open(on: Judging, old: Incident, incident: Incident, held_at: float) -> Incident:
    opened = replace(
        incident,
        active=True,
        phase=old.phase,
        closed_at=0.0,
        closed_by="",
        held_at=held_at,
        due_at=held_at + on.thresholds["FlapWindow"].value,
    )
    return (
        settled(opened, on.now, surroundings(on.state), on.thresholds)
        if old.phase is IncidentPhase.PRESENT
        else opened
    )


def _over_budget(before: NodeState, on: Judging) -> Judging:
    hours = round(on.thresholds[_WINDOW].value / _HOUR_S)
    for (owner, what), entry in on.state.ledger.items():
        budget = _BUDGETS.get(what)
        if budget is None or before.ledger.get((owner, what)) is entry:
            continue
        who = _named(on.state, owner)
        seen = on.times((owner, *who), what, _WINDOW)
        if seen < on.thresholds[budget.reason].value:
            continue
        active = {i.row.reason for i in on.state.incidents if i.active and i.concerns(who)}
        if budget.reason not in active and not active.isdisjoint(budget.told_by):
            continue
        finding = Finding(
            at=on.now,
            row=REASONS[budget.reason],
            gpu=who.uuid,
            pci=who.pci,
            source=budget.source,
            evidence=f"{what}: {count(seen, 'time')} within {hours} h",
            counts=False,
        )
        on = record_standing(on, finding)
    return on


def _within_budget_again(on: Judging) -> Judging:
    """A budget's finding that closes on its state does so after a window without an event."""
    over = {
        incident.id
        for incident in on.state.incidents
        if incident.active
        and (budget := _BY_REASON.get(incident.row.reason)) is not None
        and incident.row.closes_on.kind is ClosesKind.STATE
        and not _total(on, incident, budget.what, _WINDOW)
    }
    return close_where(on, lambda i: i.id in over, ClosesKind.STATE) if over else on


def _note(on: Judging, incident: Incident, what: str, window: str) -> Judging:
    who = Named(next(iter(incident.gpus), ""), next(iter(incident.pci), ""))
    return on.note(who, what, on.now, window)


def _total(on: Judging, incident: Incident, what: str, window: str) -> int:
    return on.times((*incident.gpus[:1], *incident.pci[:1]), what, window)


def _named(state: NodeState, owner: str) -> Named:
    is_uuid = owner.startswith("GPU-")
    view = find_gpu(state, owner, owner)
    return view.who if view else Named(owner if is_uuid else "", "" if is_uuid else owner)
