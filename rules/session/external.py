"""Findings of external detectors on a Node (`policy.external`), in the form of incidents.

The id of a finding is a hash of node and trigger, so that replicas and restarts recognize it and
an override holds until `cancelExpiry`. Values of other programs are compared, bounded and escaped,
and never interpreted. Pure; called by `rules.session.observation` and `rules.session.causes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rules.api import resource_slices, timestamps
from rules.api.health import IncidentStatus
from rules.api.nodes import NodeCondition, NodeView
from rules.api.quarantine import Cause
from rules.api.resource_slices import NodeTaints, TaintedDevice
from rules.policy.external import ExternalTrigger, Match
from rules.text.printable import printable

if TYPE_CHECKING:
    from rules.policy.policy import Policy

SOURCE: Final = "External"
"""`source` of a cause that an external finding opened."""
_PREFIX: Final = "external-"
_NOTICE_KEPT_S: Final = 86_400.0
"""A notice with a time longer ago is ignored as a leftover."""
_LAST_TIME: Final = 250_000_000_000.0
"""Largest accepted Unix time (`rules.api.timestamps`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """The external findings on one node."""

    incidents: tuple[IncidentStatus, ...] = ()
    """Findings that lasted for the `for` of their trigger."""
    due_at: float | None = None
    """When the next finding will have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    trigger: ExternalTrigger
    id: str
    evidence: str
    since: float | None = None
    """Its start by its own timestamp; None without one."""


def is_external(incident: str) -> bool:
    """Return whether an incident's id has the prefix of external findings."""
    return incident.startswith(_PREFIX)


def first_seen(
    node: NodeView,
    policy: Policy,
    known: Mapping[str, float],
    now: float,
    taints: Mapping[str, NodeTaints],
) -> Mapping[str, float]:
    """Return since when this process has observed each current finding, by id.

    Findings without a timestamp (annotations, labels) count from there. A restart only delays
    them.
    """
    return {each.id: known.get(each.id, now) for each in _matches(node, policy, now, taints)}


def external_of(
    node: NodeView,
    policy: Policy,
    now: float,
    seen: Mapping[str, float],
    taints: Mapping[str, NodeTaints],
) -> External:
    """Return the findings on `node`; `seen` is the earlier result of `first_seen`. `taints` are
    those of its devices, by driver.
    """
    found = []
    due = []
    for each in _matches(node, policy, now, taints):
        since = each.since if each.since is not None else seen.get(each.id, now)
        at = since + each.trigger.for_s
        if now >= at:
            found.append(_incident(each, since))
        else:
            due.append(at)
    return External(incidents=tuple(found), due_at=min(due, default=None))


def trigger_of(cause: Cause, node_uid: str, policy: Policy) -> ExternalTrigger | None:
    """Return the trigger of the cause; None if the policy no longer has it."""
    if cause.source != SOURCE:
        return None
    return next((t for t in policy.external if _id(node_uid, t) == cause.incident), None)


def holds(
    cause: Cause,
    node_uid: str,
    node: NodeView | None,
    policy: Policy,
    now: float,
    taints: Mapping[str, NodeTaints],
) -> bool:
    """Return whether the cause is still active: its trigger matches, or the node is unknown.

    A condition stays active with another reason: it has the reason of its latest problem. A device
    taint stays active while the slices of its driver are missing or incomplete.
    """
    trigger = trigger_of(cause, node_uid, policy)
    if trigger is None:
        return False
    if node is None:
        return True
    if trigger.match.kind == "condition":
        found = _condition(node, trigger.match.name)
        return found is not None and found.status not in _opposites(trigger.match.value)
    if trigger.match.kind == "deviceTaint":
        known = taints.get(trigger.match.driver, resource_slices.UNKNOWN)
        return not known.complete or bool(_matching(known, trigger.match))
    found_now = next(_matches_of(node, trigger, now, taints, kept_s=float("inf")), None)
    return found_now is not None and (found_now.since is None or found_now.since <= now)


def closing_clauses(causes: Iterable[Cause], node_uid: str, policy: Policy) -> tuple[str, ...]:
    """Return a clause for each external cause with what would close it."""
    found = (trigger_of(cause, node_uid, policy) for cause in causes)
    return tuple(_closing_clause(trigger) for trigger in found if trigger is not None)


def _closing_clause(trigger: ExternalTrigger) -> str:
    match = trigger.match
    if match.kind == "condition":
        ends = " or ".join(sorted(_opposites(match.value), reverse=True))
        return f"condition {match.name} of the Node becoming {ends}"
    if match.kind == "deviceTaint":
        return f"taint {match.name} being removed from the devices of {match.driver}"
    changed = " or put off" if trigger.before_s is not None else ""
    changed = " or changed" if match.value is not None and match.kind != "taint" else changed
    return f"{match.kind} {match.name} being removed from the Node{changed}"


def _opposites(status: str | None) -> frozenset[str]:
    """Return the statuses that close a cause which opened on `status`; Unknown does not."""
    return frozenset({"True", "False"} - {status})


def _id(node_uid: str, trigger: ExternalTrigger) -> str:
    digest = hashlib.sha256(f"{node_uid}/{trigger.key}".encode()).hexdigest()
    return f"{_PREFIX}{digest[:24]}"


def _incident(seen: _Match, since: float) -> IncidentStatus:
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
        evidence=(seen.evidence,),
    )


def _matches(
    node: NodeView, policy: Policy, now: float, taints: Mapping[str, NodeTaints]
) -> Iterator[_Match]:
    for trigger in policy.external:
        yield from _matches_of(node, trigger, now, taints)


def _matches_of(
    node: NodeView,
    trigger: ExternalTrigger,
    now: float,
    taints: Mapping[str, NodeTaints],
    *,
    kept_s: float = _NOTICE_KEPT_S,
) -> Iterator[_Match]:
    """Yield the match of the trigger on the node, if there is one."""
    match = trigger.match
    since: float | None = None
    if match.kind == "condition":
        found = _condition(node, match.name)
        if found is None or found.status != match.value or not _has_reason(found.reason, match):
            return
        if match.reason is None:
            # The transition time is that of the status. A reason may change without it.
            since = timestamps.parse_time(found.last_transition_time or "")
        detail = ": ".join(_short(part) for part in (found.reason, found.message) if part)
        evidence = f"condition {match.name} is {match.value}{': ' if detail else ''}{detail}"
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
        evidence = f"taint {match.name}={_short(taint.value)}:{_short(taint.effect)} is set"
    elif match.kind == "deviceTaint":
        tainted = _matching(taints.get(match.driver, resource_slices.UNKNOWN), match)
        if not tainted:
            return
        times = [timestamps.parse_time(each.taint.time_added) for each in tainted]
        since = min((at for at in times if at is not None), default=None)
        first, more = tainted[0], len({each.device for each in tainted}) - 1
        equals = f"={_short(first.taint.value)}" if first.taint.value else ""
        evidence = (
            f"device {_short(first.device)} of {match.driver} has taint "
            f"{_short(first.taint.key)}{equals}:{_short(first.taint.effect)}"
            f"{f', as have {more} other devices' if more else ''}"
        )
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
        evidence = f"{match.kind} {match.name} {shown}"
    if since is not None and since > now and trigger.before_s is None:
        # A time in the future is not usable as a start.
        since = None
    evidence = f"Node {evidence}"[:512]
    yield _Match(trigger=trigger, id=_id(node.uid, trigger), evidence=evidence, since=since)


def _condition(node: NodeView, kind: str) -> NodeCondition | None:
    """Return the node's condition; None for a report of a drain of gpuward, which is no cause."""
    found = node.condition(kind)
    return None if found is not None and found.is_drain_report else found


def _has_reason(reason: str, match: Match) -> bool:
    """Return whether the trigger takes a condition with this reason."""
    wanted = match.reason
    if wanted is None or not wanted.endswith("*"):
        return wanted in {None, reason}
    return reason.startswith(wanted[:-1])


def _matching(known: NodeTaints, match: Match) -> list[TaintedDevice]:
    """Return the device taints that match. Effect None and unknown ones only inform."""
    effects = {match.effect} if match.effect else {"NoSchedule", "NoExecute"}
    key, star = match.name.removesuffix("*"), match.name.endswith("*")
    return [
        each
        for each in known.tainted
        if (each.taint.key.startswith(key) if star else each.taint.key == key)
        and match.value in {None, each.taint.value}
        and each.taint.effect in effects
    ]


def _short(text: str) -> str:
    return printable(text[:200])


def _time(text: str) -> float | None:
    """Parse RFC 3339, or seconds since 1970 as GKE writes them; None for everything else."""
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return float(text) if float(text) <= _LAST_TIME else None
    return timestamps.parse_time(text)
