"""Pods that came to a node after it was drained: past the scheduler, with `spec.nodeName`.

Neither taint nor cordon stops them. Called by the remediator with an uncached list of the node's
pods while a session is Quarantined. They are named to people and never evicted from here: whoever
puts a pod there by name has a reason, or a controller that would do it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules.api.pods import PodView
from rules.drain.fate import Fate, LeftBy, Moment, fate_of
from rules.drain.memory import DrainMemory
from rules.drain.plan import DrainPlan
from rules.policy.policy import Policy
from rules.validate.jobs import is_own_job

_GOING = frozenset({Fate.EVICT, Fate.WAITS, Fate.STUCK})
_BY_POLICY = frozenset({LeftBy.POLICY_SKIP, LeftBy.POLICY_UNMANAGED})
LISTED_AGAIN_S: Final = (60.0, 120.0)
"""How soon a drained node is listed again: it takes no pod but one that is bound to it by name,
and a person acts on that."""
BUSY_AGAIN_S: Final = (10.0, 20.0)
"""How soon where the last list showed who is in the way of a repair: people wait for their end."""
# The GPU Operator's validator binds its test pods to its own node, in the name of the operator's
# configuration, each time the driver or the validator restarts there. That belongs to a repair.
_VALIDATES = frozenset({("nvidia.com", "ClusterPolicy"), ("nvidia.com", "NVIDIADriver")})


def plan_watch(
    pods: Iterable[PodView],
    node: str,
    severity: str,
    policy: Policy,
    memory: DrainMemory,
    *,
    since: float,
    now: float,
    before: DrainPlan | None = None,
    certain: bool = False,
    own_namespace: str = "",
) -> DrainPlan:
    """Who arrived: all that a drain would not have left, and any new GPU pod that policy leaves.

    `since` is when the node was drained; older pods that stay by policy are on record. `before` is
    what the list before this one said; `certain`: this one is no moment old, so that a repair may
    rest on it.
    """
    at = Moment(
        now=now, started_at=since, severity=severity, policy=policy, own_namespace=own_namespace
    )
    here = [p for p in sorted(pods, key=lambda pod: pod.key) if p.spec.node_name == node]
    arrived = tuple(_named(pod) for pod in here if _arrived(pod, at, since))
    running = [pod for pod in here if not pod.finished]
    # A Job of ours sees all GPUs and asks the scheduler for none.
    own = {_named(pod) for pod in running if is_own_job(pod, own_namespace)}
    using = {_named(pod) for pod in running if pod.gpus > 0 or pod.doubt}
    others_clear = certain and not arrived and not using - own
    clear_since = before.clear_since if before is not None else None
    others_since = before.others_clear_since if before is not None else None
    return DrainPlan(
        memory=memory,
        arrived=arrived,
        using_gpus=tuple(sorted(using | own)),
        own_jobs=tuple(sorted(own)),
        clear_since=(clear_since or now) if others_clear and not own else None,
        others_clear_since=(others_since or now) if others_clear else None,
        listed_at=now,
    )


def listed_again_s(plan: DrainPlan) -> tuple[float, float]:
    """After how many seconds, at least and at most, a list that nothing rests on is made again."""
    return BUSY_AGAIN_S if plan.arrived or plan.using_gpus else LISTED_AGAIN_S


def _arrived(pod: PodView, at: Moment, since: float) -> bool:
    controller = pod.metadata.controller
    if controller is not None and (controller.group, controller.kind) in _VALIDATES:
        return False
    verdict = fate_of(pod, frozenset(), at)
    if verdict.fate in _GOING:
        return True
    # A debugging pod of the people who repair the node asks for no GPU.
    return verdict.left_by in _BY_POLICY and pod.gpus > 0 and pod.metadata.created_at > since


def _named(pod: PodView) -> str:
    controller = pod.metadata.controller
    if controller is None:
        return pod.key
    return f"{pod.key} of {controller.kind[:63]} {controller.name[:100]}"
