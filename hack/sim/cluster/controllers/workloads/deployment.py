"""Deployment controller: one ReplicaSet per pod template, the newest with all the replicas.

Works through real ReplicaSets, so owner chains look as in a cluster (Pod, ReplicaSet, Deployment).
A new template replaces all pods at once: rolling updates are left out, and so are rollback and
pausing.
"""

from __future__ import annotations

import math
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.pods import controlled_by, reference
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.timestamps import stamp
from hack.sim.cluster.controllers.workloads.replicaset import own_key, owner_key
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Create,
    Outcome,
    Patch,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.resource import DEPLOYMENTS, REPLICA_SETS

HASH_LABEL = "pod-template-hash"


def share(value: int | str, total: int, *, round_up: bool) -> int:
    """An IntOrString of Kubernetes: a count, or a percentage of `total`."""
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * total / 100
        return math.ceil(exact) if round_up else math.floor(exact)
    return int(value)


def reconcile(deployment: Object, owned: list[Object], now: datetime) -> Outcome:
    """Make the ReplicaSet of the present template, give it all the replicas, write the status."""
    if pod_state.is_terminating(deployment):
        return NOTHING
    new_hash = pod_state.template_hash(deployment["spec"]["template"])
    new = next((rs for rs in owned if rs["metadata"]["labels"].get(HASH_LABEL) == new_hash), None)
    wanted = int(deployment["spec"].get("replicas", 1))
    writes: list[Write] = []
    if new is None:
        body = _replica_set(deployment, new_hash, wanted)
        writes.append(Create(resource=REPLICA_SETS, body=body))
    for replica_set in owned:
        size = wanted if replica_set is new else 0
        if int(replica_set["spec"].get("replicas", 1)) != size:
            patch = {"spec": {"replicas": size}}
            writes.append(Patch(resource=REPLICA_SETS, target=replica_set, patch=patch))
    status = _status(deployment, owned, new, now)
    if status != deployment.get("status"):
        writes.append(UpdateStatus(resource=DEPLOYMENTS, body=with_status(deployment, status)))
    return Outcome(writes=tuple(writes))


def _replica_set(deployment: Object, hash_: str, size: int) -> Object:
    meta, spec = deployment["metadata"], deployment["spec"]
    inner = spec["template"].get("metadata") or {}
    labels = {**(inner.get("labels") or {}), HASH_LABEL: hash_}
    selector = {**spec["selector"]}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{hash_}",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [reference(deployment)],
        },
        "spec": {
            "replicas": size,
            "selector": selector,
            "template": {**spec["template"], "metadata": {**inner, "labels": labels}},
        },
    }


def _count(obj: Object | None, field: str) -> int:
    return int(((obj or {}).get("status") or {}).get(field) or 0)


def _status(deployment: Object, owned: list[Object], new: Object | None, now: datetime) -> Object:
    wanted = int(deployment["spec"].get("replicas", 1))
    counts = {
        field: sum(_count(rs, field) for rs in owned)
        for field in ("replicas", "readyReplicas", "availableReplicas")
    }
    available = counts["availableReplicas"]
    counts["updatedReplicas"] = _count(new, "replicas")
    counts["unavailableReplicas"] = max(wanted - available, 0)
    enough = available >= wanted
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    entry = {"type": "Available", "status": str(enough), "reason": reason}
    old = (deployment.get("status") or {}).get("conditions")
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **{key: value for key, value in counts.items() if value},
        "conditions": pod_state.with_condition(old, entry, stamp(now)),
    }


def _reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    deployment = caches[DEPLOYMENTS].get(key)
    if deployment is None:
        return NOTHING
    owned = controlled_by(caches[REPLICA_SETS].owned_by(deployment["metadata"]["uid"]), deployment)
    return reconcile(deployment, owned, now)


CONTROLLER = Controller(
    name="deployment-controller",
    routes={
        DEPLOYMENTS: own_key,
        REPLICA_SETS: lambda old, new, _: owner_key("Deployment", old, new),
    },
    reconcile=_reconcile_key,
)
