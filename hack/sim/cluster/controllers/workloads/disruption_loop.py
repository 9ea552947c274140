"""Feeds the disruption controller from the caches: which budgets a pod wakes, who scales it.

Two controllers come of it: one writes budget status, one resets DisruptionTarget conditions that
nobody acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.custom_kinds import crd_of, scale_path, stored_resource
from hack.sim.cluster.controllers.owners import controller_of
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.workloads.disruption import (
    NoScale,
    Scale,
    ScaleOf,
    reconcile,
    reset_stale_target,
    selected_pods,
    several_budgets,
)
from hack.sim.cluster.controllers.workloads.replicaset import own_key
from hack.sim.cluster.controllers.writes import NOTHING, Outcome, Write
from hack.sim.cluster.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)

_SCALABLE = {
    (resource.group, resource.kind): resource
    for resource in (REPLICA_SETS, STATEFUL_SETS, DEPLOYMENTS, REPLICATION_CONTROLLERS)
}
_WITHOUT_SCALE = {
    (resource.group, resource.kind): resource for resource in (JOBS, DAEMON_SETS, NODES)
}


def scale_lookup(caches: Caches) -> ScaleOf:
    """Who scales a pod, as far as the caches know: Deployment over ReplicaSet, CRDs by path."""

    def scale_of(pod: Object) -> Scale | NoScale | None:
        owner = controller_of(pod)
        if owner is None:
            return None
        namespace = pod["metadata"]["namespace"]
        group = _group(owner)
        resource = _SCALABLE.get((group, owner["kind"]))
        if resource is None:
            return _custom_scale(owner, namespace, caches)
        found = _live(owner, resource, namespace, caches)
        if found is None:
            return None
        above = controller_of(found)
        if resource == REPLICA_SETS and above and above["kind"] == "Deployment":
            found = _live(above, DEPLOYMENTS, namespace, caches)
            if found is None:
                return None
        return Scale(uid=found["metadata"]["uid"], replicas=int(found["spec"].get("replicas", 1)))

    return scale_of


def _custom_scale(owner: Object, namespace: str, caches: Caches) -> Scale | NoScale | None:
    group, kind = _group(owner), owner["kind"]
    builtin = _WITHOUT_SCALE.get((group, kind))
    if builtin is not None:
        return NoScale(why=f"{builtin.group_resource} does not implement the scale subresource")
    crd = crd_of(caches[CUSTOM_RESOURCE_DEFINITIONS], group, kind)
    if crd is None:
        return NoScale(why=f'no matches for kind "{kind}" in version "{owner["apiVersion"]}"')
    resource = stored_resource(crd)
    path = scale_path(crd)
    if path is None:
        return NoScale(why=f"{resource.group_resource} does not implement the scale subresource")
    found = _live(owner, resource, namespace, caches)
    if found is None:
        return None
    value: object = found
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    replicas = value if isinstance(value, int) else 0
    return Scale(uid=found["metadata"]["uid"], replicas=replicas)


def _live(owner: Object, resource: Resource, namespace: str, caches: Caches) -> Object | None:
    """The owner, if it still is the very object that the reference means."""
    found = caches[resource].get((namespace if resource.namespaced else "", owner["name"]))
    if found is None or found["metadata"]["uid"] != owner["uid"]:
        return None
    return found


def _group(owner: Object) -> str:
    api_version: str = owner["apiVersion"]
    return api_version.partition("/")[0] if "/" in api_version else ""


def _budgets_of_pod(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Budgets that select the pod as it is or was; an unimportant change wakes none."""
    if old is not None and new is not None and _same_for_budgets(old, new):
        return
    pod = new or old
    if pod is None:
        return
    for budget in caches[POD_DISRUPTION_BUDGETS].in_namespace(pod["metadata"]["namespace"]):
        if selected_pods(budget, [side for side in (old, new) if side is not None]):
            yield key_of(budget)


def _same_for_budgets(old: Object, new: Object) -> bool:
    return (
        pod_state.is_ready(old) == pod_state.is_ready(new)
        and pod_state.is_terminating(old) == pod_state.is_terminating(new)
        and old["metadata"].get("labels") == new["metadata"].get("labels")
        and old["metadata"].get("ownerReferences") == new["metadata"].get("ownerReferences")
    )


def _budgets_of_owner(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Budgets of the namespace whose selector fits the pods of a changed controller."""
    owner = new or old
    if owner is None:
        return
    if old is not None and new is not None and old.get("spec") == new.get("spec"):
        return
    template = (owner["spec"].get("template") or {}).get("metadata") or {}
    stand_in = {"metadata": {"labels": template.get("labels") or {}}}
    for budget in caches[POD_DISRUPTION_BUDGETS].in_namespace(owner["metadata"]["namespace"]):
        if selected_pods(budget, [stand_in]):
            yield key_of(budget)


class SeveralBudgetsMemory:
    """Which pods were already compared with which budgets of their namespace."""

    def __init__(self) -> None:
        self._compared: dict[str, tuple[frozenset[tuple[str, int]], set[str]]] = {}

    def events(self, namespace: str, pods: list[Object], budgets: list[Object]) -> list[Write]:
        """Events for pods that several budgets select and that were not told so before."""
        present = frozenset(
            (budget["metadata"]["uid"], budget["metadata"].get("generation", 1))
            for budget in budgets
        )
        before, compared = self._compared.get(namespace, (None, set()))
        if before != present:
            compared = set()
            self._compared[namespace] = (present, compared)
        writes: list[Write] = []
        for pod in pods:
            if pod["metadata"]["uid"] not in compared:
                compared.add(pod["metadata"]["uid"])
                writes += several_budgets(
                    pod, [budget for budget in budgets if selected_pods(budget, [pod])]
                )
        return writes


def _reconcile_budget(
    memory: SeveralBudgetsMemory,
) -> Callable[[Key, Caches, datetime], Outcome]:
    def reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
        budget = caches[POD_DISRUPTION_BUDGETS].get(key)
        if budget is None:
            return NOTHING
        wanted = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
        pods = selected_pods(budget, caches[PODS].labelled(key[0], wanted))
        outcome = reconcile(budget, pods, scale_lookup(caches), now)
        budgets = caches[POD_DISRUPTION_BUDGETS].in_namespace(key[0])
        events = memory.events(key[0], pods, budgets) if len(budgets) > 1 else []
        return Outcome(writes=(*outcome.writes, *events), again_in_s=outcome.again_in_s)

    return reconcile_key


def _reconcile_target(key: Key, caches: Caches, now: datetime) -> Outcome:
    pod = caches[PODS].get(key)
    return NOTHING if pod is None else reset_stale_target(pod, now)


def _targeted_pod(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if new is not None and pod_state.is_true(new, "DisruptionTarget"):
        yield key_of(new)


def disruption_controllers() -> list[Controller]:
    """The budget controller and the one that resets stale DisruptionTarget conditions."""
    return [
        Controller(
            name="disruption-controller",
            routes={
                POD_DISRUPTION_BUDGETS: own_key,
                PODS: _budgets_of_pod,
                REPLICA_SETS: _budgets_of_owner,
                DEPLOYMENTS: _budgets_of_owner,
                STATEFUL_SETS: _budgets_of_owner,
                REPLICATION_CONTROLLERS: _budgets_of_owner,
                CUSTOM_RESOURCE_DEFINITIONS: lambda _old, _new, _caches: (),
            },
            reconcile=_reconcile_budget(SeveralBudgetsMemory()),
        ),
        Controller(
            name="disruption-target-controller",
            routes={PODS: _targeted_pod},
            reconcile=_reconcile_target,
        ),
    ]
