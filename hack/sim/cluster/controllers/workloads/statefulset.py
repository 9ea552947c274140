"""StatefulSet controller: pods with stable names, made in order and replaced under their name.

A name comes back only when its old pod is gone, which is what makes StatefulSet drains slow.
Volume claims are not made; updates replace pods from the highest ordinal down.
"""

from __future__ import annotations

from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.owners import controlled_by
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.workloads.replicaset import own_key, owner_key
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Create,
    Delete,
    Outcome,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.resource import PODS, STATEFUL_SETS

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"


def reconcile(stateful_set: Object, owned: list[Object], now: datetime) -> Outcome:
    """The next step towards the wanted ordinals, and the counts."""
    writes: list[Write] = []
    if not pod_state.is_terminating(stateful_set):
        writes += _next_step(stateful_set, owned)
    status = _status(stateful_set, owned, now)
    if status != stateful_set.get("status"):
        writes.append(UpdateStatus(resource=STATEFUL_SETS, body=with_status(stateful_set, status)))
    return Outcome(writes=tuple(writes))


def _next_step(stateful_set: Object, owned: list[Object]) -> list[Write]:
    spec = stateful_set["spec"]
    parallel = spec.get("podManagementPolicy") == "Parallel"
    first = int((spec.get("ordinals") or {}).get("start", 0))
    wanted = range(first, first + int(spec.get("replicas", 1)))
    present = {_ordinal(pod): pod for pod in owned}
    writes: list[Write] = []
    for ordinal in wanted:
        pod = present.get(ordinal)
        if pod is None:
            writes.append(Create(resource=PODS, body=_pod(stateful_set, ordinal)))
        elif pod_state.is_finished(pod) and not pod_state.is_terminating(pod):
            writes.append(Delete(resource=PODS, target=pod))
        elif pod_state.is_ready(pod) and not pod_state.is_terminating(pod):
            continue
        if not parallel:
            return writes
    if writes:
        return writes
    for ordinal in sorted(set(present) - set(wanted), reverse=True):
        if not pod_state.is_terminating(present[ordinal]):
            writes.append(Delete(resource=PODS, target=present[ordinal]))
        if not parallel:
            return writes
    return writes or _update_step(stateful_set, [present[ordinal] for ordinal in wanted])


def _update_step(stateful_set: Object, pods: list[Object]) -> list[Write]:
    """RollingUpdate: the highest ordinal of an old template goes, when all pods are healthy."""
    if (stateful_set["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
        return []
    if not all(pod_state.is_ready(pod) and pod_state.is_active(pod) for pod in pods):
        return []
    revision = _revision(stateful_set)
    for pod in reversed(pods):
        if pod["metadata"]["labels"].get(REVISION_LABEL) != revision:
            return [Delete(resource=PODS, target=pod)]
    return []


def _revision(stateful_set: Object) -> str:
    name = stateful_set["metadata"]["name"]
    return f"{name}-{pod_state.template_hash(stateful_set['spec']['template'])}"


def _ordinal(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _pod(stateful_set: Object, ordinal: int) -> Object:
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    body = pod_state.from_template(
        stateful_set["spec"]["template"],
        stateful_set,
        name=name,
        labels={
            POD_NAME_LABEL: name,
            POD_INDEX_LABEL: str(ordinal),
            REVISION_LABEL: _revision(stateful_set),
        },
    )
    subdomain = stateful_set["spec"].get("serviceName") or ""
    body["spec"] = {**body["spec"], "hostname": name, "subdomain": subdomain}
    return body


def _status(stateful_set: Object, owned: list[Object], now: datetime) -> Object:
    revision = _revision(stateful_set)
    min_ready_s = float(stateful_set["spec"].get("minReadySeconds") or 0)
    ready = [pod for pod in owned if pod_state.is_ready(pod) and not pod_state.is_terminating(pod)]
    current = [pod for pod in owned if pod["metadata"]["labels"].get(REVISION_LABEL) == revision]
    counts = {
        "readyReplicas": len(ready),
        "currentReplicas": len(current),
        "updatedReplicas": len(current),
    }
    return {
        **(stateful_set.get("status") or {}),
        "observedGeneration": stateful_set["metadata"].get("generation", 1),
        "replicas": len(owned),
        "availableReplicas": sum(
            1 for pod in ready if pod_state.is_available(pod, min_ready_s, now)
        ),
        **counts,
        "currentRevision": revision,
        "updateRevision": revision,
        "collisionCount": 0,
    }


def _reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    stateful_set = caches[STATEFUL_SETS].get(key)
    if stateful_set is None:
        return NOTHING
    owned = controlled_by(caches[PODS].owned_by(stateful_set["metadata"]["uid"]), stateful_set)
    return reconcile(stateful_set, owned, now)


CONTROLLER = Controller(
    name="statefulset-controller",
    routes={
        STATEFUL_SETS: own_key,
        PODS: lambda old, new, _: owner_key("StatefulSet", old, new),
    },
    reconcile=_reconcile_key,
)
