"""Garbage collector: what is owned by nobody alive is deleted.

An ownerReference is alive only if an object of that kind, name and UID exists, so a reference
with a dead UID costs its object, a Node included. Deletion is always in the background.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.running import (
    NOTHING,
    Controller,
    Delete,
    Outcome,
    Patch,
    Route,
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


class GarbageCollector:
    """One queue over all followed collections; definitions add collections while it runs."""

    def __init__(self) -> None:
        self._by_kind = {(r.group, r.kind): r for r in BUILTIN}

    def kinds(self) -> list[Resource]:
        """Every followed collection: built-in ones and those of definitions."""
        return list(self._by_kind.values())

    def _resource_of(self, owner: Object) -> Resource | None:
        """The collection that an ownerReference points into; None for an unknown kind."""
        group, slash, _ = str(owner["apiVersion"]).partition("/")
        return self._by_kind.get((group if slash else "", owner["kind"]))

    def controller(self) -> Controller:
        """Looks at each object that has owners or lost one.

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
        if (resource.group, resource.kind) in self._by_kind:
            return None
        self._by_kind[(resource.group, resource.kind)] = resource
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
        resource = self._by_kind[(group, kind)]
        obj = caches[resource].get((namespace, name))
        if obj is None:
            return NOTHING
        if pod_state.is_terminating(obj):
            return NOTHING
        owners = obj["metadata"].get("ownerReferences") or ()
        if not all(self._is_known(owner, caches) for owner in owners):
            return Outcome(again_in_s=_LOOK_AGAIN_S)
        writes = judge(resource, obj, lambda owner: self._is_alive(owner, namespace, caches))
        return Outcome(writes=tuple(writes))

    def _is_known(self, owner: Object, caches: Caches) -> bool:
        """Whether the owner's collection has been listed: until then nobody may be called dead."""
        resource = self._resource_of(owner)
        return resource is None or caches[resource].synced.is_set()

    def _dependents(self, owner: Object, caches: Caches) -> list[tuple[Resource, Object]]:
        uid = owner["metadata"]["uid"]
        return [(kind, obj) for kind in self.kinds() for obj in caches[kind].owned_by(uid)]

    def _is_alive(self, owner: Object, namespace: str, caches: Caches) -> bool | None:
        resource = self._resource_of(owner)
        if resource is None:
            return None
        found = caches[resource].get((namespace if resource.namespaced else "", owner["name"]))
        return found is not None and found["metadata"]["uid"] == owner["uid"]


def _queue_key(resource: Resource, obj: Object) -> Key:
    meta = obj["metadata"]
    return f"{resource.group}/{resource.kind}/{meta.get('namespace') or ''}", meta["name"]


def _has_news(old: Object | None, new: Object) -> bool:
    """New or changed owners."""
    owners = new["metadata"].get("ownerReferences")
    return bool(owners) and owners != (old or {}).get("metadata", {}).get("ownerReferences")
