"""Ended sessions: reuse for a returning fault, replacement after repeats, and retention.

A fault that comes and goes is one session. A session that ended before anything was done to its
node (as always in Shadow) is reopened, since a flapping fault would otherwise leave an object per
flap.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rules.api import timestamps
from rules.api.health import IncidentStatus
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.writes import DeleteObject
from rules.catalog.reason import Level
from rules.catalog.why_not import WhyNot
from rules.policy.policy import Policy, by_accident, session_mode
from rules.session import causes, exclusions, observation, override
from rules.session.observation import NodeObservation

KEEP_S: Final = 28 * 86_400.0
"""Seconds for which ended sessions, pauses and evidence are kept: four weekly reviews."""
MAX_PER_NODE: Final = 20
"""Ended sessions kept per node, so that a flapping node does not fill etcd."""
REPLACE_WINDOW_S: Final = 7 * 86_400.0
"""Seconds within which sessions of a node count for `release.replaceAfter`."""


def ended_at(session: QuarantineView) -> float:
    """Return when a session ended; its creation time if that was not recorded."""
    return timestamps.parse_time(session.status.phase_since) or session.metadata.created_at


def needs_replacement(
    session: QuarantineView, seen: NodeObservation, policy: Policy, now: float
) -> bool:
    """Return whether the node reached `replaceAfter` sessions.

    Only sessions that quarantined this Node (by UID) and were released count. A session that an
    operator cancelled was a false alarm. GPU UUIDs on other nodes do not count, since any agent
    could publish them.
    """
    earlier = [
        other
        for other in seen.siblings
        if other.spec.node_uid == session.spec.node_uid
        and other.status.phase == Phase.RELEASED
        and not never_quarantined(other)
        and now - other.metadata.created_at <= REPLACE_WINDOW_S
    ]
    return len(earlier) + 1 >= policy.release.replace_after


def retention_s(session: QuarantineView, policy: Policy) -> float:
    """Return how long an ended session still affects decisions: kept at least that long. A node
    may come to any pool meanwhile.
    """
    out = session.status.phase in {Phase.RELEASED, Phase.NODE_GONE} and not never_quarantined(
        session
    )
    replaces_s = REPLACE_WINDOW_S if out else 0.0
    expiry_s = max(one.release.cancel_expiry_s for one in policy.policies)
    return max(expiry_s, _fleet_window_s(session, policy), replaces_s)


def _fleet_window_s(session: QuarantineView, policy: Policy) -> float:
    """Return the longest window in which the fleet rules count an ended session."""
    budget = policy.budget
    windows = [budget.per_reason.window_s, budget.max_new.window_s + budget.cooldown_s]
    if session.status.repair:
        windows += [one.repair.window_s for one in policy.policies]
    return max(windows)


def counts_until(session: QuarantineView, policy: Policy) -> float:
    """Return until when the fleet rules count a session: for ever while it is open, then for their
    longest window.
    """
    if observation.is_open(session):
        return float("inf")
    return ended_at(session) + _fleet_window_s(session, policy)


def expired_sessions(
    sessions: Iterable[QuarantineView], policy: Policy, now: float
) -> tuple[DeleteObject, ...]:
    """Return the deletions of ended sessions that are too old or too many for one node.

    Sessions that still affect decisions stay longer (`retention_s`).
    """
    deletions: list[DeleteObject] = []
    by_node = observation.sessions_by_node({session.name: session for session in sessions})
    for node, all_sessions in sorted(by_node.items()):
        ended = sorted(
            (s for s in all_sessions if not observation.is_open(s)),
            key=lambda s: (ended_at(s), s.name),
            reverse=True,
        )
        for position, session in enumerate(ended):
            age_s = now - ended_at(session)
            protected_s = retention_s(session, policy)
            surplus = position >= MAX_PER_NODE and age_s > protected_s
            if age_s > max(KEEP_S, protected_s) or surplus:
                uid = session.metadata.uid
                deletions.append(
                    DeleteObject(plural="gpuquarantines", name=session.name, uid=uid, node=node)
                )
    return tuple(deletions)


RELEASED: Final = "Released"
"""Reason of `left_alone` for a node with a session that an operator ended."""


def left_alone(
    node: NodeView,
    health: HealthView,
    sessions: Iterable[QuarantineView],
    pauses: Iterable[PauseView],
    policy: Policy,
    now: float,
) -> str:
    """Return why policy or an operator exclude a faulty node: `OptOut`, `PolicyIsShadow`,
    `Report`, `Released` or `Paused`; "" if they do not or the node is healthy.

    A pause of all nodes does not count: the node may have failed long after it.
    """
    active = [incident for incident in health.status.incidents if incident.active]
    if not active:
        return ""
    if exclusions.opted_out(node):
        return WhyNot.OPT_OUT
    if policy.mode == Mode.SHADOW and not by_accident(policy):
        return WhyNot.POLICY_IS_SHADOW
    acting = causes.actionable(health, (), policy)
    if not acting:
        return Level.REPORT
    overridden = override.overridden_until(acting, sessions, policy, now)
    if all(one.id in overridden for one in acting):
        return RELEASED
    paused = any(exclusions.pause_singles_out(pause, node, now) for pause in pauses)
    return WhyNot.PAUSED if paused else ""


REUSE_S: Final = 3600.0
"""A fault that returns later opens a new session."""
EVIDENCE_JOINED: Final = "joined"
"""Evidence key: the session that took over the causes."""


def joined(session: QuarantineView) -> bool:
    """Return whether the session ended because another one of its node took over its causes."""
    return EVIDENCE_JOINED in session.status.evidence


def never_quarantined(session: QuarantineView) -> bool:
    """Return whether the session never quarantined its node; a Shadow session never does."""
    quarantined = any(entry.step == "Marked" for entry in session.status.timeline)
    return not quarantined or session.status.mode == Mode.SHADOW


def reopened_at(session: QuarantineView) -> float | None:
    """Return when the session was last reopened; None if it never was."""
    opened = [entry for entry in session.status.timeline if entry.step == Phase.PENDING]
    return timestamps.parse_time(opened[-1].at) if len(opened) > 1 else None


def wanted_at(session: QuarantineView) -> float:
    """Return when the session was created or last reopened."""
    again = reopened_at(session)
    return session.metadata.created_at if again is None else again


def reusable(
    sessions: Iterable[QuarantineView], node: NodeView, policy: Policy, now: float
) -> QuarantineView | None:
    """Return the node's latest session if a returning fault may reopen it: it ended recently,
    never quarantined the node and was not ended by an operator.
    """
    latest = max(sessions, key=lambda s: (s.metadata.created_at, s.name), default=None)
    if latest is None or latest.status.phase not in {Phase.CANCELLED, Phase.RELEASED}:
        return None
    if latest.spec.node_uid != node.uid or latest.status.mode != session_mode(policy):
        return None
    if not never_quarantined(latest):
        return None
    if causes.has_human(latest) or causes.ended_by_operator(latest) or joined(latest):
        return None
    ended_at = timestamps.parse_time(latest.status.phase_since)
    return latest if ended_at is not None and now - ended_at <= REUSE_S else None


class NotOpened(StrEnum):
    """Why no session is opened, in order of precedence."""

    STALE = "the health status is stale"
    OPTED_OUT = "the node is opted out"
    NOT_SELECTED = "the policy does not select the node"
    REPORTED = "no fault requires more than a report"
    ENDED_BY_OPERATOR = "an operator ended its session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The session to open, or why none is opened."""

    not_opened: NotOpened | None = None
    """None if a session opens or reopens now."""
    until: float | None = None
    """When this changes without any event; None if it does not."""
    incidents: tuple[IncidentStatus, ...] = ()
    """The causes of the session, the most severe first; empty if none is opened."""
    earlier: QuarantineView | None = None
    """The ended session to reopen instead of a new one."""


def opening(seen: NodeObservation, now: float, policy: Policy) -> Opening:
    """Return the opening for an existing node without an open session."""
    assert seen.node is not None
    acting = causes.fresh_incidents(seen, policy)
    due_at = seen.external.due_at
    if seen.stale and not acting:
        return Opening(not_opened=NotOpened.STALE, until=due_at)
    if not seen.selected or exclusions.opted_out(seen.node):
        kept = NotOpened.OPTED_OUT if seen.selected else NotOpened.NOT_SELECTED
        return Opening(not_opened=kept)
    overridden = override.overridden_until(acting, seen.siblings, policy, now)
    incidents = tuple(i for i in acting if i.id not in overridden)
    if not incidents:
        # A fault that persists triggers no event when the override expires.
        moments = [due_at] if due_at is not None else []
        until = min([*moments, *overridden.values()], default=None)
        kept = NotOpened.ENDED_BY_OPERATOR if acting else NotOpened.REPORTED
        return Opening(not_opened=kept, until=until)
    return Opening(incidents=incidents, earlier=reusable(seen.siblings, seen.node, policy, now))
