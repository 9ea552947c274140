"""Garbage collector and namespace controller: what is owned by nobody alive is deleted, and what
is in a namespace that ends.

An ownerReference is alive only if an object of that kind, name and UID exists, so a reference
with a dead UID costs its object, a Node included. Background and orphan deletion work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.running import Controller, Route
from hack.sim.cluster.controllers.workloads.replicaset import own_key
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Delete,
    Finalize,
    Outcome,
    Patch,
    Write,
)
from hack.sim.cluster.resource import (
    CONFIGMAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
    custom_resources,
)

SETTLE_S = 0.25
_LOOK_AGAIN_S = 1.0
ORPHAN = "orphan"
BUILTIN: tuple[Resource, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    DEPLOYMENTS,
    REPLICA_SETS,
    DAEMON_SETS,
    STATEFUL_SETS,
    JOBS,
    REPLICATION_CONTROLLERS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    SERVICE_ACCOUNTS,
    CONFIGMAPS,
    SECRETS,
    LEASES,
    CUSTOM_RESOURCE_DEFINITIONS,
)


@dataclass(slots=True)
class KnownKinds:
    """The collections that the collector follows: built in ones and those of definitions."""

    by_kind: dict[tuple[str, str], Resource] = field(
        default_factory=lambda: {(r.group, r.kind): r for r in BUILTIN}
    )

    def resource_of(self, owner: Object) -> Resource | None:
        """The collection that an ownerReference points into; None for an unknown kind."""
        group, slash, _ = str(owner["apiVersion"]).partition("/")
        return self.by_kind.get((group if slash else "", owner["kind"]))

    def all(self) -> list[Resource]:
        """Every followed collection."""
        return list(self.by_kind.values())


def judge(
    resource: Resource, obj: Object, is_alive: Callable[[Object], bool | None]
) -> list[Write]:
    """What the owners of one object mean for it; an owner of unknown state keeps it as it is."""
    owners = obj["metadata"].get("ownerReferences") or []
    if not owners or pod_state.is_terminating(obj):
        return []
    states = [is_alive(owner) for owner in owners]
    if None in states:
        return []
    if not any(states):
        return [Delete(resource=resource, target=obj)]
    if not all(states):
        kept = [owner for owner, alive in zip(owners, states, strict=True) if alive]
        return [
            Patch(resource=resource, target=obj, patch={"metadata": {"ownerReferences": kept}})
        ]
    return []


def finish_deletion(
    resource: Resource, owner: Object, dependents: list[tuple[Resource, Object]]
) -> list[Write]:
    """Let the dependents of an orphaning owner go, then the owner."""
    finalizers = owner["metadata"].get("finalizers") or []
    if not pod_state.is_terminating(owner):
        return []
    uid = owner["metadata"]["uid"]
    writes: list[Write] = []
    if ORPHAN in finalizers:
        for kind, obj in dependents:
            owners = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] != uid]
            patch = {"metadata": {"ownerReferences": owners or None}}
            writes.append(Patch(resource=kind, target=obj, patch=patch))
        return [*writes, _without_finalizer(resource, owner, ORPHAN)]
    return []


def _without_finalizer(resource: Resource, owner: Object, name: str) -> Patch:
    kept = [finalizer for finalizer in owner["metadata"]["finalizers"] if finalizer != name]
    return Patch(resource=resource, target=owner, patch={"metadata": {"finalizers": kept or None}})


class GarbageCollector:
    """One queue over all followed collections; definitions add collections while it runs."""

    def __init__(self) -> None:
        self.kinds = KnownKinds()

    def controller(self) -> Controller:
        """Looks at each object that has owners, lost one, or waits for its dependents.

        It looks a moment late: an owner created elsewhere may reach us after its dependent.
        """
        return Controller(
            name="garbage-collector",
            routes={resource: self.route(resource) for resource in BUILTIN},
            reconcile=self._reconcile,
            settle_s=lambda _collection: SETTLE_S,
        )

    def learn(self, crd: Object) -> Resource | None:
        """Follow a definition's collection too; None if it is followed already."""
        found = custom_resources(crd)
        resource = next((one for one, version in found if version.get("storage")), found[0][0])
        if (resource.group, resource.kind) in self.kinds.by_kind:
            return None
        self.kinds.by_kind[(resource.group, resource.kind)] = resource
        return resource

    def route(self, resource: Resource) -> Route:
        """What a change in one collection wakes: the object itself, or the dependents of a gone
        one.
        """

        def wakes(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
            if new is None:
                if old is not None:
                    for kind, obj in self._dependents(old, caches):
                        yield _queue_key(kind, obj)
            elif _has_news(old, new):
                yield _queue_key(resource, new)

        return wakes

    def _reconcile(self, key: Key, caches: Caches, now: datetime) -> Outcome:
        where, name = key
        group, kind, namespace = where.split("/")
        resource = self.kinds.by_kind[(group, kind)]
        obj = caches[resource].get((namespace, name))
        if obj is None:
            return NOTHING
        if pod_state.is_terminating(obj):
            writes = finish_deletion(resource, obj, self._dependents(obj, caches))
            return Outcome(writes=tuple(writes))
        owners = obj["metadata"].get("ownerReferences") or ()
        if not all(self._is_known(owner, caches) for owner in owners):
            return Outcome(again_in_s=_LOOK_AGAIN_S)
        writes = judge(resource, obj, lambda owner: self._is_alive(owner, namespace, caches))
        return Outcome(writes=tuple(writes))

    def _is_known(self, owner: Object, caches: Caches) -> bool:
        """Whether the owner's collection has been listed: until then nobody may be called dead."""
        resource = self.kinds.resource_of(owner)
        return resource is None or caches[resource].synced.is_set()

    def _dependents(self, owner: Object, caches: Caches) -> list[tuple[Resource, Object]]:
        uid = owner["metadata"]["uid"]
        return [(kind, obj) for kind in self.kinds.all() for obj in caches[kind].owned_by(uid)]

    def _is_alive(self, owner: Object, namespace: str, caches: Caches) -> bool | None:
        resource = self.kinds.resource_of(owner)
        if resource is None:
            return None
        found = caches[resource].get((namespace if resource.namespaced else "", owner["name"]))
        return found is not None and found["metadata"]["uid"] == owner["uid"]


def _queue_key(resource: Resource, obj: Object) -> Key:
    meta = obj["metadata"]
    return f"{resource.group}/{resource.kind}/{meta.get('namespace') or ''}", meta["name"]


def _has_news(old: Object | None, new: Object) -> bool:
    """New or changed owners, or a deletion that waits for a finalizer."""
    meta = new["metadata"]
    had = (old or {}).get("metadata", {}).get("ownerReferences")
    owners = meta.get("ownerReferences")
    return bool(
        (owners and owners != had) or (meta.get("finalizers") and pod_state.is_terminating(new))
    )


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
