"""What ended sessions still decide: which session a fault gets, replacement, how long they count.

A fault that comes and goes is one session: one that ended before anything was done to its node (in
Shadow nothing ever is) is taken up again, since a flapping fault would else leave an object per
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
from rules.policy.policy import Policy, session_mode
from rules.session import causes, exclusions, observation, override
from rules.session.observation import NodeObservation

KEEP_S: Final = 28 * 86_400.0
"""Seconds for which ended sessions, pauses and evidence are kept: four weekly reviews."""
MAX_PER_NODE: Final = 20
"""Ended sessions kept of one node, so that one that flaps does not fill the store."""
REPLACE_WINDOW_S: Final = 7 * 86_400.0
"""Seconds within which sessions of a node count for `release.replaceAfter`."""


def ended_at(session: QuarantineView) -> float:
    """When an ended session ended; its creation where that was not recorded."""
    return timestamps.parse_time(session.status.phase_since) or session.metadata.created_at


def needs_replacement(
    session: QuarantineView, seen: NodeObservation, policy: Policy, now: float
) -> bool:
    """Whether this node has been through `replaceAfter` sessions.

    Counted are sessions that really took this very Node out and came back: a machine that is new
    under an old name begins at none, and a session that an operator cancelled was a false alarm.
    What other nodes say counts nothing: a GPU's UUID is the word of whoever publishes it.
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
    """How long after its end an ended session still decides something: kept whatever `history`
    says, as a rule that forgets within its window is no rule.
    """
    out = session.status.phase in {Phase.RELEASED, Phase.NODE_GONE} and not never_quarantined(
        session
    )
    replaces_s = REPLACE_WINDOW_S if out else 0.0
    return max(policy.release.cancel_expiry_s, _fleet_window_s(session, policy), replaces_s)


def _fleet_window_s(session: QuarantineView, policy: Policy) -> float:
    """The longest of the windows within which the fleet rules look back at an ended session."""
    budget = policy.budget
    windows = [budget.per_reason.window_s, budget.max_new.window_s + budget.cooldown_s]
    if session.status.repair:
        windows.append(policy.repair.window_s)
    return max(windows)


def counts_until(session: QuarantineView, policy: Policy) -> float:
    """Until when the fleet rules count a session: for ever while it is open, and then for the
    longest of the windows that they look back.
    """
    if observation.is_open(session):
        return float("inf")
    return ended_at(session) + _fleet_window_s(session, policy)


def expired_sessions(
    sessions: Iterable[QuarantineView], policy: Policy, now: float
) -> tuple[DeleteObject, ...]:
    """Ended sessions that history no longer keeps: too old, or too many of one node.

    What still has an effect stays longer (`remembered_s`).
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
"""Why a node is left alone whose session an operator ended."""


def left_alone(
    node: NodeView,
    health: HealthView,
    sessions: Iterable[QuarantineView],
    pauses: Iterable[PauseView],
    policy: Policy,
    now: float,
) -> str:
    """What policy or an operator decided so that nothing is done about the node's faults; "" where
    something is to be done, or nothing is wrong: `OptOut`, `Report`, `Released`, `Paused`.

    A pause of everything is no word about this node: it may have failed long after.
    """
    active = [incident for incident in health.status.incidents if incident.active]
    if not active:
        return ""
    if exclusions.opted_out(node):
        return WhyNot.OPT_OUT
    acting = causes.actionable(health, (), policy)
    if not acting:
        return Level.REPORT
    overridden = override.overridden_until(acting, sessions, policy, now)
    if all(one.id in overridden for one in acting):
        return RELEASED
    paused = any(exclusions.pause_singles_out(pause, node, now) for pause in pauses)
    return WhyNot.PAUSED if paused else ""


REUSE_S: Final = 3600.0
"""A fault that comes back later is another story."""
EVIDENCE_JOINED: Final = "joined"
"""Key in a session's evidence: the session that took its causes over."""


def joined(session: QuarantineView) -> bool:
    """Whether the session ended because another of its node took its causes over."""
    return EVIDENCE_JOINED in session.status.evidence


def never_quarantined(session: QuarantineView) -> bool:
    """Whether the session did nothing to its node (a taint and cordon in Shadow is none)."""
    quarantined = any(entry.step == "Marked" for entry in session.status.timeline)
    return not quarantined or session.status.mode == Mode.SHADOW


def reopened_at(session: QuarantineView) -> float | None:
    """When the session was last taken up again after its end; None of one that never was."""
    opened = [entry for entry in session.status.timeline if entry.step == Phase.PENDING]
    return timestamps.parse_time(opened[-1].at) if len(opened) > 1 else None


def wanted_at(session: QuarantineView) -> float:
    """Since when the session wants its node: its creation, or when it was taken up again."""
    again = reopened_at(session)
    return session.metadata.created_at if again is None else again


def reusable(
    sessions: Iterable[QuarantineView], node: NodeView, policy: Policy, now: float
) -> QuarantineView | None:
    """The node's latest session, where it ended lately and untouched, and not by an operator: a
    fault that comes back takes it up again.
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
    """Why no session is opened, the first that applies."""

    STALE = "the health status cannot be believed"
    OPTED_OUT = "the node is opted out"
    NOT_SELECTED = "the policy does not select the node"
    REPORTED = "nothing asks for more than a report"
    ENDED_BY_OPERATOR = "an operator ended its session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What would be opened, or why nothing is."""

    not_opened: NotOpened | None = None
    """None where a session opens, or goes on, now."""
    until: float | None = None
    """When time alone changes that; None where it does not."""
    incidents: tuple[IncidentStatus, ...] = ()
    """What the session would rest on, the most severe first; empty where none is opened."""
    earlier: QuarantineView | None = None
    """The ended session that would go on instead of a new one."""


def opening(seen: NodeObservation, now: float, policy: Policy) -> Opening:
    """For a node that is there, and has no open session."""
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
        # A fault that stays changes nothing that would wake anybody when the cancel expires.
        moments = [due_at] if due_at is not None else []
        until = min([*moments, *overridden.values()], default=None)
        kept = NotOpened.ENDED_BY_OPERATOR if acting else NotOpened.REPORTED
        return Opening(not_opened=kept, until=until)
    return Opening(incidents=incidents, earlier=reusable(seen.siblings, seen.node, policy, now))
