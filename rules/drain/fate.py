"""Decide for each pod of a draining node whether it is evicted, stays or waits, and why.

`rules.drain.plan` calls this for every pod of the node. The checks are in order of
precedence: pods that can never be evicted first, then the policy.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rules.api import pods, selectors, timestamps
from rules.api.metadata import OwnerReference
from rules.api.pods import ContainerStatus, PodView
from rules.catalog.reason import DrainScope, Severity
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy import section
from rules.policy.policy import PodRule, Policy

MIRROR: Final = "kubernetes.io/config.mirror"
KARPENTER_HOLD: Final = "karpenter.sh/do-not-disrupt"
AUTOSCALER_HOLD: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
STUCK_AFTER_S: Final = 60.0
"""Extra seconds after deletionTimestamp, which already includes the pod's grace period."""
DO_NOT_DISRUPT_S: Final = {Severity.FATAL: 600.0, Severity.DEGRADED: 86_400.0}
"""Seconds for which do-not-disrupt annotations are respected, by severity of the session: ten
minutes for a checkpoint if the GPU is lost, a day if the work may still complete."""
LONG_GRACE_S: Final = 120
"""Grace periods from here on are reported: four times the default of a pod."""
_SYSTEM_PRIORITY: Final = 2_000_000_000
_NO_RULE: Final = PodRule()


class Fate(StrEnum):
    """What happens to a pod of a draining node."""

    EVICT = "Evict"
    STAYS = "Stays"
    """Left by policy or by kind; listed in `leftByPolicy` if `why` is not empty."""
    WAITS = "Waits"
    """Evicted later: a job that completes, an annotation that is respected for a while."""
    LEAVING = "Leaving"
    STUCK = "Stuck"
    """Terminating for too long."""
    OVER = "Over"
    """Its containers have ended and only a finalizer keeps the object: the drain does not wait."""


class LeftBy(StrEnum):
    """Why a running pod stays on the node, as the status lists it."""

    STATIC_POD = "static pod"
    DAEMON_SET = "DaemonSet"
    POLICY_SKIP = "policy Skip"
    POLICY_UNMANAGED = "unmanaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAssessment:
    """One pod's fate. `until` is when it stops waiting or terminating."""

    fate: Fate
    why: str = ""
    left_by: LeftBy | None = None
    refusal: Refusal | None = None
    """Why a pod waits."""
    until: float | None = None
    leaves_by: float | None = None
    """When the grace period of a terminating pod ends, if it is long enough for a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of the drain that matters to a single pod."""

    now: float
    started_at: float
    severity: str
    policy: Policy
    own_namespace: str = ""
    """The namespace in which gpuward's load tests run."""
    scope: DrainScope = DrainScope.NODE
    accused: frozenset[str] = frozenset()
    """UUIDs of the GPUs that the causes name; for scope Holders."""


def fate_of(pod: PodView, missing: frozenset[str], at: Moment) -> PodAssessment:
    """Return what happens to `pod`. `missing` are owner UIDs that do not exist any more."""
    if _is_mirror(pod):
        return _left(LeftBy.STATIC_POD)
    if pod.finished and not (pod.terminating and pod.metadata.finalizers):
        return PodAssessment(fate=Fate.STAYS)
    controller = pod.metadata.controller
    if controller is not None and _is_daemon(controller) and controller.uid not in missing:
        return _left(LeftBy.DAEMON_SET)
    if is_outside(pod, at):
        return PodAssessment(fate=Fate.STAYS)
    if pod.terminating:
        return _leaving(pod, at.now)
    if pods.is_own_job(pod, at.own_namespace):
        # The session ends it.
        return PodAssessment(fate=Fate.STAYS)
    if pod.doubt:
        return _waits(
            Refusal(
                reason=WhyNot.POD_UNREADABLE,
                why=f"parts of it cannot be read ({pod.doubt})",
                permanent=True,
                remedy="update gpuward, or delete the pod manually",
            )
        )
    rule = pod_rule(pod, at.policy)
    if rule.strategy == "Skip":
        return _left(LeftBy.POLICY_SKIP)
    if controller is None and at.policy.drain.unmanaged == "Report":
        return _left(LeftBy.POLICY_UNMANAGED)
    return _held(pod, at) or _completing(rule, at) or PodAssessment(fate=Fate.EVICT)


def is_outside(pod: PodView, at: Moment) -> bool:
    """Return whether the scope of the drain leaves the pod: it uses no GPU, or no accused one."""
    if at.scope is DrainScope.NODE or pod.doubt:
        return False
    if not pod.gpus and not pod.held:
        return True
    return (
        at.scope is DrainScope.HOLDERS
        and pod.held is not None
        and bool(at.accused)
        and pod.held.isdisjoint(at.accused)
    )


def _left(by: LeftBy) -> PodAssessment:
    return PodAssessment(fate=Fate.STAYS, why=by, left_by=by)


def _waits(refusal: Refusal) -> PodAssessment:
    return PodAssessment(fate=Fate.WAITS, why=refusal.why, refusal=refusal, until=refusal.until)


def is_critical(pod: PodView) -> bool:
    """Return whether other pods of the node may need this one until they are gone."""
    name = pod.spec.priority_class_name
    return name in {"system-node-critical", "system-cluster-critical"} or (
        (pod.spec.priority or 0) >= _SYSTEM_PRIORITY
    )


def pod_rule(pod: PodView, policy: Policy) -> PodRule:
    """Return the first rule of the policy that covers the pod."""
    for rule in policy.pods:
        if rule.namespaces and pod.metadata.namespace not in rule.namespaces:
            continue
        if selectors.parse_selector(rule.selector)(pod.metadata.labels):
            return rule
    return _NO_RULE


def belongs_to_node(pod: PodView) -> bool:
    """Return whether it is a static pod or one of a DaemonSet: a drain leaves it there."""
    controller = pod.metadata.controller
    return _is_mirror(pod) or (controller is not None and _is_daemon(controller))


def _is_daemon(controller: OwnerReference) -> bool:
    # Of any API group: OpenKruise's DaemonSets (apps.kruise.io) tolerate a cordon, too.
    return controller.kind == "DaemonSet"


def _is_mirror(pod: PodView) -> bool:
    return MIRROR in pod.metadata.annotations or any(
        owner.kind == "Node" and owner.group == "" for owner in pod.metadata.owner_references
    )


def _leaving(pod: PodView, now: float) -> PodAssessment:
    deleted_at = timestamps.parse_time(pod.metadata.deletion_timestamp or "") or now
    stuck_at = deleted_at + STUCK_AFTER_S
    if now < stuck_at:
        long = (pod.metadata.deletion_grace_period_seconds or 0) >= LONG_GRACE_S
        leaves_by = deleted_at if long and now < deleted_at else None
        return PodAssessment(fate=Fate.LEAVING, until=stuck_at, leaves_by=leaves_by)
    if pod.metadata.finalizers and _ended(pod):
        names = ", ".join(sorted(pod.metadata.finalizers)[:2])[:200]
        why = f"its containers have ended, but finalizer {names} keeps the object"
        return PodAssessment(fate=Fate.OVER, why=why)
    running = sorted(s.name for s in _statuses(pod) if s.state.running is not None)
    what = f"container {running[0][:63]} runs" if running else "the kubelet has not removed it"
    return PodAssessment(fate=Fate.STUCK, why=f"{what} after its grace period")


def _ended(pod: PodView) -> bool:
    """Return whether no container of the pod can use a device any more.

    The kubelet sets the last phase before it removes the object, so a pod with a finalizer looks
    finished.
    """
    own = pod.status.container_statuses
    ended = bool(own) and all(s.state.terminated is not None for s in own)
    return pod.finished or (ended and not any(s.state.running is not None for s in _statuses(pod)))


def _statuses(pod: PodView) -> tuple[ContainerStatus, ...]:
    """Return the statuses of all its containers, since sidecars may use devices, too."""
    status = pod.status
    return (
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    )


def _held(pod: PodView, at: Moment) -> PodAssessment | None:
    """Return whether a do-not-disrupt annotation delays the pod, up to a limit by severity."""
    annotations = pod.metadata.annotations
    fatal = at.severity == Severity.FATAL
    bound = at.started_at + DO_NOT_DISRUPT_S[Severity.FATAL if fatal else Severity.DEGRADED]
    holds: list[tuple[float, str]] = []
    if annotations.get(AUTOSCALER_HOLD) == "false":
        holds.append((bound, AUTOSCALER_HOLD))
    value = annotations.get(KARPENTER_HOLD)
    if value == "true":
        holds.append((bound, KARPENTER_HOLD))
    elif value is not None and (asked := _own_time(pod, value)) is not None:
        holds.append((min(bound, asked), KARPENTER_HOLD))
    # Of two annotations the longer time counts.
    until, annotation = max(holds, default=(at.now, ""))
    if not annotation or at.now >= until:
        return None
    return _waits(
        Refusal(
            reason=WhyNot.DO_NOT_DISRUPT,
            why=f"annotation {annotation} delays its eviction",
            until=until,
            remedy="remove the annotation to evict the pod earlier",
        )
    )


def _own_time(pod: PodView, value: str) -> float | None:
    """Return the pod's start plus the duration `value`; None for an invalid value."""
    try:
        length_s = section.parse_duration(value)
    except ValueError:
        return None
    started = timestamps.parse_time(pod.status.start_time or "")
    return None if started is None else started + length_s


def _completing(rule: PodRule, at: Moment) -> PodAssessment | None:
    if rule.strategy != "WaitCompleted":
        return None
    until = None if rule.max_wait_s is None else at.started_at + rule.max_wait_s
    if until is not None and at.now >= until:
        return None
    limit = " within maxWait" if until is not None else ""
    why = f"the pod may complete{limit} (policy WaitCompleted)"
    return _waits(Refusal(reason=WhyNot.WAIT_COMPLETED, why=why, until=until))
