"""Whether a pod's GPUs fit another node now: a Degraded fault must not leave work homeless.

Called for Degraded drains with what the remediator counted; a Fatal drain goes on without asking.
Affinity, quotas and taints of others are the scheduler's business, so "there is room" is a hope,
while "no room" is certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rules.api.nodes import NodeView
from rules.api.pods import PodView, gpu_amounts
from rules.drain.availability import is_unavailable


def free_gpus(nodes: Iterable[NodeView], used: Mapping[str, int]) -> Mapping[str, int]:
    """Unrequested GPUs of each node that takes pods, by node name; `used` are the requests."""
    return {
        node.name: max(0, _allocatable(node) - used.get(node.name, 0))
        for node in nodes
        if not is_unavailable(node)
    }


def asks_for_room(pod: PodView) -> bool:
    """Whether the pod would need GPUs elsewhere if it were evicted now."""
    return bool(pod.gpus) and not pod.finished and not pod.terminating


def without_room(
    pods: Iterable[PodView], node: str, free: Mapping[str, int], moving: Iterable[int] = ()
) -> frozenset[str]:
    """UIDs of the node's GPU pods that no other node could take, one after the other.

    The largest first, each on the fullest node that still fits it, so that a small pod does not
    take the only place of a large one. `moving` are the GPUs of pods that left a node a moment
    ago and may not be counted where they went: they are placed before.
    """
    left = {name: count for name, count in free.items() if name != node}
    for gpus in sorted(moving, reverse=True):
        _place(gpus, left)
    waiting = sorted(filter(asks_for_room, pods), key=lambda p: (-p.gpus, p.key))
    return frozenset(pod.uid for pod in waiting if not _place(pod.gpus, left))


def _place(gpus: int, left: dict[str, int]) -> bool:
    fitting = [(count, name) for name, count in left.items() if count >= gpus]
    if not fitting:
        return False
    _, name = min(fitting)
    left[name] -= gpus
    return True


def _allocatable(node: NodeView) -> int:
    return sum(gpu_amounts(node.status.allocatable).values())
