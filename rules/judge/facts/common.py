"""One cause for many GPUs: the same reason on half of them within a minute is one incident.

Called by `judge` whenever incidents changed. A tray without power, a fabric that restarts or a
switch that fails is one fault of the node with one repair, not eight of its GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rules.api.health import MAX_EVIDENCE
from rules.catalog.reason import Severity, strength
from rules.catalog.thresholds import Thresholds
from rules.catalog.xid import REPEATING_XIDS
from rules.judge.burst import FABRIC_XIDS, settled
from rules.judge.expected_gpus import gpu_addresses
from rules.judge.facts.presence import MISMATCH, expected_of
from rules.judge.incident import (
    MAX_LINKS,
    MAX_MEMBERS,
    Incident,
    IncidentPhase,
    Scope,
    closed,
    replace_all,
)
from rules.judge.recording import surroundings
from rules.judge.state import MAX_GPUS, Judging, NodeState, find_gpu

COMMON: Final = "CommonCause"
FABRIC_FAILED: Final = "FabricStateFailed"


def merge_common(on: Judging) -> Judging:
    """Make one incident of scope Node of those that a common cause explains."""
    if not on.state.gpus:
        return on  # none is about known GPUs, and a flood of lines need not ask each of them
    alike: dict[tuple[str, bool, bool], list[Incident]] = {}
    repaired_at = on.state.node.repaired_at
    for incident in on.state.incidents:
        if incident.active and _may_be_common(on.state, incident):
            # What ends those of before a reboot or a repair says nothing about those after it.
            mended = incident.first_seen < repaired_at
            alike.setdefault((incident.row.reason, incident.rebooted, mended), []).append(incident)
    most = _gpus_here(on.state)
    for group in alike.values():
        if len(group) > 1 and (together := _together(group, most, on.thresholds)):
            on = _merged(on, together)
    return on


def _may_be_common(state: NodeState, incident: Incident) -> bool:
    """Judged, and about known GPUs.

    A missing count and a program's repeats have rules of their own; what concerns a whole NVLink
    domain is one finding already.
    """
    judged = incident.phase is IncidentPhase.SETTLED and incident.held_at is None
    if not judged or incident.row.reason == MISMATCH:
        return False
    if incident.row.severity is Severity.INFO and not FABRIC_XIDS.isdisjoint(incident.xids):
        return False  # what the table says to ignore, however many print it
    if incident.scope is Scope.DOMAIN and incident.row.reason != FABRIC_FAILED:
        return False
    if not REPEATING_XIDS.isdisjoint(incident.xids):
        return False
    keys = _gpus_of(incident)
    return bool(keys) and all(find_gpu(state, key, key) is not None for key in keys)


def _gpus_of(incident: Incident) -> tuple[str, ...]:
    return incident.gpus or incident.pci


def _gpus_here(state: NodeState) -> int:
    on_bus = len(gpu_addresses(state.functions, state.excluded))
    return max(len(state.gpus), expected_of(state).count, on_bus)


def _together(group: Sequence[Incident], most: int, thresholds: Thresholds) -> Sequence[Incident]:
    """The incidents that began within a minute of each other on at least half of the GPUs."""
    window_s, share = thresholds["CommonCauseWindow"].value, thresholds["CommonCause"].value
    ordered = sorted(group, key=lambda incident: incident.first_seen)
    for first in ordered:
        within = [i for i in ordered if 0 <= i.first_seen - first.first_seen <= window_s]
        gpus = {gpu for incident in within for gpu in _gpus_of(incident)}
        if len(within) > 1 and len(gpus) > 1 and len(gpus) >= share * most:
            return within
    return ()


def _merged(on: Judging, together: Sequence[Incident]) -> Judging:
    """The first of them goes on as the incident of the node; the others end in it."""
    first, *others = together
    gravest = max(together, key=lambda incident: strength(incident.row))
    members = tuple(dict.fromkeys(m for i in (gravest, *together) for m in i.members))
    home = replace(
        first,
        row=gravest.row,
        members=members[:MAX_MEMBERS],
        answer=gravest.answer,
        floor=gravest.floor,
        scope=Scope.NODE,
        gpus=tuple(dict.fromkeys(g for i in together for g in i.gpus))[:MAX_GPUS],
        pci=tuple(dict.fromkeys(p for i in together for p in i.pci))[:MAX_GPUS],
        mig=None,
        links=tuple(dict.fromkeys(n for i in together for n in i.links))[:MAX_LINKS],
        sources=tuple(dict.fromkeys(s for i in together for s in i.sources))[:8],
        last_seen=max(i.last_seen for i in together),
        touched_at=max(i.touched_at for i in together),
        count=sum(i.count for i in together),
        evidence=tuple(dict.fromkeys(e for i in together for e in i.evidence))[:MAX_EVIDENCE],
        reset_at=None,
    )
    home = settled(home, on.now, surroundings(on.state), on.thresholds)
    ended = {other.id: closed(other, on.now, COMMON) for other in others}
    return on.then(
        replace(on.state, incidents=replace_all(on.state.incidents, {**ended, home.id: home}))
    )
