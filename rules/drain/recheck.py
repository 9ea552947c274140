"""The last look before one pod is asked to go: does the plan still hold for it, as it is now?

A plan is made from one list; at a low rate its evictions go out minutes later.
`remediator.controller.drains` asks here, with the pod as it was just read and the policy as it is,
right before each is sent.
"""

from __future__ import annotations

from rules.api.pods import PodView
from rules.drain.clock import overdue, worked_since
from rules.drain.drain_input import DrainInput
from rules.drain.fate import Fate, Moment, PodVerdict, fate_of
from rules.drain.plan import force_is_due
from rules.policy.policy import Policy


def kept_from_eviction(pod: PodView, look: DrainInput, policy: Policy, now: float) -> str:
    """Why the pod is not to be evicted any more; "" when it still is."""
    verdict = _fate(pod, look, policy, now)
    if verdict.fate is Fate.EVICT or _is_due(pod, verdict, look, policy, now):
        return ""
    return _sentence(verdict)


def kept_from_force(pod: PodView, look: DrainInput, policy: Policy, now: float) -> str:
    """Why the pod is not to be deleted by force any more; "" when it still is."""
    if policy.drain.on_timeout != "Force":
        return f"the policy says {policy.drain.on_timeout}"
    verdict = _fate(pod, look, policy, now)
    if verdict.fate not in {Fate.EVICT, Fate.WAITS}:
        return _sentence(verdict)
    return "" if _is_due(pod, verdict, look, policy, now) else "its time is not over"


def _is_due(
    pod: PodView, verdict: PodVerdict, look: DrainInput, policy: Policy, now: float
) -> bool:
    late = overdue(look.drain, look.severity, policy, now, look.last_active_at)
    return late and force_is_due(pod, verdict, look, policy, now)


def _fate(pod: PodView, look: DrainInput, policy: Policy, now: float) -> PodVerdict:
    moment = Moment(
        now=now,
        started_at=worked_since(look.drain, now, look.last_active_at),
        severity=look.severity,
        policy=policy,
        own_namespace=look.own_namespace,
    )
    return fate_of(pod, look.missing_owners, moment)


def _sentence(verdict: PodVerdict) -> str:
    return f"it {verdict.fate.lower()} by now{f' ({verdict.why})' if verdict.why else ''}"
