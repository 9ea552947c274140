"""Small things add up: states that flap, repairs that do not last, events over a day's budget.

`judge` calls `add_up` after every observation, with the state before it. The counts lie in the
`ledger`; what a person repaired is counted anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from rules.catalog.reason import Action, ClosesKind, Severity
from rules.catalog.reasons import REASONS
from rules.catalog.thresholds import Rules
from rules.judge import ledger
from rules.judge.burst import REASON_LOST, is_lost, settled, stronger_action
from rules.judge.closing import NOT_CONFIRMED, close_where
from rules.judge.facts.presence import LOST_POLL, MISMATCH
from rules.judge.facts.readings import LINK_ERRORS
from rules.judge.incident import (
    CAME_AGAIN,
    Finding,
    Incident,
    IncidentPhase,
    held_still,
    with_conclusion,
)
from rules.judge.observation import SourceName
from rules.judge.recording import BEFORE_START, CONTAINED_ERROR, record, surroundings
from rules.judge.state import NodeState, find_gpu

_CLOSED: Final = "closed "
_RESET: Final = "reset after "
_REBOOT: Final = "restart after "
_REPAIRED_BY: Final = {ClosesKind.RESET.value: _RESET, ClosesKind.REBOOT.value: _REBOOT}
_DAY_S: Final = 86_400
_HOUR_S: Final = 3600
_REPAIRABLE: Final = (Action.RESET_GPU, Action.RESTART_NODE, Action.POWER_CYCLE)


class Budget(NamedTuple):
    """What may happen so often a day; the reason names the threshold, too.

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

_WHAT: Final = {budget.reason: budget.what for budget in BUDGETS}
_BUDGETS: Final = {budget.what: budget for budget in BUDGETS}


def add_up(before: NodeState, state: NodeState, now: float, rules: Rules) -> NodeState:
    """Note what ended or came again, and draw the conclusions."""
    if state.incidents is not before.incidents:
        state = _endings(before, state, now, rules)
    if state.ledger is not before.ledger:
        state = _over_budget(before, state, now, rules)
    state = _within_budget_again(state, now, rules)
    return _next_rung(before, state, now, rules)


def _next_rung(before: NodeState, state: NodeState, now: float, rules: Rules) -> NodeState:
    """Raise what is recommended where lighter repairs of the same reason did not last."""
    if state.incidents is before.incidents:
        return state
    known = {id(incident) for incident in before.incidents}
    changed = [
        _floored(state, incident, now, rules)
        if incident.active
        and incident.phase is IncidentPhase.SETTLED
        and id(incident) not in known
        else incident
        for incident in state.incidents
    ]
    same = all(new is old for new, old in zip(changed, state.incidents, strict=True))
    return state if same else replace(state, incidents=tuple(changed))


def _floored(state: NodeState, incident: Incident, now: float, rules: Rules) -> Incident:
    row = incident.row
    override = rules.reasons.get(row.reason)
    fixed = override is not None and override.action is not None
    if row.severity is Severity.INFO or row.action not in _REPAIRABLE or fixed:
        return incident
    reboots = _total(state, incident, _REBOOT + row.reason, "RepairWindow", now, rules)
    resets = _total(state, incident, _RESET + row.reason, "RepairWindow", now, rules)
    limit = rules["RepairsThatDidNotLast"].value
    floor = None
    if reboots >= limit:
        floor = Action.REPLACE_NODE
    elif reboots + resets >= limit:
        floor = Action.RESTART_NODE
    if floor is None or floor is incident.floor or not stronger_action(floor, row.action):
        return incident
    days = round(rules["RepairWindow"].value / _DAY_S)
    said = f"{CAME_AGAIN} {resets} resets and {reboots} restarts within {days} days"
    raised = replace(with_conclusion(incident, said), floor=floor)
    return settled(raised, now, surroundings(state), rules)


def _endings(before: NodeState, state: NodeState, now: float, rules: Rules) -> NodeState:
    was = {incident.id: incident for incident in before.incidents if incident.active}
    kept: list[Incident] = []
    for incident in state.incidents:
        old = was.get(incident.id)
        if old is None or incident.active:
            kept.append(incident)
        else:
            state, ended = _ended(state, old, incident, now, rules)
            kept.append(ended)
    return replace(state, incidents=tuple(kept))


def _ended(
    state: NodeState, old: Incident, incident: Incident, now: float, rules: Rules
) -> tuple[NodeState, Incident]:
    """Count an ending; a state that ended too often lately is kept open instead."""
    by, reason = incident.closed_by, incident.row.reason
    if by in _REPAIRED_BY:
        return _note(
            state, incident, _REPAIRED_BY[by] + reason, "RepairWindow", now, rules
        ), incident
    held_at = old.held_at
    unconfirmed = by in (NOT_CONFIRMED, BEFORE_START)
    lately = now - incident.last_seen <= rules["FlapWindow"].value
    lost = unconfirmed and lately and any(map(is_lost, incident.members))
    if by != ClosesKind.STATE and not lost and not (held_at and unconfirmed):
        return state, incident
    if held_at is not None:
        still = held_still(old, now, rules) and state.node.repaired_at <= held_at
        return state, (
            _kept_open(state, old, incident, held_at, now, rules) if still else incident
        )
    state = _note(state, incident, _CLOSED + reason, "FlapWindow", now, rules)
    closings = _total(state, incident, _CLOSED + reason, "FlapWindow", now, rules)
    if closings < rules["FlapClosings"].value:
        return state, incident
    hours = round(rules["FlapWindow"].value / _HOUR_S)
    said = f"ended {closings} times within {hours} h and is kept open until it stays away as long"
    return state, with_conclusion(_kept_open(state, old, incident, now, now, rules), said)


def _kept_open(
    state: NodeState,
    old: Incident,
    incident: Incident,
    held_at: float,
    now: float,
    rules: Rules,
) -> Incident:
    opened = replace(
        incident,
        active=True,
        phase=old.phase,
        closed_at=0.0,
        closed_by="",
        held_at=held_at,
        due_at=held_at + rules["FlapWindow"].value,
    )
    return (
        settled(opened, now, surroundings(state), rules)
        if old.phase is IncidentPhase.PRESENT
        else opened
    )


def _over_budget(before: NodeState, state: NodeState, now: float, rules: Rules) -> NodeState:
    for (owner, what), entry in state.ledger.items():
        budget = _BUDGETS.get(what)
        if budget is None or before.ledger.get((owner, what)) is entry:
            continue
        gpu, pci = _names(state, owner)
        seen = _sum(state, (owner, gpu, pci), what, "BudgetWindow", now, rules)
        if seen < rules[budget.reason].value:
            continue
        active = {i.row.reason for i in state.incidents if i.active and i.concerns(gpu, pci)}
        known = budget.reason in active
        if not known and not active.isdisjoint(budget.told_by):
            continue
        finding = Finding(
            at=now,
            row=REASONS[budget.reason],
            gpu=gpu,
            pci=pci,
            source=budget.source,
            evidence="" if known else f"{what}: {seen} times within 24 h",
            counts=False,
        )
        state = record(state, finding, now, rules)
    return state


def _within_budget_again(state: NodeState, now: float, rules: Rules) -> NodeState:
    """A budget's finding that closes on its state does so after a day without a single event."""
    over = {
        incident.id
        for incident in state.incidents
        if incident.active
        and (what := _WHAT.get(incident.row.reason)) is not None
        and incident.row.closes_on.kind is ClosesKind.STATE
        and not _total(state, incident, what, "BudgetWindow", now, rules)
    }
    return close_where(state, lambda i: i.id in over, now, ClosesKind.STATE) if over else state


def _note(
    state: NodeState, incident: Incident, what: str, window: str, now: float, rules: Rules
) -> NodeState:
    owner = ledger.whose(next(iter(incident.gpus), ""), next(iter(incident.pci), ""))
    noted = ledger.noted(state.ledger, owner, what, now, rules[window].value)
    return replace(state, ledger=noted)


def _total(
    state: NodeState, incident: Incident, what: str, window: str, now: float, rules: Rules
) -> int:
    names = (*incident.gpus[:1], *incident.pci[:1]) or (ledger.NODE,)
    return _sum(state, names, what, window, now, rules)


def _sum(
    state: NodeState, names: tuple[str, ...], what: str, window: str, now: float, rules: Rules
) -> int:
    since = max(now - rules[window].value, state.node.repaired_at)
    return ledger.total(state.ledger, names, what, since, now)


def _names(state: NodeState, owner: str) -> tuple[str, str]:
    view = find_gpu(state, owner, owner)
    if view is not None:
        return view.seen.uuid, view.pci
    return (owner, "") if owner.startswith("GPU-") else ("", owner)
