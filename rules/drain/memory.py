"""The in-memory state of a drain between two lists.

The remediator keeps one `DrainMemory` per draining session. `plan_drain` returns the next one, and
`answered` records each eviction response. Losing it in a restart costs time, but is safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api import quarantine
from rules.api.pods import PodView
from rules.api.quarantine import DrainStatus
from rules.api.writes import EvictPod
from rules.catalog.why_not import Refusal
from rules.drain.eviction import EvictionKind, EvictionOutcome

RETURNS: Final = 3
RETURN_WINDOW_S: Final = 300.0
"""A controller that recreates its pods on the node this often tolerates the taint."""
_MOST_PODS: Final = 100
"""The most pods of one controller that are counted, about what a kubelet runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainMemory:
    """The state of one drain. `evicted` is a count; the other fields are about current pods."""

    evicted: int = 0
    recent: tuple[str, ...] = ()
    outcomes: Mapping[str, EvictionOutcome] = field(default_factory=dict)
    """The last response, by pod UID."""
    owner_of: Mapping[str, str] = field(default_factory=dict)
    """Controller UID of each listed pod, by pod UID."""
    seen: frozenset[str] | None = None
    """UIDs of the last list; None before the first."""
    returns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """When a controller created a new pod on the node after an eviction, by controller UID."""
    at_once: Mapping[str, int] = field(default_factory=dict)
    """The most pods of a controller in one list, by controller UID: three pods that return once
    each are not one pod that returns three times."""
    clear_since: float | None = None
    """Since when the node has the same running pods, and none of them to evict."""
    clear_uids: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    """Claims (`namespace/name`) of the listed pods."""
    pods_gone_at: float | None = None
    detaching: bool = False
    """Volumes of evicted pods are attached and not past their timeout."""
    expected: frozenset[str] = frozenset()
    """Pods (`namespace/name`) that the previous leader was about to evict."""
    forced: tuple[str, ...] = ()
    """Pods that this process force-deleted, bounded; the session's timeline keeps them."""
    unforced: Mapping[str, Refusal] = field(default_factory=dict)
    """Refused forced deletions, by pod UID."""
    not_notified: Refusal | None = None
    """Why the API server refused the last notice that it refused."""

    @classmethod
    def resume(cls, drain: DrainStatus | None) -> DrainMemory:
        """Return the state after a restart, from the session's status.

        The status lists the pods before any eviction is sent (`announced`), so the next list shows
        which of them were evicted. With more than `MAX_NAMED` pods the status does not name all
        that were counted, so none is added.
        """
        if drain is None:
            return cls()
        expected = frozenset[str]()
        if drain.evicted <= len(drain.recent):
            blocked = (name for block in drain.blocked for name in block.pods.names)
            named = {*drain.waiting.names, *blocked}
            expected = frozenset(named - set(drain.recent))
        return cls(evicted=drain.evicted, recent=drain.recent, expected=expected)


def announced(drain: DrainStatus | None) -> bool:
    """Return whether the stored status lists the pods to evict, which comes before evictions."""
    return drain is not None and bool(drain.waiting.total or drain.blocked)


def answered(memory: DrainMemory, eviction: EvictPod, outcome: EvictionOutcome) -> DrainMemory:
    """Record the response to one eviction; dry runs do not count as evicted."""
    before = memory.outcomes.get(eviction.uid)
    if before is not None and before.of_the_moment and outcome.of_the_moment:
        outcome = replace(outcome, times=before.times + 1)
    outcomes = {**memory.outcomes, eviction.uid: outcome}
    accepted = outcome.kind is EvictionKind.ACCEPTED and not eviction.dry_run
    if not accepted or before == outcome:
        return replace(memory, outcomes=outcomes)
    return _counted(replace(memory, outcomes=outcomes), (f"{eviction.namespace}/{eviction.name}",))


def _counted(memory: DrainMemory, pods: Sequence[str]) -> DrainMemory:
    recent = (*memory.recent, *pods)[: quarantine.MAX_NAMED]
    return replace(memory, evicted=memory.evicted + len(pods), recent=recent)


def _caught_up(memory: DrainMemory, pods: tuple[PodView, ...]) -> DrainMemory:
    """Count the pods that the previous leader evicted but did not record."""
    evicted = {
        pod.key
        for pod in pods
        if pod.terminating
        and any(c.type == "DisruptionTarget" and c.status == "True" for c in pod.status.conditions)
    }
    left = sorted(memory.expected - ({pod.key for pod in pods} - evicted))
    return _counted(replace(memory, expected=frozenset()), left)


def forced(memory: DrainMemory, eviction: EvictPod) -> DrainMemory:
    """Record a pod that was force-deleted (policy `onTimeout: Force`)."""
    accepted = EvictionOutcome(kind=EvictionKind.ACCEPTED, message="force")
    names = (*memory.forced, f"{eviction.namespace}/{eviction.name}")[-quarantine.MAX_NAMED :]
    unforced = {uid: why for uid, why in memory.unforced.items() if uid != eviction.uid}
    return replace(answered(memory, eviction, accepted), forced=names, unforced=unforced)


def not_forced(memory: DrainMemory, pod_uid: str, refusal: Refusal) -> DrainMemory:
    """Record a forced deletion that the API server refused."""
    return replace(memory, unforced={**memory.unforced, pod_uid: refusal})


def not_notified(memory: DrainMemory, refusal: Refusal) -> DrainMemory:
    """Record why the API server refused a notice."""
    return replace(memory, not_notified=refusal)


def listed(memory: DrainMemory, pods: Iterable[PodView], now: float) -> DrainMemory:
    """Record the pods of the node: those that returned, and volumes that must detach."""
    pods = tuple(pods)
    memory = _caught_up(memory, pods)
    returns, at_once = dict(memory.returns), dict(memory.at_once)
    shown = Counter(c.uid for pod in pods if (c := pod.metadata.controller) is not None)
    for owner, count in shown.items():
        at_once[owner] = min(_MOST_PODS, max(count, at_once.get(owner, 0)))
    owner_of = dict(memory.owner_of)
    volumes = set(memory.volumes)
    evicted_owners = {
        owner_of[uid]
        for uid, outcome in memory.outcomes.items()
        if uid in owner_of and outcome.kind is EvictionKind.ACCEPTED
    }
    uids = set()
    for pod in pods:
        uids.add(pod.uid)
        controller = pod.metadata.controller
        if controller is None:
            continue
        first_list = memory.seen is None
        is_new = not first_list and pod.uid not in owner_of
        if is_new and controller.uid in evicted_owners and not pod.terminating:
            times = (*returns.get(controller.uid, ()), now)
            returns[controller.uid] = times[-RETURNS * _MOST_PODS :]
        owner_of[pod.uid] = controller.uid
        volumes.update(claims(pod))
    return replace(
        memory,
        seen=frozenset(uids),
        returns=returns,
        at_once=at_once,
        owner_of=owner_of,
        volumes=frozenset(volumes),
        outcomes={
            uid: outcome
            for uid, outcome in memory.outcomes.items()
            if uid in uids or outcome.kind is EvictionKind.ACCEPTED
        },
        unforced={uid: why for uid, why in memory.unforced.items() if uid in uids},
    )


def keeps_returning(memory: DrainMemory, owner_uid: str) -> bool:
    """Return whether the controller recreated its pods on the node 3 times in 5 minutes."""
    times = memory.returns.get(owner_uid, ())
    enough = RETURNS * memory.at_once.get(owner_uid, 1)
    return len(times) >= enough and times[-1] - times[-enough] <= RETURN_WINDOW_S


def claims(pod: PodView) -> tuple[str, ...]:
    """Return the pod's claims as `namespace/name`."""
    return tuple(
        f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    )
