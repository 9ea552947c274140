"""Whether a pod's GPUs fit another node now: a Degraded fault must not leave work homeless.

Called for Degraded drains with the GPU pods of the selected nodes (one paged list, at most once a
minute); a Fatal drain goes on without asking.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from rules.budget import is_unavailable
from rules.pod_view import GPU_RESOURCE_PREFIX, PodView
from rules.snapshot import NodeView


def free_gpus(nodes: Iterable[NodeView], pods: Iterable[PodView]) -> Mapping[str, int]:
    """Unrequested GPUs of each schedulable node, by node name."""
    used: Counter[str] = Counter()
    for pod in pods:
        if not pod.finished:
            used[pod.spec.node_name] += pod.gpus
    return {
        node.name: max(0, _allocatable(node) - used[node.name])
        for node in nodes
        if not is_unavailable(node)
    }


def without_room(pods: Iterable[PodView], node: str, free: Mapping[str, int]) -> frozenset[str]:
    """UIDs of the node's GPU pods that no other node could take, one after the other.

    The largest first, each on the fullest node that still fits it, so that a small pod does not
    take the only place of a large one.
    """
    left = {name: count for name, count in free.items() if name != node}
    homeless = set()
    waiting = [pod for pod in pods if pod.gpus and not pod.finished and not pod.terminating]
    for pod in sorted(waiting, key=lambda p: (-p.gpus, p.key)):
        fitting = [(count, name) for name, count in left.items() if count >= pod.gpus]
        if fitting:
            _, name = min(fitting)
            left[name] -= pod.gpus
        else:
            homeless.add(pod.uid)
    return frozenset(homeless)


def _allocatable(node: NodeView) -> int:
    return sum(
        int(amount)
        for name, amount in node.status.allocatable.items()
        if name.startswith(GPU_RESOURCE_PREFIX) and amount.isdigit()
    )
