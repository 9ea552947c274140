"""Namespace controller: empties a terminating namespace, then lets it go.

Namespaced kinds that the cluster knows from definitions are emptied too. Events are left to die
with their namespace on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.workloads.replicaset import own_key
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Delete,
    Finalize,
    Outcome,
    Write,
)
from hack.sim.cluster.resource import NAMESPACES, Resource

FINALIZER = "kubernetes"


def reconcile(namespace: Object, content: list[tuple[Resource, Object]]) -> Outcome:
    """Delete what is left in a terminating namespace; take the finalizer off an empty one."""
    if not pod_state.is_terminating(namespace):
        return NOTHING
    if content:
        writes: list[Write] = [
            Delete(resource=resource, target=obj)
            for resource, obj in content
            if not pod_state.is_terminating(obj)
        ]
        return Outcome(writes=tuple(writes), again_in_s=0.2)
    spec = namespace.get("spec") or {}
    kept = [name for name in spec.get("finalizers") or () if name != FINALIZER]
    if kept == spec.get("finalizers"):
        return NOTHING
    body = {**namespace, "spec": {**spec, "finalizers": kept}}
    return Outcome(writes=(Finalize(resource=NAMESPACES, body=body),))


def namespace_controller(kinds: Callable[[], Iterable[Resource]]) -> Controller:
    """The controller; `kinds` says which collections may have content."""

    def reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
        namespace = caches[NAMESPACES].get(key)
        if namespace is None or not pod_state.is_terminating(namespace):
            return NOTHING
        content = [
            (resource, obj)
            for resource in kinds()
            if resource.namespaced
            for obj in caches[resource].in_namespace(key[1])
        ]
        return reconcile(namespace, content)

    return Controller(
        name="namespace-controller",
        routes={NAMESPACES: own_key},
        reconcile=reconcile_key,
        workers=1,
    )
