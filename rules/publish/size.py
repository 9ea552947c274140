"""Keep the published object small enough to be stored, losing the least telling first.

Called by `publication`. Over 60 KiB closed incidents keep one line of evidence, then the oldest
closed ones go; beyond that active ones lose evidence, the ledger its oldest entries, and records
of Info go. `dropped` counts what went; a Degraded or Fatal incident is never left out before all
of that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.api.health import HealthStatus, IncidentStatus

SOFT_LIMIT_BYTES: Final = 60 * 1024
"""Leaves room below the object's limit for metadata and managed fields."""

_FEW_ENTRIES: Final = 16


def fitted(status: HealthStatus, limit: int = SOFT_LIMIT_BYTES) -> HealthStatus:
    """The status within `limit` bytes; unchanged where it fits."""
    if _size(status) <= limit:
        return status
    status = _with(status, tuple(i if i.active else _one_line(i) for i in status.incidents))
    status = _without_last(status, limit, closed_only=True)
    if _size(status) <= limit:
        return status
    status = _with(status, tuple(_one_line(i) for i in status.incidents))
    if _size(status) > limit:
        status = _with(status, tuple(_no_line(i) for i in status.incidents))
    if _size(status) > limit:
        status = msgspec.structs.replace(status, ledger=status.ledger[:_FEW_ENTRIES])
    return _without_last(status, limit, closed_only=False)


def _without_last(status: HealthStatus, limit: int, *, closed_only: bool) -> HealthStatus:
    """Drop incidents from the end (oldest closed, then mildest) until it fits."""
    incidents = list(status.incidents)
    sizes = [len(msgspec.json.encode(incident)) + 1 for incident in incidents]
    excess = _size(status) - limit
    gone = 0
    while incidents and excess > 0 and not (closed_only and incidents[-1].active):
        incidents.pop()
        excess -= sizes.pop()
        gone += 1
    if not gone:
        return status
    kept = _with(status, tuple(incidents))
    return msgspec.structs.replace(kept, dropped=status.dropped + gone)


def _with(status: HealthStatus, incidents: tuple[IncidentStatus, ...]) -> HealthStatus:
    return msgspec.structs.replace(status, incidents=incidents)


def _one_line(incident: IncidentStatus) -> IncidentStatus:
    return msgspec.structs.replace(incident, evidence=incident.evidence[:1])


def _no_line(incident: IncidentStatus) -> IncidentStatus:
    return msgspec.structs.replace(incident, evidence=())


def _size(status: HealthStatus) -> int:
    return len(msgspec.json.encode(status))
