"""What one observation changed, for metrics, Events and the log: the difference of two states.

Called by `judge` after every observation. Derived, never collected on the way, so nothing that
changed can be forgotten.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rules.judge.incident import Incident
from rules.judge.observation import SourceName, SourceState
from rules.judge.state import NodeState


class ChangeKind(StrEnum):
    """What happened to it."""

    OPENED = "Opened"
    RAISED = "Raised"
    LOWERED = "Lowered"
    CLOSED = "Closed"
    SOURCE = "Source"
    STAND_DOWN = "StandDown"
    STAND_DOWN_EXPIRED = "StandDownExpired"
    STAND_DOWN_ENDED = "StandDownEnded"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change; `incident` is set for the first four kinds, `source` for Source."""

    kind: ChangeKind
    incident: Incident | None = None
    source: SourceName | None = None
    state: SourceState | None = None
    reason: str = ""


def changes_between(old: NodeState, new: NodeState) -> tuple[Change, ...]:
    """Everything a person may want to hear about."""
    if old is new:
        return ()
    found: list[Change] = []
    if old.incidents is not new.incidents:
        found += _incidents(old, new)
    if old.sources is not new.sources:
        found += [
            Change(kind=ChangeKind.SOURCE, source=name, state=view.state, reason=view.reason)
            for name, view in new.sources.items()
            if (before := old.sources.get(name)) is None
            or (before.state, before.reason) != (view.state, view.reason)
        ]
    return (*found, *_stand_down(old, new))


def _incidents(old: NodeState, new: NodeState) -> list[Change]:
    before = {incident.id: incident for incident in old.incidents}
    found = []
    for incident in new.incidents:
        was = before.get(incident.id)
        if was is incident:
            continue
        kind = None
        if was is None:
            kind = ChangeKind.OPENED
        elif was.active and not incident.active:
            kind = ChangeKind.CLOSED
        elif incident.row.severity > was.row.severity or incident.row.level > was.row.level:
            kind = ChangeKind.RAISED
        elif incident.row.severity < was.row.severity or incident.row.level < was.row.level:
            kind = ChangeKind.LOWERED
        if kind is not None:
            found.append(Change(kind=kind, incident=incident, reason=incident.row.reason))
    return found


def _stand_down(old: NodeState, new: NodeState) -> tuple[Change, ...]:
    was, now = old.stand_down, new.stand_down
    if was == now:
        return ()
    if now is None:
        return (Change(kind=ChangeKind.STAND_DOWN_ENDED, reason=was.reason if was else ""),)
    if now.expired:
        return (Change(kind=ChangeKind.STAND_DOWN_EXPIRED, reason=now.reason),)
    return (Change(kind=ChangeKind.STAND_DOWN, reason=now.reason),)
