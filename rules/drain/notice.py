"""Notify pods of their eviction before a drain evicts the first one (policy `drain.notice`).

`status.drain.noticeSeconds` is recorded when the drain begins, so a new leader continues. A halt
or an outage moves the end of the notice, and the pods get the new time. A notice is withdrawn when
the drain leaves its pod or ends, and in mode Shadow.
"""

from collections.abc import Iterable
from typing import Final

from rules.api import names, timestamps
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import Phase
from rules.api.writes import NotifyPod
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import drain_plan
from rules.drain.drain_plan import DrainInput
from rules.drain.fate import Fate, PodAssessment
from rules.policy.policy import Policy

WITHDRAWN_WITHIN_S: Final = 3600.0
"""A new leader withdraws the notices of sessions that stopped draining within this time."""


def due(
    given: DrainInput,
    assessments: Iterable[tuple[PodView, PodAssessment]],
    policy: Policy,
    now: float,
) -> tuple[float | None, tuple[NotifyPod, ...]]:
    """Return when evictions start, None if they may start now, and the notices to write or to
    withdraw before.
    """
    starts_at = drain_plan.evicts_from(given.drain, now, given.last_active_at)
    if given.dry_run or not given.drain.notice_seconds or starts_at is None:
        return None, ()
    until = starts_at if now < starts_at else None
    # After an outage the session's status must have the lost time first.
    if drain_plan.was_away(now, given.last_active_at):
        return until, ()
    leaving: list[PodView] = []
    staying: list[PodView] = []
    for pod, assessment in assessments:
        (leaving if _will_leave(pod, assessment, policy) else staying).append(pod)
    undone = withdrawn(given.node, staying, now)
    if until is None:
        return None, undone
    at = timestamps.format_time(until)
    why = f"gpuward will evict the pod from node {given.node}, session {given.session}."
    missing = (p for p in leaving if p.metadata.annotations.get(names.ANNOTATION_DRAIN_AT) != at)
    return until, (*undone, *(_write(given.node, pod, now, until, why) for pod in missing))


def _will_leave(pod: PodView, assessment: PodAssessment, policy: Policy) -> bool:
    """Return whether the drain evicts the pod, now or at a known time."""
    if pod.doubt or assessment.fate not in {Fate.EVICT, Fate.WAITS}:
        return False
    forced = policy.drain.on_timeout == "Force"
    return assessment.fate is Fate.EVICT or assessment.until is not None or forced


def withdrawn(node: str, pods: Iterable[PodView], now: float) -> tuple[NotifyPod, ...]:
    """Return the writes that withdraw the notices on these pods."""
    why = "The drain of the node ended, or does not evict the pod."
    return tuple(_write(node, pod, now, None, why) for pod in pods if _notified(pod))


def _notified(pod: PodView) -> bool:
    """Return whether a running pod has a notice."""
    planned = names.CONDITION_DRAIN_PLANNED
    return not (pod.terminating or pod.finished) and (
        names.ANNOTATION_DRAIN_AT in pod.metadata.annotations
        or any(c.type == planned and c.status == "True" for c in pod.status.conditions)
    )


def _write(node: str, pod: PodView, now: float, drain_at: float | None, message: str) -> NotifyPod:
    return NotifyPod(
        node=node,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.uid,
        at=now,
        drain_at=drain_at,
        message=message,
    )


def had_notice(session: QuarantineView) -> bool:
    """Return whether the session's drain began with a notice."""
    return session.status.drain is not None and session.status.drain.notice_seconds > 0


def to_withdraw(session: QuarantineView, shadow: bool, now: float) -> bool:
    """Return whether the notices of a session with `had_notice` have to be withdrawn.

    `shadow`: the policy of the node is in Shadow, which stops its drain.
    """
    status = session.status
    if status.phase == Phase.DRAINING:
        return shadow
    since = timestamps.parse_time(status.phase_since)
    return since is not None and now - since <= WITHDRAWN_WITHIN_S


def drains(sessions: Iterable[QuarantineView], shadow: bool) -> bool:
    """Return whether one of the node's sessions drains it."""
    return not shadow and any(session.status.phase == Phase.DRAINING for session in sessions)


def refusal(write: NotifyPod, code: int, message: str) -> Refusal:
    """Return why the pod is not notified, after the API server refused its notice."""
    forbidden = code in {401, 403}
    return Refusal(
        reason=WhyNot.MISSING_PERMISSION if forbidden else WhyNot.EVICTION_REFUSED,
        why=f"pod {write.namespace}/{write.name} is not notified ({message[:200]})",
        remedy="Add component notice, or remove drain.notice from the policy"
        if forbidden
        else "Change the admission policy or webhook",
    )
