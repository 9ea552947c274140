"""ReplicaSet controller: as many active pods as asked for.

A pod that terminates no longer counts, so its replacement is made at once (Kubernetes ReplicaSet).
Pods it does not own are not adopted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.pods import controlled_by, controller_of
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Create,
    Delete,
    Outcome,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.resource import PODS, REPLICA_SETS

BURST = 500
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def reconcile(replica_set: Object, owned: list[Object], now: datetime) -> Outcome:
    """Create what is missing, delete what is too much, write the counts."""
    spec = replica_set["spec"]
    wanted = int(spec.get("replicas", 1))
    active = [pod for pod in owned if pod_state.is_active(pod)]
    writes: list[Write] = []
    if not pod_state.is_terminating(replica_set):
        for _ in range(min(wanted - len(active), BURST)):
            body = pod_state.from_template(spec["template"], replica_set)
            writes.append(Create(resource=PODS, body=body))
        surplus = max(len(active) - wanted, 0)
        for pod in sorted(active, key=lambda pod: _keep_rank(pod, active))[:surplus]:
            writes.append(Delete(resource=PODS, target=pod))  # noqa: PERF401 - one list, two kinds
    status, again_in_s = _status(replica_set, owned, now)
    if status != replica_set.get("status"):
        writes.append(UpdateStatus(resource=REPLICA_SETS, body=with_status(replica_set, status)))
    return Outcome(writes=tuple(writes), again_in_s=again_in_s)


def _keep_rank(pod: Object, active: list[Object]) -> tuple[int, int, int, int, int, str]:
    """Least worth keeping first: unbound, pending, unready, cheap, crowded, youngest."""
    node = pod_state.node_of(pod)
    cost = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    crowd = sum(1 for other in active if node and pod_state.node_of(other) == node)
    return (
        1 if node else 0,
        1 if pod_state.phase(pod) == "Running" else 0,
        1 if pod_state.is_ready(pod) else 0,
        int(cost) if cost.lstrip("-").isdigit() else 0,
        -crowd,
        _newest_first(pod["metadata"].get("creationTimestamp", "")),
    )


def _newest_first(timestamp: str) -> str:
    """A text that sorts later timestamps first."""
    return "".join(chr(ord("9") - int(char)) if char.isdigit() else char for char in timestamp)


def _status(
    replica_set: Object, owned: list[Object], now: datetime
) -> tuple[Object, float | None]:
    min_ready_s = float(replica_set["spec"].get("minReadySeconds") or 0)
    active = [pod for pod in owned if pod_state.is_active(pod)]
    ready = [pod for pod in active if pod_state.is_ready(pod)]
    available = [pod for pod in ready if pod_state.is_available(pod, min_ready_s, now)]
    terminating = sum(
        1 for pod in owned if pod_state.is_terminating(pod) and not pod_state.is_finished(pod)
    )
    old = replica_set.get("status") or {}
    counts = {
        "replicas": len(active),
        "fullyLabeledReplicas": len(active),
        "readyReplicas": len(ready),
        "availableReplicas": len(available),
        "terminatingReplicas": terminating,
        "observedGeneration": replica_set["metadata"].get("generation", 1),
    }
    kept = {key: value for key, value in old.items() if key not in counts}
    shown = {key: value for key, value in counts.items() if value or key == "replicas"}
    again_in_s = min_ready_s if len(available) < len(ready) else None
    return {**kept, **shown}, again_in_s


def _reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    replica_set = caches[REPLICA_SETS].get(key)
    if replica_set is None:
        return NOTHING
    owned = controlled_by(caches[PODS].owned_by(replica_set["metadata"]["uid"]), replica_set)
    return reconcile(replica_set, owned, now)


def owner_key(kind: str, old: Object | None, new: Object | None) -> Iterable[Key]:
    """The key of the controller of that kind: what a change of an owned object wakes."""
    obj = new or old
    owner = controller_of(obj) if obj else None
    if obj and owner and owner["kind"] == kind:
        yield obj["metadata"].get("namespace") or "", owner["name"]


def own_key(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """The key of the changed object itself."""
    obj = new or old
    if obj:
        yield obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


CONTROLLER = Controller(
    name="replicaset-controller",
    routes={
        REPLICA_SETS: own_key,
        PODS: lambda old, new, _: owner_key("ReplicaSet", old, new),
    },
    reconcile=_reconcile_key,
)
