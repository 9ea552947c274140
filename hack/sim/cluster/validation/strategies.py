"""What creating and updating means beyond storing, kind by kind.

`ObjectApi` calls these hooks at fixed points: prepare (defaults, admission), problems
(validation), and after a change.  Kinds without an entry have no rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.statuses import FieldProblem
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.validation.cluster import Cluster
from hack.sim.cluster.validation.node_rules import node_problems
from hack.sim.cluster.validation.pod_rules import (
    complete_pod,
    complete_pod_template,
    keep_pod_owners,
    pod_problems,
)
from hack.sim.cluster.validation.small_rules import (
    budget_problems,
    complete_budget,
    complete_namespace,
    event_problems,
    forget_events,
    keep_namespace,
    lease_problems,
    new_event_problems,
    role_problems,
    role_ref_problems,
)
from hack.sim.cluster.validation.workload_rules import (
    complete_workload,
    keep_labels,
    workload_problems,
)

Prepare = Callable[["Cluster", Object], None]
PrepareUpdate = Callable[["Cluster", Object, Object, str], None]
Check = Callable[["Cluster", Object, Object | None], list[FieldProblem]]
After = Callable[["Cluster", Object], None]
BeforeDelete = Callable[["Cluster", Object], Object]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The hooks of one kind."""

    prepare_create: Prepare | None = None
    prepare_update: PrepareUpdate | None = None
    problems: Check | None = None
    changed: After | None = None
    removed: After | None = None
    before_delete: BeforeDelete | None = None


_WORKLOAD = Strategy(
    prepare_create=complete_workload,
    prepare_update=lambda api, old, new, subresource: complete_workload(api, new),
    problems=workload_problems,
)

BUILTIN_STRATEGIES: dict[Resource, Strategy] = {
    r.NODES: Strategy(problems=node_problems),
    r.PODS: Strategy(
        prepare_create=complete_pod, prepare_update=keep_pod_owners, problems=pod_problems
    ),
    r.NAMESPACES: Strategy(
        prepare_create=complete_namespace, prepare_update=keep_namespace, removed=forget_events
    ),
    r.EVENTS: Strategy(problems=event_problems),
    r.NEW_EVENTS: Strategy(problems=new_event_problems),
    r.LEASES: Strategy(problems=lease_problems),
    r.POD_DISRUPTION_BUDGETS: Strategy(prepare_create=complete_budget, problems=budget_problems),
    r.DEPLOYMENTS: Strategy(
        prepare_create=complete_workload, prepare_update=keep_labels, problems=workload_problems
    ),
    r.REPLICA_SETS: _WORKLOAD,
    r.DAEMON_SETS: _WORKLOAD,
    r.STATEFUL_SETS: _WORKLOAD,
    r.JOBS: _WORKLOAD,
    r.ROLES: Strategy(problems=role_problems),
    r.CLUSTER_ROLES: Strategy(problems=role_problems),
    r.ROLE_BINDINGS: Strategy(problems=role_ref_problems),
    r.CLUSTER_ROLE_BINDINGS: Strategy(problems=role_ref_problems),
}

__all__ = ["BUILTIN_STRATEGIES", "Strategies", "Strategy", "complete_pod_template"]


class Strategies:
    """The hooks of all kinds of one server."""

    def __init__(self, api: Cluster) -> None:
        self._api = api
        self._of: dict[Resource, Strategy] = dict(BUILTIN_STRATEGIES)
        self._none = Strategy()

    def register(self, resource: Resource, strategy: Strategy) -> None:
        """Give a kind hooks (used by the CustomResourceDefinition logic)."""
        self._of[resource] = strategy

    def _find(self, kind: Kind) -> Strategy:
        return self._of.get(kind.resource, self._none)

    def prepare_create(self, kind: Kind, obj: Object) -> None:
        """Defaults and admission of a new object, in place."""
        if hook := self._find(kind).prepare_create:
            hook(self._api, obj)

    def prepare_update(self, kind: Kind, old: Object, new: Object, subresource: str) -> None:
        """What an update may not touch, in place."""
        if hook := self._find(kind).prepare_update:
            hook(self._api, old, new, subresource)

    def problems(self, kind: Kind, obj: Object, old: Object | None) -> list[FieldProblem]:
        """Every rule of the kind that the object breaks."""
        hook = self._find(kind).problems
        return hook(self._api, obj, old) if hook else []

    def created(self, kind: Kind, obj: Object) -> None:
        """An object was stored for the first time."""
        if hook := self._find(kind).changed:
            hook(self._api, obj)

    def updated(self, kind: Kind, obj: Object) -> None:
        """An object was stored again."""
        if hook := self._find(kind).changed:
            hook(self._api, obj)

    def removed(self, kind: Kind, obj: Object) -> None:
        """An object is gone."""
        if hook := self._find(kind).removed:
            hook(self._api, obj)

    def before_delete(self, kind: Kind, obj: Object) -> Object:
        """The object as it is when its deletion begins."""
        hook = self._find(kind).before_delete
        return hook(self._api, obj) if hook else obj

    @staticmethod
    def holds(kind: Kind, obj: Object) -> bool:
        """Whether something other than metadata.finalizers keeps a deleted object."""
        return kind.resource == r.NAMESPACES and bool((obj.get("spec") or {}).get("finalizers"))
