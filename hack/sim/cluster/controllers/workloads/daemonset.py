"""DaemonSet controller: one pod per node that the pod may run on.

Adds the tolerations the real controller adds, so its pods come to cordoned nodes but not to nodes
with a NoSchedule taint they do not tolerate; a running pod stays when such a taint arrives. The
scheduler binds each pod through affinity to its node's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.nodes.placement import (
    UNSCHEDULABLE_TAINT,
    pinned_node,
    selects,
    untolerated,
)
from hack.sim.cluster.controllers.pods import controlled_by
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.workloads.deployment import share
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
from hack.sim.cluster.resource import DAEMON_SETS, NODES, PODS

REVISION_LABEL = "controller-revision-hash"
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
        labels={REVISION_LABEL: _revision(daemon_set)},
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


def reconcile(
    daemon_set: Object, owned: list[Object], nodes: Iterable[Object], now: datetime
) -> Outcome:
    """Pods for nodes without one, deletions where none belongs, a rolling update, the counts."""
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
    elif not writes:
        writes = _update_step(daemon_set, by_node, belongs)
    status = _status(daemon_set, by_node, belongs)
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


def _update_step(
    daemon_set: Object, by_node: dict[str, list[Object]], belongs: set[str]
) -> list[Write]:
    """RollingUpdate: replace pods of an old template, at most maxUnavailable away at a time."""
    strategy = daemon_set["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return []
    most_out = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    allowed = max(share(most_out, len(belongs), round_up=True), 1)
    revision = _revision(daemon_set)
    pods = [pod for node in sorted(belongs) for pod in by_node.get(node, [])]
    ready = [pod for pod in pods if pod_state.is_ready(pod) and pod_state.is_active(pod)]
    room = allowed - (len(belongs) - len(ready))
    old = [pod for pod in pods if pod["metadata"]["labels"].get(REVISION_LABEL) != revision]
    unready = [pod for pod in old if pod not in ready and pod_state.is_active(pod)]
    ready_old = [pod for pod in old if pod in ready]
    return [Delete(resource=PODS, target=pod) for pod in [*unready, *ready_old[: max(room, 0)]]]


def _revision(daemon_set: Object) -> str:
    return pod_state.template_hash(daemon_set["spec"]["template"])


def _status(daemon_set: Object, by_node: dict[str, list[Object]], belongs: set[str]) -> Object:
    revision = _revision(daemon_set)
    active = [pod for node in belongs for pod in by_node.get(node, []) if pod_state.is_active(pod)]
    ready = sum(1 for pod in active if pod_state.is_ready(pod))
    updated = sum(1 for pod in active if pod["metadata"]["labels"].get(REVISION_LABEL) == revision)
    misplaced = sum(1 for node in by_node if node and node not in belongs)
    counts = {
        "updatedNumberScheduled": updated,
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


def _reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    daemon_set = caches[DAEMON_SETS].get(key)
    if daemon_set is None:
        return NOTHING
    owned = controlled_by(caches[PODS].owned_by(daemon_set["metadata"]["uid"]), daemon_set)
    return reconcile(daemon_set, owned, caches[NODES], now)


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


CONTROLLER = Controller(
    name="daemonset-controller",
    routes={
        DAEMON_SETS: own_key,
        NODES: _concerned_sets,
        PODS: lambda old, new, _: owner_key("DaemonSet", old, new),
    },
    reconcile=_reconcile_key,
    settle_s=lambda collection: _SETTLE_S.get(collection, 0.0),
    workers=1,
)
