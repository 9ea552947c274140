"""How long a drain has really been at work: the only clock its deadlines are measured by."""

from __future__ import annotations

from typing import Final

from rules.api.quarantine import DrainStatus
from rules.api.timestamps import parse_time
from rules.policy.policy import Policy

OUTAGE_S: Final = 90.0
"""A session is decided at least every 60 s; a longer silence was an outage, not a drain."""


def was_away(now: float, last_active_at: float | None) -> bool:
    """Whether nobody of ours decided the session for longer than happens at work: what happened
    in between was seen by nobody. False where nothing is known of the time before.
    """
    return last_active_at is not None and now - last_active_at > OUTAGE_S


def elapsed_s(drain: DrainStatus, now: float, last_active_at: float | None) -> float:
    """Seconds of drain at work: since the start, without suspensions and the latest outage."""
    started = parse_time(drain.started_at)
    if started is None:
        return 0.0
    gap_s = now - last_active_at if last_active_at is not None else 0.0
    lost_s = drain.suspended_seconds + (gap_s if was_away(now, last_active_at) else 0.0)
    return max(0.0, now - started - lost_s)


def worked_since(drain: DrainStatus, now: float, last_active_at: float | None) -> float:
    """When the drain would have started had nothing suspended it: what waits with a bound count
    from, so that no bound is used up while nobody was there.
    """
    return now - elapsed_s(drain, now, last_active_at)


def overdue(
    drain: DrainStatus,
    severity: str,
    policy: Policy,
    now: float,
    last_active_at: float | None,
) -> bool:
    """Whether the drain has been at work for longer than the policy gives it."""
    return elapsed_s(drain, now, last_active_at) > policy.drain_timeout_s(severity)
