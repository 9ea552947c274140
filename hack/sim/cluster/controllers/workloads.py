"""Workload controllers: ReplicaSet, Deployment and DaemonSet.

A ReplicaSet keeps as many active pods as asked for: one that terminates no longer counts. Pods it
does not own are not adopted. A Deployment has one ReplicaSet per pod template, the newest with all
the replicas: a new template replaces all pods at once. A DaemonSet has one pod per node that the
pod may run on, with the tolerations that the real controller adds: its pods come to cordoned
nodes but not to nodes with a NoSchedule taint they do not tolerate; a running pod stays when such
a taint arrives. Rolling updates, rollback and pausing are left out.
"""

import math
from collections.abc import Iterable, Iterator
from datetime import datetime

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.pods import controlled_by, reference, stamp
from hack.sim.cluster.controllers.running import (
    NOTHING,
    Controller,
    Create,
    Delete,
    Outcome,
    Patch,
    UpdateStatus,
    Write,
    own_key,
    owner_key,
    with_status,
)
from hack.sim.cluster.controllers.scheduler import (
    UNSCHEDULABLE_TAINT,
    pinned_node,
    selects,
    untolerated,
)
from hack.sim.cluster.resource import DAEMON_SETS, DEPLOYMENTS, NODES, PODS, REPLICA_SETS


def reconcile_replica_set(replica_set: Object, owned: list[Object], now: datetime) -> Outcome:
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
    status = _replica_set_status(replica_set, owned)
    if status != replica_set.get("status"):
        writes.append(UpdateStatus(resource=REPLICA_SETS, body=with_status(replica_set, status)))
    return Outcome(writes=tuple(writes))


def _replica_set_status(replica_set: Object, owned: list[Object]) -> Object:
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


def _replica_set_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    replica_set = caches[REPLICA_SETS].get(key)
    if replica_set is None:
        return NOTHING
    owned = controlled_by(caches[PODS].owned_by(replica_set["metadata"]["uid"]), replica_set)
    return reconcile_replica_set(replica_set, owned, now)


REPLICA_SET_CONTROLLER = Controller(
    name="replicaset-controller",
    routes={
        REPLICA_SETS: own_key,
        PODS: lambda old, new, _: owner_key("ReplicaSet", old, new),
    },
    reconcile=_replica_set_key,
)


HASH_LABEL = "pod-template-hash"


def share(value: int | str, total: int, *, round_up: bool) -> int:
    """An IntOrString of Kubernetes: a count, or a percentage of `total`."""
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * total / 100
        return math.ceil(exact) if round_up else math.floor(exact)
    return int(value)


def reconcile_deployment(deployment: Object, owned: list[Object], now: datetime) -> Outcome:
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
    status = _deployment_status(deployment, owned, new, now)
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


def _deployment_status(
    deployment: Object, owned: list[Object], new: Object | None, now: datetime
) -> Object:
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


def _deployment_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    deployment = caches[DEPLOYMENTS].get(key)
    if deployment is None:
        return NOTHING
    owned = controlled_by(caches[REPLICA_SETS].owned_by(deployment["metadata"]["uid"]), deployment)
    return reconcile_deployment(deployment, owned, now)


DEPLOYMENT_CONTROLLER = Controller(
    name="deployment-controller",
    routes={
        DEPLOYMENTS: own_key,
        REPLICA_SETS: lambda old, new, _: owner_key("Deployment", old, new),
    },
    reconcile=_deployment_key,
)


ADDED_TOLERATIONS: tuple[Object, ...] = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": UNSCHEDULABLE_TAINT, "operator": "Exists", "effect": "NoSchedule"},
)
_SETTLE_S = {NODES: 0.2, PODS: 0.02}


def pod_spec(daemon_set: Object) -> Object:
    """The pod spec of the template with the tolerations that the controller adds."""
    spec = daemon_set["spec"]["template"]["spec"]
    own = spec.get("tolerations") or []
    added = [entry for entry in ADDED_TOLERATIONS if entry not in own]
    return {**spec, "tolerations": [*own, *added]}


def should_run(spec: Object, node: Object) -> tuple[bool, bool]:
    """(a pod belongs on the node, a pod that is there may stay).

    NoSchedule taints keep new pods away, only NoExecute taints and selectors end running ones.
    """
    if not selects(spec, node) or untolerated(spec, node, ("NoExecute",)):
        return False, False
    return untolerated(spec, node, ("NoSchedule",)) is None, True


def pod_for(daemon_set: Object, spec: Object, node: str) -> Object:
    """The pod of one node, pinned to it by affinity on metadata.name."""
    return pod_state.from_template(
        {**daemon_set["spec"]["template"], "spec": _pinned(spec, node)},
        daemon_set,
    )


def _pinned(spec: Object, node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.get("affinity") or {}
    near = affinity.get("nodeAffinity") or {}
    required = near.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        {**term, "matchFields": [field]} for term in required.get("nodeSelectorTerms") or [{}]
    ]
    near = {**near, "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": near}}


def reconcile_daemon_set(
    daemon_set: Object, owned: list[Object], nodes: Iterable[Object], now: datetime
) -> Outcome:
    """Pods for nodes without one, deletions where none belongs, the counts."""
    spec = pod_spec(daemon_set)
    by_node: dict[str, list[Object]] = {}
    for pod in owned:
        by_node.setdefault(_target(pod), []).append(pod)
    belongs: set[str] = set()
    writes: list[Write] = []
    for node in nodes:
        name = node["metadata"]["name"]
        wanted, may_stay = should_run(spec, node)
        if wanted:
            belongs.add(name)
        writes += _node_step(daemon_set, spec, name, by_node.get(name, []), wanted, may_stay)
    if pod_state.is_terminating(daemon_set):
        writes = []
    status = _daemon_set_status(daemon_set, by_node, belongs)
    if status != daemon_set.get("status"):
        writes.append(UpdateStatus(resource=DAEMON_SETS, body=with_status(daemon_set, status)))
    return Outcome(writes=tuple(writes))


def _target(pod: Object) -> str:
    return pod_state.node_of(pod) or pinned_node(pod["spec"]) or ""


def _node_step(
    daemon_set: Object, spec: Object, node: str, pods: list[Object], wanted: bool, may_stay: bool
) -> Iterator[Write]:
    active = [pod for pod in pods if pod_state.is_active(pod)]
    for pod in pods:
        if pod_state.is_finished(pod) and not pod_state.is_terminating(pod):
            yield Delete(resource=PODS, target=pod)
    if wanted and not active:
        if not any(pod_state.is_terminating(pod) for pod in pods):
            yield Create(resource=PODS, body=pod_for(daemon_set, spec, node))
    elif not may_stay:
        for pod in active:
            yield Delete(resource=PODS, target=pod)
    else:
        oldest_first = sorted(active, key=lambda pod: pod["metadata"].get("creationTimestamp", ""))
        for pod in oldest_first[1:]:
            yield Delete(resource=PODS, target=pod)


def _daemon_set_status(
    daemon_set: Object, by_node: dict[str, list[Object]], belongs: set[str]
) -> Object:
    active = [pod for node in belongs for pod in by_node.get(node, []) if pod_state.is_active(pod)]
    ready = sum(1 for pod in active if pod_state.is_ready(pod))
    misplaced = sum(1 for node in by_node if node and node not in belongs)
    counts = {
        "numberAvailable": ready,
        "numberUnavailable": len(belongs) - ready,
    }
    return {
        "observedGeneration": daemon_set["metadata"].get("generation", 1),
        "currentNumberScheduled": sum(1 for node in belongs if by_node.get(node)),
        "desiredNumberScheduled": len(belongs),
        "numberMisscheduled": misplaced,
        "numberReady": ready,
        **{key: value for key, value in counts.items() if value},
    }


def _daemon_set_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    daemon_set = caches[DAEMON_SETS].get(key)
    if daemon_set is None:
        return NOTHING
    owned = controlled_by(caches[PODS].owned_by(daemon_set["metadata"]["uid"]), daemon_set)
    return reconcile_daemon_set(daemon_set, owned, caches[NODES], now)


def _concerned_sets(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """DaemonSets for which a node came, went, or now takes pods otherwise than before."""
    if old is not None and new is not None:
        same_labels = old["metadata"].get("labels") == new["metadata"].get("labels")
        if same_labels and old.get("spec") == new.get("spec"):
            return
    for daemon_set in caches[DAEMON_SETS]:
        spec = pod_spec(daemon_set)
        if old is None or new is None or should_run(spec, old) != should_run(spec, new):
            yield key_of(daemon_set)


DAEMON_SET_CONTROLLER = Controller(
    name="daemonset-controller",
    routes={
        DAEMON_SETS: own_key,
        NODES: _concerned_sets,
        PODS: lambda old, new, _: owner_key("DaemonSet", old, new),
    },
    reconcile=_daemon_set_key,
    settle_s=lambda collection: _SETTLE_S.get(collection, 0.0),
    workers=1,
)
