"""What others say on a Node (`policy.external`), as findings like an agent's incidents.

A finding's id is made of the node and of what its trigger looks for, so every replica and every
restart knows it again, and an operator who ends its session is heard until `cancelExpiry`. Nothing
of what others write is interpreted: it is compared, bounded and escaped. Pure; called by
`rules.session.observation` and `rules.session.causes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rules.api import timestamps
from rules.api.health import IncidentStatus
from rules.api.nodes import NodeView
from rules.api.quarantine import Cause
from rules.policy.external import ExternalTrigger
from rules.text.printable import printable

if TYPE_CHECKING:
    from rules.policy.policy import Policy

SOURCE: Final = "External"
"""`source` of a cause that rests on what others say."""
_PREFIX: Final = "external-"
_NOTICE_KEPT_S: Final = 86_400.0
"""A notice whose time is longer past opens nothing: whoever wrote it forgot it."""
_LAST_TIME: Final = 250_000_000_000.0
"""Unix seconds after this are no time (`rules.api.timestamps`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """What others say about one node now."""

    incidents: tuple[IncidentStatus, ...] = ()
    """Those that have been so for long enough."""
    due_at: float | None = None
    """When the next one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sighting:
    trigger: ExternalTrigger
    id: str
    said: str
    since: float | None = None
    """Its own word on how long; None where it has none."""


def is_external(incident: str) -> bool:
    """Whether an incident's id is one of these, whoever claims it."""
    return incident.startswith(_PREFIX)


def first_seen(
    node: NodeView, policy: Policy, known: Mapping[str, float], now: float
) -> Mapping[str, float]:
    """Since when this process has seen each finding there is now, by id: what has no time of its
    own (annotations, labels) counts from there. A restart begins again, which only delays.
    """
    return {each.id: known.get(each.id, now) for each in _sightings(node, policy, now)}


def external_of(node: NodeView, policy: Policy, now: float, seen: Mapping[str, float]) -> External:
    """The findings on `node`; `seen` is what `first_seen` answered before."""
    found = []
    due = []
    for each in _sightings(node, policy, now):
        since = each.since if each.since is not None else seen.get(each.id, now)
        at = since + each.trigger.for_s
        if now >= at:
            found.append(_incident(each, since))
        else:
            due.append(at)
    return External(incidents=tuple(found), due_at=min(due, default=None))


def trigger_of(cause: Cause, node_uid: str, policy: Policy) -> ExternalTrigger | None:
    """The trigger that made the cause; None where the policy does not have it any more."""
    if cause.source != SOURCE:
        return None
    return next((t for t in policy.external if _id(node_uid, t) == cause.incident), None)


def holds(cause: Cause, node_uid: str, node: NodeView | None, policy: Policy, now: float) -> bool:
    """Whether the cause still does: what it rests on is there, or nobody can tell."""
    trigger = trigger_of(cause, node_uid, policy)
    if trigger is None:
        return False
    if node is None:
        return True
    if trigger.match.kind == "condition":
        found = node.condition(trigger.match.name)
        return found is not None and found.status not in _opposites(trigger.match.value)
    found_now = next(_sighted(node, trigger, now, kept_s=float("inf")), None)
    return found_now is not None and (found_now.since is None or found_now.since <= now)


def closing_clauses(causes: Iterable[Cause], node_uid: str, policy: Policy) -> tuple[str, ...]:
    """What would end those of the causes that rest on what others say on the Node, a clause
    each.
    """
    found = (trigger_of(cause, node_uid, policy) for cause in causes)
    return tuple(_closing_clause(trigger) for trigger in found if trigger is not None)


def _closing_clause(trigger: ExternalTrigger) -> str:
    match = trigger.match
    if match.kind == "condition":
        ends = " or ".join(sorted(_opposites(match.value), reverse=True))
        return f"condition {match.name} of the Node becoming {ends}"
    changed = " or put off" if trigger.before_s is not None else ""
    changed = " or changed" if match.value is not None and match.kind != "taint" else changed
    return f"{match.kind} {match.name} being taken off the Node{changed}"


def _opposites(status: str | None) -> frozenset[str]:
    """The statuses that close a cause which opened on `status`: Unknown says nothing."""
    return frozenset({"True", "False"} - {status})


def _id(node_uid: str, trigger: ExternalTrigger) -> str:
    digest = hashlib.sha256(f"{node_uid}/{trigger.key}".encode()).hexdigest()
    return f"{_PREFIX}{digest[:24]}"


def _incident(seen: _Sighting, since: float) -> IncidentStatus:
    trigger = seen.trigger
    return IncidentStatus(
        id=seen.id,
        reason=trigger.reason,
        severity=str(trigger.severity),
        level=str(trigger.level),
        recommended_action=str(trigger.action),
        scope="Node",
        sources=(SOURCE,),
        active=True,
        first_seen=timestamps.format_time(since),
        last_seen=timestamps.format_time(since),
        evidence=(seen.said,),
    )


def _sightings(node: NodeView, policy: Policy, now: float) -> Iterator[_Sighting]:
    for trigger in policy.external:
        yield from _sighted(node, trigger, now)


def _sighted(
    node: NodeView, trigger: ExternalTrigger, now: float, *, kept_s: float = _NOTICE_KEPT_S
) -> Iterator[_Sighting]:
    """The trigger on the node, once or not at all."""
    match = trigger.match
    since: float | None = None
    if match.kind == "condition":
        found = node.condition(match.name)
        if found is None or found.status != match.value:
            return
        since = timestamps.parse_time(found.last_transition_time or "")
        words = ": ".join(_short(word) for word in (found.reason, found.message) if word)
        said = f"condition {match.name} is {match.value}{': ' if words else ''}{words}"
    elif match.kind == "taint":
        taint = next(
            (
                taint
                for taint in node.spec.taints
                if taint.key == match.name
                and match.value in {None, taint.value}
                and match.effect in {None, taint.effect}
            ),
            None,
        )
        if taint is None:
            return
        since = timestamps.parse_time(taint.time_added or "")
        said = f"taint {match.name}={_short(taint.value)}:{_short(taint.effect)} is set"
    else:
        value = (node.annotations if match.kind == "annotation" else node.labels).get(match.name)
        if value is None or match.value not in {None, value}:
            return
        if trigger.before_s is not None:
            noted = _time(value)
            if noted is None or now > noted + kept_s:
                return
            since = max(0.0, noted - trigger.before_s)
        shown = f"is '{_short(value)}'" if value else "is set"
        said = f"{match.kind} {match.name} {shown}"
    if since is not None and since > now and trigger.before_s is None:
        # A time in the future says nothing about how long it has been so.
        since = None
    said = f"Node {said}"[:512]
    yield _Sighting(trigger=trigger, id=_id(node.uid, trigger), said=said, since=since)


def _short(text: str) -> str:
    return printable(text[:200])


def _time(text: str) -> float | None:
    """RFC 3339, or seconds since 1970 as GKE writes them; None for everything else."""
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return float(text) if float(text) <= _LAST_TIME else None
    return timestamps.parse_time(text)
