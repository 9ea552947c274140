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


def reconcile(replica_set: Object, owned: list[Object], now: datetime) -> Outcome:
    """Create what is missing, delete what is too much, write the counts."""
    spec = replica_set["spec"]
    wanted = int(spec.get("replicas", 1))
    active = [pod for pod in owned if pod_state.is_active(pod)]
    writes: list[Write] = []
    if not pod_state.is_terminating(replica_set):
        for _ in range(wanted - len(active)):
            body = pod_state.from_template(spec["template"], replica_set)
            writes.append(Create(resource=PODS, body=body))
        surplus = max(len(active) - wanted, 0)
        # Unbound and unready pods go first.
        active.sort(key=lambda pod: (bool(pod_state.node_of(pod)), pod_state.is_ready(pod)))
        writes += [Delete(resource=PODS, target=pod) for pod in active[:surplus]]
    status = _status(replica_set, owned)
    if status != replica_set.get("status"):
        writes.append(UpdateStatus(resource=REPLICA_SETS, body=with_status(replica_set, status)))
    return Outcome(writes=tuple(writes))


def _status(replica_set: Object, owned: list[Object]) -> Object:
    active = [pod for pod in owned if pod_state.is_active(pod)]
    ready = sum(1 for pod in active if pod_state.is_ready(pod))
    counts = {
        "replicas": len(active),
        "fullyLabeledReplicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": replica_set["metadata"].get("generation", 1),
    }
    old = replica_set.get("status") or {}
    kept = {key: value for key, value in old.items() if key not in counts}
    return {**kept, **{key: n for key, n in counts.items() if n or key == "replicas"}}


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
