"""Detect patterns over several incidents: a common cause of many GPUs, flapping states, repairs
that do not last, frequent contained errors.

A tray without power, a fabric that restarts or a switch that fails is one incident of the node
with one repair, not eight incidents of its GPUs. The counts are in the ledger and start again
after a repair that an operator reported.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rules.api import health
from rules.catalog import reasons, xid
from rules.catalog.reason import Action, ClosesKind, Severity, strength
from rules.catalog.thresholds import Thresholds
from rules.judge import burst, closing, expected_gpus, recording
from rules.judge.facts import presence, standing
from rules.judge.incident import (
    MAX_LINKS,
    MAX_MEMBERS,
    Finding,
    GpuId,
    Incident,
    IncidentPhase,
    Scope,
    closed,
    held_still,
    replace_all,
    with_conclusion,
)
from rules.judge.observation import SourceName
from rules.judge.state import MAX_GPUS, Judging, NodeState, find_gpu
from rules.text import printable

COMMON: Final = "CommonCause"
FABRIC_FAILED: Final = "FabricStateFailed"


def merge_common(on: Judging) -> Judging:
    """Merge incidents with a common cause into one of scope Node."""
    if not on.state.gpus:
        return on  # none is about known GPUs; a flood of lines skips the checks below
    alike: dict[tuple[str, bool, bool], list[Incident]] = {}
    repaired_at = on.state.node.repaired_at
    for incident in on.state.incidents:
        if incident.active and _may_be_common(on.state, incident):
            # Incidents before a reboot or repair and those after it close separately.
            mended = incident.first_seen < repaired_at
            alike.setdefault((incident.row.reason, incident.rebooted, mended), []).append(incident)
    most = _gpus_here(on.state)
    for group in alike.values():
        if len(group) > 1 and (together := _together(group, most, on.thresholds)):
            on = _merged(on, together)
    return on


def _may_be_common(state: NodeState, incident: Incident) -> bool:
    """Return whether an incident is assessed and about known GPUs.

    Excluded are a wrong GPU count and repeated program errors, which have their own rules, and
    incidents of an NVLink domain, which are one incident already.
    """
    judged = incident.phase is IncidentPhase.SETTLED and incident.held_at is None
    if not judged or incident.row.reason == presence.MISMATCH:
        return False
    if incident.row.severity is Severity.INFO and not burst.FABRIC_XIDS.isdisjoint(incident.xids):
        return False  # ignored by the catalog, on any number of GPUs
    if incident.scope is Scope.DOMAIN and incident.row.reason != FABRIC_FAILED:
        return False
    if not xid.REPEATING_XIDS.isdisjoint(incident.xids):
        return False
    keys = _gpus_of(incident)
    return bool(keys) and all(find_gpu(state, key, key) is not None for key in keys)


def _gpus_of(incident: Incident) -> tuple[str, ...]:
    return incident.gpus or incident.pci


def _gpus_here(state: NodeState) -> int:
    on_bus = len(expected_gpus.gpu_addresses(state.functions, state.excluded))
    return max(len(state.gpus), state.expected.count, on_bus)


def _together(group: Sequence[Incident], most: int, thresholds: Thresholds) -> Sequence[Incident]:
    """Return incidents that began within a minute of each other on at least half of the GPUs."""
    window_s, share = thresholds["CommonCauseWindow"].value, thresholds["CommonCause"].value
    ordered = sorted(group, key=lambda incident: incident.first_seen)
    for first in ordered:
        within = [i for i in ordered if 0 <= i.first_seen - first.first_seen <= window_s]
        gpus = {gpu for incident in within for gpu in _gpus_of(incident)}
        if len(within) > 1 and len(gpus) > 1 and len(gpus) >= share * most:
            return within
    return ()


def _merged(on: Judging, together: Sequence[Incident]) -> Judging:
    """Turn the first incident into one of the node and close the others."""
    first, *others = together
    most_severe = max(together, key=lambda incident: strength(incident.row))
    members = tuple(dict.fromkeys(m for i in (most_severe, *together) for m in i.members))
    home = replace(
        first,
        row=most_severe.row,
        members=members[:MAX_MEMBERS],
        answer=most_severe.answer,
        floor=most_severe.floor,
        scope=Scope.NODE,
        gpus=tuple(dict.fromkeys(g for i in together for g in i.gpus))[:MAX_GPUS],
        pci=tuple(dict.fromkeys(p for i in together for p in i.pci))[:MAX_GPUS],
        mig=None,
        links=tuple(dict.fromkeys(n for i in together for n in i.links))[:MAX_LINKS],
        sources=tuple(dict.fromkeys(s for i in together for s in i.sources))[:8],
        last_seen=max(i.last_seen for i in together),
        touched_at=max(i.touched_at for i in together),
        count=sum(i.count for i in together),
        evidence=tuple(dict.fromkeys(e for i in together for e in i.evidence))[
            : health.MAX_EVIDENCE
        ],
        reset_at=None,
    )
    home = recording.settle(on, home)
    ended = {other.id: closed(other, on.now, COMMON) for other in others}
    return on.replace(incidents=replace_all(on.state.incidents, {**ended, home.id: home}))


_CLOSED: Final = "closed "
_RESET: Final = "reset after "
_REBOOT: Final = "restart after "
_REPAIRED_BY: Final = {ClosesKind.RESET.value: _RESET, ClosesKind.REBOOT.value: _REBOOT}
_DAY_S: Final = 86_400
_HOUR_S: Final = 3600
_WINDOW: Final = "BudgetWindow"
_REPAIRABLE: Final = (Action.RESET_GPU, Action.RESTART_NODE, Action.POWER_CYCLE)


CONTAINED_OFTEN: Final = "ContainedErrorsOften"


def add_up(before: NodeState, on: Judging) -> Judging:
    """Count ended and returning incidents in the ledger and apply the rules about them."""
    if on.state.incidents is not before.incidents:
        on = _endings(before, on)
    if on.state.ledger is not before.ledger:
        on = _contained_often(before, on)
    return _next_rung(before, on)


def _next_rung(before: NodeState, on: Judging) -> Judging:
    """Raise the recommended action where lighter repairs of the same reason did not last."""
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
    return on if same else on.replace(incidents=tuple(changed))


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
    if floor is None or floor is incident.floor or not burst.stronger_action(floor, row.action):
        return incident
    days = round(on.thresholds["RepairWindow"].value / _DAY_S)
    tried = f"{printable.count(resets, 'reset')} and {printable.count(reboots, 'restart')}"
    conclusion = f"came back after {tried} within {printable.count(days, 'day')}"
    raised = replace(with_conclusion(incident, conclusion), floor=floor)
    return recording.settle(on, raised)


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
    return on.replace(incidents=tuple(kept))


def _ended(on: Judging, old: Incident, incident: Incident) -> tuple[Judging, Incident]:
    """Count a closed incident; a state that closed too often recently is kept open instead."""
    by, reason = incident.closed_by, incident.row.reason
    if by in _REPAIRED_BY:
        return _note(on, incident, _REPAIRED_BY[by] + reason, "RepairWindow"), incident
    held_at = old.held_at
    unconfirmed = by in (closing.NOT_CONFIRMED, recording.BEFORE_START)
    lately = on.now - incident.last_seen <= on.thresholds["FlapWindow"].value
    lost = unconfirmed and lately and incident.lost
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
    conclusion = f"closed {closings} times within {hours} h; open until it is good for {hours} h"
    return on, with_conclusion(_kept_open(on, old, incident, on.now), conclusion)


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
    return recording.settle(on, opened) if old.phase is IncidentPhase.PRESENT else opened


def _contained_often(before: NodeState, on: Judging) -> Judging:
    """Report a GPU with too many contained memory errors within a day."""
    hours = round(on.thresholds[_WINDOW].value / _HOUR_S)
    for (owner, what), entry in on.state.ledger.items():
        if what != recording.CONTAINED_ERROR or before.ledger.get((owner, what)) is entry:
            continue
        gpu_id = _named(on.state, owner)
        seen = on.times((owner, *gpu_id), what, _WINDOW)
        if seen < on.thresholds[CONTAINED_OFTEN].value:
            continue
        finding = Finding(
            at=on.now,
            row=reasons.REASONS[CONTAINED_OFTEN],
            gpu_id=gpu_id,
            source=SourceName.KERNEL_LOG,
            evidence=f"{what}: {printable.count(seen, 'time')} within {hours} h",
            counts=False,
        )
        on = standing.record_standing(on, finding)
    return on


def _note(on: Judging, incident: Incident, what: str, window: str) -> Judging:
    gpu_id = GpuId(next(iter(incident.gpus), ""), next(iter(incident.pci), ""))
    return on.note(gpu_id, what, on.now, window)


def _total(on: Judging, incident: Incident, what: str, window: str) -> int:
    return on.times((*incident.gpus[:1], *incident.pci[:1]), what, window)


def _named(state: NodeState, owner: str) -> GpuId:
    is_uuid = owner.startswith("GPU-")
    view = find_gpu(state, owner, owner)
    return view.gpu_id if view else GpuId(owner if is_uuid else "", "" if is_uuid else owner)
