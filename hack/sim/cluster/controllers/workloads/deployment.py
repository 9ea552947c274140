"""Deployment controller: one ReplicaSet per pod template, rolled over within surge and outage.

Works through real ReplicaSets, so owner chains look as in a cluster (Pod, ReplicaSet, Deployment).
Rollback and pausing on failed progress are left out.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.owners import controlled_by, reference
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.timestamps import stamp
from hack.sim.cluster.controllers.workloads.replicaset import own_key, owner_key
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Create,
    Delete,
    Outcome,
    Patch,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.resource import DEPLOYMENTS, REPLICA_SETS

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


def share(value: int | str, total: int, *, round_up: bool) -> int:
    """An IntOrString of Kubernetes: a count, or a percentage of `total`."""
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * total / 100
        return math.ceil(exact) if round_up else math.floor(exact)
    return int(value)


def reconcile(deployment: Object, owned: list[Object], now: datetime) -> Outcome:
    """One step of a rollout: make the new ReplicaSet, move counts, clean up, write the status."""
    if pod_state.is_terminating(deployment):
        return NOTHING
    spec = deployment["spec"]
    new_hash = pod_state.template_hash(spec["template"])
    new = next((rs for rs in owned if rs["metadata"]["labels"].get(HASH_LABEL) == new_hash), None)
    old = [rs for rs in owned if rs is not new]
    wanted = int(spec.get("replicas", 1))
    writes: list[Write] = []
    if new is None:
        size = _room(spec, wanted, old) if not spec.get("paused") else 0
        body = _new_replica_set(deployment, new_hash, min(size, wanted), _last_revision(owned) + 1)
        writes.append(Create(resource=REPLICA_SETS, body=body))
    else:
        writes += _scale(spec, wanted, new, old)
    limit = int(spec.get("revisionHistoryLimit", 10))
    empty = sorted((rs for rs in old if _is_empty(rs)), key=_revision)
    writes += [Delete(resource=REPLICA_SETS, target=rs) for rs in empty[: len(empty) - limit]]
    status = _status(deployment, owned, new, now)
    if status != deployment.get("status"):
        writes.append(UpdateStatus(resource=DEPLOYMENTS, body=with_status(deployment, status)))
    return Outcome(writes=tuple(writes))


def _scale(spec: Object, wanted: int, new: Object, old: list[Object]) -> list[Write]:
    """Move the replica counts of the new and the old sets one step."""
    size = _size(new)
    live_old = [rs for rs in old if _size(rs)]
    if not live_old:
        return [_resize(new, wanted)] if size != wanted else []
    if spec.get("paused"):
        return []
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        writes: list[Write] = [_resize(rs, 0) for rs in live_old]
        if not writes and not any(_count(rs, "replicas") for rs in old) and size != wanted:
            writes.append(_resize(new, wanted))
        return writes
    target = min(wanted, size + max(_room(spec, wanted, [*old, new]), 0))
    writes = [_resize(new, target)] if target != size else []
    return writes + _shrink_old(spec, wanted, new, live_old)


def _shrink_old(spec: Object, wanted: int, new: Object, live_old: list[Object]) -> list[Write]:
    """Old sets give up first what is unavailable, then what the new set has replaced."""
    least_available = wanted - _limits(spec, wanted)[1]
    total = _size(new) + sum(_size(rs) for rs in live_old)
    new_unavailable = _size(new) - _count(new, "availableReplicas")
    may_go = total - least_available - new_unavailable
    available = sum(_count(rs, "availableReplicas") for rs in [new, *live_old])
    healthy_may_go = available - least_available
    writes: list[Write] = []
    for rs in sorted(live_old, key=_revision):
        unhealthy = max(_size(rs) - _count(rs, "availableReplicas"), 0)
        broken = max(min(unhealthy, may_go), 0)
        healthy = max(min(_size(rs) - unhealthy, healthy_may_go, may_go - broken), 0)
        if broken + healthy:
            writes.append(_resize(rs, _size(rs) - broken - healthy))
            may_go -= broken + healthy
            healthy_may_go -= healthy
    return writes


def _limits(spec: Object, wanted: int) -> tuple[int, int]:
    """Surge and outage in pods; both zero would never move, so outage is then one."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = share(rolling.get("maxSurge", "25%"), wanted, round_up=True)
    outage = share(rolling.get("maxUnavailable", "25%"), wanted, round_up=False)
    return (surge, outage) if surge or outage else (0, 1)


def _room(spec: Object, wanted: int, sets: list[Object]) -> int:
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return 0 if any(_size(rs) or _count(rs, "replicas") for rs in sets) else wanted
    return max(wanted + _limits(spec, wanted)[0] - sum(_size(rs) for rs in sets), 0)


def _size(replica_set: Object) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def _count(obj: Object, field: str) -> int:
    return int((obj.get("status") or {}).get(field) or 0)


def _is_empty(replica_set: Object) -> bool:
    return not _size(replica_set) and not _count(replica_set, "replicas")


def _revision(replica_set: Object) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION, 0))


def _last_revision(owned: list[Object]) -> int:
    return max((_revision(rs) for rs in owned), default=0)


def _resize(replica_set: Object, size: int) -> Patch:
    return Patch(resource=REPLICA_SETS, target=replica_set, patch={"spec": {"replicas": size}})


def _new_replica_set(deployment: Object, hash_: str, size: int, revision: int) -> Object:
    meta, spec = deployment["metadata"], deployment["spec"]
    template: dict[str, Any] = {**spec["template"]}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: hash_}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = {**spec["selector"]}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{hash_}",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {REVISION: str(revision)},
            "ownerReferences": [reference(deployment)],
        },
        "spec": {
            "replicas": size,
            "minReadySeconds": spec.get("minReadySeconds", 0),
            "selector": selector,
            "template": template,
        },
    }


def _status(deployment: Object, owned: list[Object], new: Object | None, now: datetime) -> Object:
    spec, old_status = deployment["spec"], deployment.get("status") or {}
    wanted = int(spec.get("replicas", 1))
    total = sum(_count(rs, "replicas") for rs in owned)
    available = sum(_count(rs, "availableReplicas") for rs in owned)
    updated = _count(new, "replicas") if new else 0
    complete = updated == total == available == wanted
    enough = available >= wanted - _limits(spec, wanted)[1]
    conditions = old_status.get("conditions")
    for kind, true, reason in (
        (
            "Available",
            enough,
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        ),
        ("Progressing", True, "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"),
    ):
        new_condition = {"type": kind, "status": str(true), "reason": reason}
        conditions = pod_state.with_condition(conditions, new_condition, stamp(now))
    counts = {
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": sum(_count(rs, "readyReplicas") for rs in owned),
        "availableReplicas": available,
        "unavailableReplicas": max(wanted - available, 0),
    }
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **{key: value for key, value in counts.items() if value},
        "conditions": conditions,
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
