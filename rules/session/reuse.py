"""A fault that comes and goes is one session: which ended session goes on, and how many there may
be.

A session that was cancelled before anything was done to its node is taken up again when the node
falls ill anew: a flapping fault that waits for its turn would else leave an object per flap, and
each would look like another node to the breaker. Called by `rules.session.absent`; the breaker and
the order of turns ask `wanted_at`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.timestamps import parse_time
from rules.policy.policy import Policy
from rules.session.causes import ended_by_person, has_human
from rules.session.observation import is_open

REUSE_S: Final = 3600.0
"""A fault that comes back later is another story."""
EVIDENCE_JOINED: Final = "joined"
"""Key in a session's evidence: the session that took its causes over."""
_UNTOUCHED: Final = 6
"""So many sessions that never touched the node may be opened for it within `REUSE_S`."""


def joined(session: QuarantineView) -> bool:
    """Whether the session ended because another of its node took its causes over."""
    return EVIDENCE_JOINED in session.status.evidence


def never_marked(session: QuarantineView) -> bool:
    """Whether the session did nothing to its node (a mark in Shadow is none)."""
    marked = any(entry.step == "Marked" for entry in session.status.timeline)
    return not marked or session.status.mode == Mode.SHADOW


def wanted_at(session: QuarantineView) -> float:
    """Since when the session wants its node: its creation, or when it was taken up again."""
    opened = [entry for entry in session.status.timeline if entry.step == Phase.PENDING]
    again = parse_time(opened[-1].at) if len(opened) > 1 else None
    return session.metadata.created_at if again is None else again


def reusable(
    sessions: Iterable[QuarantineView], node: NodeView, policy: Policy, now: float
) -> QuarantineView | None:
    """The node's latest session, where it was cancelled untouched and not by a person."""
    latest = max(sessions, key=lambda s: (s.metadata.created_at, s.name), default=None)
    if latest is None or is_open(latest) or latest.status.phase != Phase.CANCELLED:
        return None
    if latest.spec.node_uid != node.uid or latest.status.mode != policy.mode:
        return None
    if any(entry.step == "Marked" for entry in latest.status.timeline):
        return None
    if has_human(latest) or ended_by_person(latest) or joined(latest):
        return None
    ended_at = parse_time(latest.status.phase_since)
    return latest if ended_at is not None and now - ended_at <= REUSE_S else None


def too_many_until(sessions: Iterable[QuarantineView], now: float) -> float | None:
    """Until when a node waits for another session, having left so many without effect; None when
    it may have one.
    """
    recent = sorted(
        session.metadata.created_at
        for session in sessions
        if never_marked(session)
        and not has_human(session)
        and now - session.metadata.created_at < REUSE_S
    )
    return None if len(recent) < _UNTOUCHED else recent[-_UNTOUCHED] + REUSE_S
