"""What a running drain remembers between two lists. Losing it (a restart) costs time, never safety.

Pure state: the edge keeps one ``DrainMemory`` per draining session, hands it to ``plan_drain`` and
keeps the one it gets back; ``answered`` books each eviction answer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api.pods import PodView
from rules.api.quarantine import MAX_RECENT, DrainStatus
from rules.api.writes import EvictPod
from rules.drain.eviction import EvictionKind, EvictionOutcome

RETURNS: Final = 3
RETURN_WINDOW_S: Final = 300.0
"""A controller that puts its pod back on the node so often tolerates the quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainMemory:
    """One drain's memory. ``evicted`` is a count, everything else is about pods still in play."""

    evicted: int = 0
    recent: tuple[str, ...] = ()
    outcomes: Mapping[str, EvictionOutcome] = field(default_factory=dict)
    """The last answer, by pod UID."""
    owner_of: Mapping[str, str] = field(default_factory=dict)
    """Controller UID of each pod that was asked to go, by pod UID."""
    seen: frozenset[str] | None = None
    """UIDs of the last list; None before the first."""
    returns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """When a controller put a new pod on the node after one was evicted, by controller UID."""
    clear_since: float | None = None
    """Since when every list was the same and had nothing left to evict."""
    clear_uids: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    """Claims (``namespace/name``) of the pods that were asked to go."""
    pods_gone_at: float | None = None
    forced: tuple[str, ...] = ()
    """Pods deleted by force in this process, bounded; the session's timeline keeps them."""

    @classmethod
    def resume(cls, drain: DrainStatus | None) -> "DrainMemory":
        """Go on from what the session's status says."""
        if drain is None:
            return cls()
        return cls(evicted=drain.evicted, recent=drain.recent)


def answered(memory: DrainMemory, eviction: EvictPod, outcome: EvictionOutcome) -> DrainMemory:
    """Book the answer to one eviction; dry runs count nothing as evicted."""
    outcomes = {**memory.outcomes, eviction.uid: outcome}
    accepted = outcome.kind is EvictionKind.ACCEPTED and not eviction.dry_run
    if not accepted or memory.outcomes.get(eviction.uid) == outcome:
        return replace(memory, outcomes=outcomes)
    recent = memory.recent
    if len(recent) < MAX_RECENT:
        recent = (*recent, f"{eviction.namespace}/{eviction.name}")
    return replace(memory, outcomes=outcomes, evicted=memory.evicted + 1, recent=recent)


def forced(memory: DrainMemory, eviction: EvictPod) -> DrainMemory:
    """Book a pod that was deleted by force (policy ``onTimeout: Force``)."""
    accepted = EvictionOutcome(kind=EvictionKind.ACCEPTED, message="force")
    names = (*memory.forced, f"{eviction.namespace}/{eviction.name}")[-MAX_RECENT:]
    return replace(answered(memory, eviction, accepted), forced=names)


def listed(memory: DrainMemory, pods: Iterable[PodView], now: float) -> DrainMemory:
    """Book a new uncached list: who came back, and whose volumes must detach."""
    returns = dict(memory.returns)
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
            returns[controller.uid] = times[-RETURNS:]
        owner_of[pod.uid] = controller.uid
        volumes.update(claims(pod))
    return replace(
        memory,
        seen=frozenset(uids),
        returns=returns,
        owner_of=owner_of,
        volumes=frozenset(volumes),
        outcomes={
            uid: outcome
            for uid, outcome in memory.outcomes.items()
            if uid in uids or outcome.kind is EvictionKind.ACCEPTED
        },
    )


def keeps_returning(memory: DrainMemory, owner_uid: str) -> bool:
    """Whether the controller put pods back on the node three times within five minutes."""
    times = memory.returns.get(owner_uid, ())
    return len(times) >= RETURNS and times[-1] - times[0] <= RETURN_WINDOW_S


def claims(pod: PodView) -> tuple[str, ...]:
    """The pod's claims as ``namespace/name``."""
    return tuple(
        f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    )
