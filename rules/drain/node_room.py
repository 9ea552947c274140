"""Find free GPUs on other nodes, and DaemonSets that do not tolerate the quarantine taint.

Only Degraded drains need free GPUs, counted by `remediator`; a Fatal drain does not wait.
Affinity, quotas and other taints are left to the scheduler: "no free GPUs" is certain, "free GPUs"
is not.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rules.api import accelerators, names, quarantine_taint, timestamps
from rules.api.nodes import NodeView
from rules.api.pods import DaemonSetView, PodView, Toleration, gpu_amounts

YOUNG_S: Final = 3600.0
"""A younger node that was never Ready is still being built and does not count as capacity."""


_FIRST_REPORT_S: Final = 30.0
"""A Ready condition that last changed this soon after the node's creation was never True."""


def being_built(node: NodeView, now: float) -> bool:
    """Return whether the node is young and was never Ready: it does not count in the budget."""
    if node.ready == "True" or now - node.metadata.created_at > YOUNG_S:
        return False
    condition = node.condition("Ready")
    if condition is None:
        return True
    changed = timestamps.parse_time(condition.last_transition_time or "")
    return changed is None or changed - node.metadata.created_at <= _FIRST_REPORT_S


def is_unavailable(node: NodeView) -> bool:
    """Return whether the node takes no new pods now, for any reason."""
    closed = node.spec.unschedulable or quarantine_taint.own_taint(node) is not None
    return node.ready != "True" or closed or bool(node.doubt)


Room = tuple[str, str]
"""A node and the vendor of its GPUs. A pod needs GPUs of one vendor."""


def free_gpus(nodes: Iterable[NodeView], used: Mapping[Room, int]) -> Mapping[Room, int]:
    """Return the GPUs of each available node that no pod requests; `used` are the requests."""
    return {
        (node.name, vendor): max(0, count - used.get((node.name, vendor), 0))
        for node in nodes
        if not is_unavailable(node)
        for vendor, count in accelerators.by_vendor(gpu_amounts(node.status.allocatable)).items()
    }


def asks_for_room(pod: PodView) -> bool:
    """Return whether the pod would need GPUs on another node if it were evicted now."""
    return bool(pod.gpus) and not pod.finished and not pod.terminating


def without_room(
    pods: Iterable[PodView],
    node: str,
    free: Mapping[Room, int],
    moving: Iterable[tuple[int, str]] = (),
) -> frozenset[str]:
    """Return the UIDs of the node's GPU pods that fit no other node.

    The largest pod is placed first, on the fullest node that fits it, so that a small pod does not
    take the only place of a large one. `moving` are number and vendor of the GPUs of recently
    evicted pods that may not be counted on their new node yet: they are placed before.
    """
    left = {room: count for room, count in free.items() if room[0] != node}
    for gpus, vendor in sorted(moving, reverse=True):
        _place(gpus, vendor, left)
    waiting = sorted(filter(asks_for_room, pods), key=lambda p: (-p.gpus, p.key))
    return frozenset(pod.uid for pod in waiting if not _place(pod.gpus, pod.gpu_vendor, left))


def _place(gpus: int, vendor: str, left: dict[Room, int]) -> bool:
    fitting = [
        (count, room) for room, count in left.items() if room[1] == vendor and count >= gpus
    ]
    if not fitting:
        return False
    _, room = min(fitting)
    left[room] -= gpus
    return True


_GPU_KEYS: Final = ("nvidia.com/", "gpuward.io/", "feature.node.kubernetes.io/pci-10de")


def untolerating(node: NodeView, daemon_sets: Iterable[DaemonSetView]) -> tuple[str, ...]:
    """Return the GPU DaemonSets (`namespace/name`) that do not tolerate the quarantine taint.

    Affinity is not checked, so the list may be too long.
    """
    return tuple(
        sorted(
            f"{ds.metadata.namespace}/{ds.metadata.name}"
            for ds in daemon_sets
            if _is_for_gpus(ds)
            and _selects(ds, node)
            and not any(_tolerates(t) for t in ds.spec.template.spec.tolerations)
        )
    )


def _is_for_gpus(daemon_set: DaemonSetView) -> bool:
    """Return whether it selects or tolerates GPU nodes, as drivers, plugins and exporters do."""
    spec = daemon_set.spec.template.spec
    keys = [*spec.node_selector, *(toleration.key for toleration in spec.tolerations)]
    return any(key.startswith(_GPU_KEYS) or accelerators.is_accelerator(key) for key in keys)


def _selects(daemon_set: DaemonSetView, node: NodeView) -> bool:
    wanted = daemon_set.spec.template.spec.node_selector
    return all(node.labels.get(key) == value for key, value in wanted.items())


def _tolerates(toleration: Toleration) -> bool:
    if toleration.effect not in {"", quarantine_taint.EFFECT}:
        return False
    if toleration.key == "":
        return toleration.operator == "Exists"
    return toleration.key == names.TAINT_QUARANTINE
