"""What a drain plan is made from and what it says: input, clock, result.

`rules.drain.plan` plans a drain. Two plans are made here: the one of a node whose pods cannot be
listed, where nobody is evicted and the session reports why, and the one of a drained node, which
names pods that came past the scheduler with `spec.nodeName`. Neither taint nor cordon stops
those; they are reported and never evicted, since whoever puts a pod there by name has a reason,
or a controller that would do it again. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api import quarantine, timestamps
from rules.api.metadata import OwnerReference
from rules.api.pods import ClaimView, OwnerView, PodView, VolumeAttachmentView, is_own_job
from rules.api.quarantine import BlockedBy, DrainStatus, PodNote
from rules.api.workloads import PdbView
from rules.api.writes import DeletePod, EvictPod, SetDisruptionTarget
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import fate
from rules.drain.fate import Fate, LeftBy, Moment
from rules.drain.memory import DrainMemory
from rules.policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainInput:
    """One uncached look at a node, with what is known about its pods' surroundings."""

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
    """UIDs of pods whose GPUs fit no other node now (asked for Degraded drains only)."""
    severity: str = "Degraded"
    drain: DrainStatus = field(default_factory=DrainStatus)
    last_active_at: float | None = None
    dry_run: bool = False
    own_namespace: str = ""


OUTAGE_S: Final = 90.0
"""A session is decided at least every 60 s; a longer silence was an outage, not a drain."""


def was_away(now: float, last_active_at: float | None) -> bool:
    """Whether nobody of gpuward decided the session for longer than happens at work: what happened
    in between was seen by nobody. False where nothing is known of the time before.
    """
    return last_active_at is not None and now - last_active_at > OUTAGE_S


def worked_since(drain: DrainStatus, now: float, last_active_at: float | None) -> float:
    """When the drain would have started had nothing suspended it, without the latest outage: what
    waits with a bound counts from here, so that no bound is used up while nobody was there.
    """
    started = timestamps.parse_time(drain.started_at)
    if started is None:
        return now
    gap_s = now - last_active_at if last_active_at is not None else 0.0
    lost_s = drain.suspended_seconds + (gap_s if was_away(now, last_active_at) else 0.0)
    return min(now, started + lost_s)


def overdue(
    drain: DrainStatus,
    severity: str,
    policy: Policy,
    now: float,
    last_active_at: float | None,
) -> bool:
    """Whether the drain has been at work for longer than the policy gives it."""
    return now - worked_since(drain, now, last_active_at) > policy.drain_timeout_s(severity)


OwnerWanted = tuple[str, OwnerReference]
"""Namespace and reference of an owner to look up (GET)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """What the last lists mean. Counts are exact; names are bounded in `status`."""

    memory: DrainMemory
    evict: tuple[EvictPod, ...] = ()
    """Who may be asked to go now, in order; the PDB queue decides who really is."""
    force: tuple[tuple[SetDisruptionTarget, DeletePod], ...] = ()
    """By policy, past the deadline: send each pair in order, one pod at a time."""
    force_due: bool = False
    """The time of a pod is over, and no eviction of it was refused yet: it is asked first."""
    force_refused: Refusal | None = None
    """Why the API server lets none of `force` be sent; those pods are asked to go as before."""
    blocked: tuple[BlockedBy, ...] = ()
    blocked_reason: WhyNot | None = None
    unseen: Refusal | None = None
    """Why the node could not be checked; nobody goes meanwhile (`rules.drain.drain_plan`)."""
    needs_human: WhyNot | None = None
    waiting: tuple[str, ...] = ()
    leaving: int = 0
    """How many pods are on their way out."""
    leaves_by: float | None = None
    """When the last of them must have gone, where one has a long grace of its own."""
    stuck: tuple[PodNote, ...] = ()
    left_by_policy: tuple[PodNote, ...] = ()
    left_by_failure: tuple[PodNote, ...] = ()
    drained: bool = False
    probed: bool = False
    """Dry run: every pod that would be evicted has its answer."""
    arrived: tuple[str, ...] | None = None
    """Pods that came after the node was drained; None where nobody watched for them."""
    using_gpus: tuple[str, ...] = ()
    """Pods on a drained node that use a GPU all the same, whoever left them there."""
    own_jobs: tuple[str, ...] = ()
    """Those of `using_gpus` that are of Jobs of gpuward: they end by themselves."""
    clear_since: float | None = None
    """Since which uncached list no pod used a GPU, in all lists up to `listed_at`."""
    others_clear_since: float | None = None
    """The same of every pod but those of Jobs of gpuward."""
    listed_at: float | None = None
    """When the drained node was last listed."""
    wake_at: float | None = None
    wants_owners: tuple[OwnerWanted, ...] = ()
    """To look up before the next plan. A node is not drained before its DaemonSets are known; one
    that may not be read counts as existing (put any `OwnerView` under its UID)."""

    def status(self, drain: DrainStatus) -> DrainStatus:
        """`drain` with this plan's progress; its clock stays."""
        refused = self.force_refused if self.unseen is None else None
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
        )


SAID_FROM: Final = 2
"""The first failure in a row is answered by looking again; saying it would be one more write."""
_NO_RIGHT: Final = frozenset({401, 403})


def not_listed(memory: DrainMemory, before: DrainPlan | None, code: int, said: str) -> DrainPlan:
    """The API server answered `code` to the list of the node's pods (0: it did not answer)."""
    clause = f"the node's pods cannot be listed ({said[:300]})"
    if code in _NO_RIGHT:
        refusal = Refusal(
            reason=WhyNot.MISSING_PERMISSION,
            why=f"{clause}, grant the remediator list on pods",
            permanent=True,
        )
    else:
        refusal = Refusal(reason=WhyNot.PODS_NOT_LISTED, why=f"{clause}, it is tried again")
    return _unseen(memory, before, refusal)


def failed(memory: DrainMemory, before: DrainPlan | None, where: str) -> DrainPlan:
    """The remediator itself failed over the node's pods, at `where`."""
    refusal = Refusal(
        reason=WhyNot.UNEXPECTED_ERROR,
        why="the remediator failed over the node's pods in a way nobody foresaw "
        f"({where}), nobody is evicted and it is tried again, report it with the log of "
        "gpuward-remediator",
        permanent=True,
    )
    return _unseen(memory, before, refusal)


def _unseen(memory: DrainMemory, before: DrainPlan | None, refusal: Refusal) -> DrainPlan:
    return DrainPlan(
        memory=replace(memory, clear_since=None),
        blocked_reason=refusal.reason,
        unseen=refusal,
        needs_human=refusal.reason if refusal.permanent else None,
        waiting=before.waiting if before is not None else (),
        left_by_policy=before.left_by_policy if before is not None else (),
        left_by_failure=before.left_by_failure if before is not None else (),
    )


_GOING = frozenset({Fate.EVICT, Fate.WAITS, Fate.STUCK})
_BY_POLICY = frozenset({LeftBy.POLICY_SKIP, LeftBy.POLICY_UNMANAGED})
LISTED_AGAIN_S: Final = (60.0, 120.0)
"""How soon a drained node is listed again: it takes no pod but one that is bound to it by name,
and an operator acts on that."""
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
    # A Job of gpuward sees all GPUs and asks the scheduler for none.
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
    verdict = fate.fate_of(pod, frozenset(), at)
    if verdict.fate in _GOING:
        return True
    # A debugging pod of the people who repair the node asks for no GPU.
    return verdict.left_by in _BY_POLICY and pod.gpus > 0 and pod.metadata.created_at > since


def _named(pod: PodView) -> str:
    controller = pod.metadata.controller
    if controller is None:
        return pod.key
    return f"{pod.key} of {controller.kind[:63]} {controller.name[:100]}"
