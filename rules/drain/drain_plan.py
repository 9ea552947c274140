"""The input, the timeout and the result of a drain plan.

`rules.drain.plan` plans a drain. This module makes two other plans. For a node whose pods cannot
be listed, no pod is evicted and the session reports why. For a drained node, the plan lists pods
that `spec.nodeName` bound to it without the scheduler. Neither taint nor cordon stops those pods.
They are reported and never evicted, because their controller would create them again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api import messages, names, quarantine, timestamps, workloads
from rules.api.metadata import OwnerReference
from rules.api.pods import ClaimView, OwnerView, PodView, VolumeAttachmentView, is_own_job
from rules.api.quarantine import BlockedBy, DrainStatus, PodNote
from rules.api.workloads import PdbView
from rules.api.writes import DeletePod, EvictPod, NotifyPod, SetDisruptionTarget
from rules.catalog.reason import DrainScope
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import fate
from rules.drain.fate import Fate, LeftBy, Moment
from rules.drain.memory import DrainMemory
from rules.policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainInput:
    """The pods of a node, with their PDBs, owners and volumes."""

    node: str
    session: str
    pods: tuple[PodView, ...]
    pdbs: tuple[PdbView, ...] = ()
    owners: Mapping[str, OwnerView] = field(default_factory=dict)
    """Owners that were read, by UID."""
    missing_owners: frozenset[str] = frozenset()
    """Owner UIDs that a GET answered with 404 or another UID."""
    attachments: tuple[VolumeAttachmentView, ...] = ()
    """VolumeAttachments of this node."""
    claims: Mapping[str, ClaimView] = field(default_factory=dict)
    """PersistentVolumeClaims by `namespace/name`."""
    no_room: frozenset[str] = frozenset()
    """UIDs of pods whose GPUs fit no other node now; Degraded drains only."""
    severity: str = "Degraded"
    drain: DrainStatus = field(default_factory=DrainStatus)
    last_active_at: float | None = None
    dry_run: bool = False
    own_namespace: str = ""
    scope: DrainScope = DrainScope.NODE
    accused: frozenset[str] = frozenset()
    """UUIDs of the GPUs that the causes name."""
    certain: bool = True
    """The pods come from an uncached list, or from a watch that shows the same."""


OUTAGE_S: Final = 90.0
"""A session is decided at least every 60 s. A longer gap is an outage of the remediator."""


def was_away(now: float, last_active_at: float | None) -> bool:
    """Return whether the remediator was away for longer than `OUTAGE_S`; False if the last
    decision is unknown.
    """
    return last_active_at is not None and now - last_active_at > OUTAGE_S


def worked_since(drain: DrainStatus, now: float, last_active_at: float | None) -> float:
    """Return the start of evictions, or now if they have not started. Timeouts count from here, so
    neither the notice nor an outage uses up any of them.
    """
    starts_at = evicts_from(drain, now, last_active_at)
    return now if starts_at is None else min(now, starts_at)


def evicts_from(drain: DrainStatus, now: float, last_active_at: float | None) -> float | None:
    """Return when evictions start: the start of the drain, moved by the notice, by suspended time
    and by the latest outage. None before the drain.
    """
    started = timestamps.parse_time(drain.started_at)
    if started is None:
        return None
    gap_s = now - last_active_at if last_active_at is not None else 0.0
    lost_s = drain.suspended_seconds + (gap_s if was_away(now, last_active_at) else 0.0)
    return started + lost_s + drain.notice_seconds


def overdue(
    drain: DrainStatus,
    severity: str,
    policy: Policy,
    now: float,
    last_active_at: float | None,
) -> bool:
    """Return whether the drain has worked for longer than its timeout."""
    return now - worked_since(drain, now, last_active_at) > policy.drain_timeout_s(severity)


OwnerWanted = tuple[str, OwnerReference]
"""Namespace and reference of an owner to read (GET)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """The plan for the last known pods. Counts are exact; `status` bounds the names."""

    memory: DrainMemory
    evict: tuple[EvictPod, ...] = ()
    """Pods that may be evicted now, in order. The PDB queue decides which ones are."""
    force: tuple[tuple[SetDisruptionTarget, DeletePod], ...] = ()
    """Forced deletions after the timeout: each pair is sent in order, one pod at a time."""
    notify: tuple[NotifyPod, ...] = ()
    """Notices to write now (`rules.drain.notice`)."""
    notice_until: float | None = None
    """When the notice is over and evictions start; None if they may start now."""
    not_notified: Refusal | None = None
    """Why the API server refused a notice."""
    force_due: bool = False
    """The timeout of a pod has passed, but no eviction of it was refused yet: evict it first."""
    force_refused: Refusal | None = None
    """Why the API server refuses forced deletion. Those pods are evicted as before."""
    blocked: tuple[BlockedBy, ...] = ()
    blocked_reason: WhyNot | None = None
    blocked_until: float | None = None
    """When the last blocker expires; None if one has no time limit."""
    unlisted: Refusal | None = None
    """Why the node's pods could not be listed. No pod is evicted meanwhile."""
    needs_human: WhyNot | None = None
    waiting: tuple[str, ...] = ()
    leaving: int = 0
    """How many pods terminate. Without a watch they are listed more often."""
    leaves_by: float | None = None
    """When the last of them must have terminated, if one has a long grace period."""
    stuck: tuple[PodNote, ...] = ()
    left_by_policy: tuple[PodNote, ...] = ()
    left_by_failure: tuple[PodNote, ...] = ()
    drained: bool = False
    probed: bool = False
    """Dry run: every eviction has a response."""
    arrived: tuple[str, ...] | None = None
    """Pods that were bound to the node after it was drained; None if the pods were not listed."""
    using_gpus: tuple[str, ...] = ()
    """Pods on a drained node that use a GPU."""
    own_jobs: tuple[str, ...] = ()
    """Those of `using_gpus` that belong to Jobs of gpuward, which end by themselves."""
    claimants: tuple[PodView, ...] = ()
    """Pods on a drained node with ResourceClaims."""
    clear_since: float | None = None
    """Since when no pod uses a GPU, by each certain reading of the pods up to `listed_at`."""
    others_clear_since: float | None = None
    """The same without the pods of gpuward's Jobs."""
    listed_at: float | None = None
    """When the drained node was last listed."""
    wake_at: float | None = None
    wants_owners: tuple[OwnerWanted, ...] = ()
    """Owners to read before the next plan. A node is not drained before its DaemonSets are known.
    One that gpuward may not read counts as existing (put any `OwnerView` under its UID)."""
    unknown: tuple[str, ...] = ()
    """Pods that leave under scope Holders because it is not known which GPUs they use."""

    def status(self, drain: DrainStatus) -> DrainStatus:
        """Return `drain` with the progress of this plan and the same start."""
        refused = self.force_refused if self.unlisted is None else None
        return DrainStatus(
            evicted=self.memory.evicted,
            recent=self.memory.recent,
            waiting=quarantine.pods_of(PodNote(name=name) for name in self.waiting),
            blocked=self.blocked[: quarantine.MAX_NAMED],
            left_by_policy=quarantine.pods_of(self.left_by_policy),
            left_by_failure=quarantine.pods_of(self.left_by_failure),
            force_refused=str(refused.reason) if refused is not None else "",
            started_at=drain.started_at,
            suspended_seconds=drain.suspended_seconds,
            scope=drain.scope,
            scope_reason=messages.holders_unknown(self.unknown) or drain.scope_reason,
            notice_seconds=drain.notice_seconds,
        )


REPORTED_FROM: Final = 2
"""After one failure the pods are only listed again. A report would be one more write."""
_NO_RIGHT: Final = frozenset({401, 403})


def not_listed(
    memory: DrainMemory, before: DrainPlan | None, code: int, message: str
) -> DrainPlan:
    """Return the plan after the list of pods failed with `code` (0: no response)."""
    clause = f"the node's pods cannot be listed ({message[:300]})"
    if code in _NO_RIGHT:
        refusal = Refusal(
            reason=WhyNot.MISSING_PERMISSION,
            why=f"{clause}. Grant the remediator list on pods",
            permanent=True,
        )
    else:
        refusal = Refusal(reason=WhyNot.PODS_NOT_LISTED, why=f"{clause}. The list is retried")
    return _unlisted(memory, before, refusal)


def failed(memory: DrainMemory, before: DrainPlan | None, where: str) -> DrainPlan:
    """Return the plan after an unexpected error of the remediator at `where`."""
    refusal = Refusal(
        reason=WhyNot.UNEXPECTED_ERROR,
        why=f"unexpected error while handling the node's pods ({where}). No pod is evicted until "
        "a retry succeeds. Report it with the log of gpuward-remediator",
        permanent=True,
    )
    return _unlisted(memory, before, refusal)


def _unlisted(memory: DrainMemory, before: DrainPlan | None, refusal: Refusal) -> DrainPlan:
    return DrainPlan(
        memory=replace(memory, clear_since=None),
        blocked_reason=refusal.reason,
        unlisted=refusal,
        needs_human=refusal.reason if refusal.permanent else None,
        waiting=before.waiting if before is not None else (),
        left_by_policy=before.left_by_policy if before is not None else (),
        left_by_failure=before.left_by_failure if before is not None else (),
    )


_GOING = frozenset({Fate.EVICT, Fate.WAITS, Fate.STUCK})
_BY_POLICY = frozenset({LeftBy.POLICY_SKIP, LeftBy.POLICY_UNMANAGED})
LISTED_AGAIN_S: Final = (60.0, 120.0)
"""How soon a drained node is listed again. It gets only pods that are bound to it by name."""
BUSY_AGAIN_S: Final = (10.0, 20.0)
"""How soon a drained node is listed again while its pods block a repair."""
# The GPU Operator's validator binds test pods to its own node each time the driver or the
# validator restarts there. Their owner is the operator's configuration. That is part of a repair.
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
    scope: DrainScope = DrainScope.NODE,
    accused: frozenset[str] = frozenset(),
) -> DrainPlan:
    """Return the plan of a drained node with the pods that arrived since.

    Those are all pods that a drain would evict, and new GPU pods that the policy leaves. `since`
    is when the node was drained: older pods that stay by policy are on record. `before` is the
    plan of the previous list. `certain`: the list is fresh enough for a repair.
    """
    at = Moment(
        now=now,
        started_at=since,
        severity=severity,
        policy=policy,
        own_namespace=own_namespace,
        scope=scope,
        accused=accused,
    )
    here = [p for p in sorted(pods, key=lambda pod: pod.key) if p.spec.node_name == node]
    arrived = tuple(_named(pod) for pod in here if _arrived(pod, at, since))
    running = [pod for pod in here if not pod.finished]
    # A Job of gpuward uses all GPUs but requests none.
    own = {_named(pod) for pod in running if is_own_job(pod, own_namespace)}
    using = {
        _named(pod)
        for pod in running
        if (pod.gpus > 0 or pod.held or pod.doubt) and not fate.is_outside(pod, at)
    }
    others_clear = certain and not arrived and not using - own
    clear_since = before.clear_since if before is not None else None
    others_since = before.others_clear_since if before is not None else None
    return DrainPlan(
        memory=memory,
        arrived=arrived,
        using_gpus=tuple(sorted(using | own)),
        own_jobs=tuple(sorted(own)),
        claimants=claimants(here),
        clear_since=(clear_since or now) if others_clear and not own else None,
        others_clear_since=(others_since or now) if others_clear else None,
        listed_at=now,
    )


def with_idle(plan: DrainPlan, given: DrainInput, policy: Policy, now: float) -> DrainPlan:
    """Return the plan of a drained node with the pods that use its GPUs, so that a repair needs no
    other list. The node had the same running pods since `memory.clear_since`.
    """
    since = plan.memory.clear_since
    idle = plan_watch(
        given.pods,
        given.node,
        given.severity,
        policy,
        plan.memory,
        since=now,
        now=now,
        before=replace(plan, clear_since=since, others_clear_since=since),
        certain=True,
        own_namespace=given.own_namespace,
        scope=given.scope,
        accused=given.accused,
    )
    return replace(
        plan,
        using_gpus=idle.using_gpus,
        own_jobs=idle.own_jobs,
        claimants=idle.claimants,
        clear_since=idle.clear_since,
        others_clear_since=idle.others_clear_since,
        arrived=idle.arrived,
        listed_at=now,
    )


def claimants(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """Return the pods whose ResourceClaims the kubelet has not released."""
    live = (pod for pod in pods if pod.terminating or not pod.finished)
    return tuple(pod for pod in live if workloads.claim_names(pod))


def leaving_claimants(plan: DrainPlan | None, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the pods with ResourceClaims that terminate, or will because gpuward paused a label
    that they select a node by.
    """
    return tuple(
        pod.key
        for pod in (plan.claimants if plan is not None else ())
        if pod.terminating
        or any(labels.get(key) == names.PAUSED_BY_US for key in pod.spec.node_selector)
    )


def listed_again_s(plan: DrainPlan) -> tuple[float, float]:
    """Return after how many seconds, at least and at most, a drained node is listed again."""
    return BUSY_AGAIN_S if plan.arrived or plan.using_gpus else LISTED_AGAIN_S


def _arrived(pod: PodView, at: Moment, since: float) -> bool:
    controller = pod.metadata.controller
    if controller is not None and (controller.group, controller.kind) in _VALIDATES:
        return False
    assessment = fate.fate_of(pod, frozenset(), at)
    if assessment.fate in _GOING:
        return True
    # A debugging pod for the repair requests no GPU.
    return assessment.left_by in _BY_POLICY and pod.gpus > 0 and pod.metadata.created_at > since


def _named(pod: PodView) -> str:
    controller = pod.metadata.controller
    if controller is None:
        return pod.key
    return f"{pod.key} of {controller.kind[:63]} {controller.name[:100]}"
