"""Node controllers: taints that follow from a node's state, orphaned pods.

A cordon becomes the taint `node.kubernetes.io/unschedulable` here, as in a real cluster, which is
also why a marking patch may meet a newer resourceVersion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.nodes.placement import UNSCHEDULABLE_TAINT
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.timestamps import stamp
from hack.sim.cluster.controllers.workloads.replicaset import own_key
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Delete,
    Outcome,
    Patch,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.resource import NODES, PODS

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
ORPHANED_S = 2.0
OWNED_KEYS = {UNSCHEDULABLE_TAINT, NOT_READY, UNREACHABLE}


def wanted_taints(node: Object) -> list[tuple[str, str]]:
    """(key, effect) of each taint that the node's state asks for."""
    taints: list[tuple[str, str]] = []
    if node.get("spec", {}).get("unschedulable"):
        taints.append((UNSCHEDULABLE_TAINT, "NoSchedule"))
    ready = pod_state.condition(node, "Ready")
    if ready is not None and ready["status"] != "True":
        key = UNREACHABLE if ready["status"] == "Unknown" else NOT_READY
        taints += [(key, "NoSchedule"), (key, "NoExecute")]
    return taints


def reconcile_taints(node: Object, now: datetime) -> Outcome:
    """Bring the taints of this controller in line; every other taint stays as it is."""
    present: list[Object] = node.get("spec", {}).get("taints") or []
    wanted = wanted_taints(node)
    kept = [
        taint
        for taint in present
        if taint["key"] not in OWNED_KEYS or (taint["key"], taint["effect"]) in wanted
    ]
    have = {(taint["key"], taint["effect"]) for taint in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": stamp(now)}
        for key, effect in wanted
        if (key, effect) not in have
    ]
    taints = [*kept, *added]
    if taints == present:
        return NOTHING
    patch = {"spec": {"taints": taints or None}}
    return Outcome(writes=(Patch(resource=NODES, target=node, patch=patch),))


def reconcile_orphan(pod: Object, now: datetime) -> Outcome:
    """A pod bound to a node that no longer exists ends Failed and is deleted (pod GC)."""
    writes: list[Write] = []
    if not pod_state.is_finished(pod):
        status = pod.get("status") or {}
        entry = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        }
        conditions = pod_state.with_condition(status.get("conditions"), entry, stamp(now))
        body = with_status(pod, {**status, "phase": "Failed", "conditions": conditions})
        writes.append(UpdateStatus(resource=PODS, body=body))
    writes.append(Delete(resource=PODS, target=pod, grace_s=0))
    return Outcome(writes=tuple(writes))


def _on_node_key(
    reconcile: Callable[[Object, datetime], Outcome],
) -> Callable[[Key, Caches, datetime], Outcome]:
    def reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
        node = caches[NODES].get(key)
        return NOTHING if node is None else reconcile(node, now)

    return reconcile_key


def taint_controller() -> Controller:
    """Taints nodes by their state."""
    return Controller(
        name="node-taints",
        routes={NODES: own_key},
        reconcile=_on_node_key(reconcile_taints),
    )


def orphan_controller() -> Controller:
    """Deletes pods of vanished nodes after 2 s (40 s in Kubernetes)."""

    def pods_of_gone_node(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
        if old is not None and new is None:
            for pod in caches[PODS].on_node(old["metadata"]["name"]):
                yield key_of(pod)

    def reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
        pod = caches[PODS].get(key)
        if pod is None or caches[NODES].get(("", pod_state.node_of(pod))) is not None:
            return NOTHING
        return reconcile_orphan(pod, now)

    return Controller(
        name="pod-garbage-collector",
        routes={NODES: pods_of_gone_node},
        reconcile=reconcile_key,
        settle_s=lambda _collection: ORPHANED_S,
    )
