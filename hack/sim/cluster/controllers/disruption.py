"""The disruption controller: what a PodDisruptionBudget allows right now.

`reconcile` is pure: from a budget, its pods and the scale of their controllers to the status that
Kubernetes would write; the eviction code of the API server reads that status. Numbers and texts
that clients see follow Kubernetes 1.36, failures included; events are left out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.pods import controller_of, parse_stamp, stamp
from hack.sim.cluster.controllers.running import (
    NOTHING,
    Controller,
    Outcome,
    UpdateStatus,
    Write,
    own_key,
    with_status,
)
from hack.sim.cluster.controllers.workloads import share
from hack.sim.cluster.resource import (
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
from hack.sim.cluster.store.selectors import matches

DELETION_TIMEOUT = timedelta(minutes=2)
_SCALABLE = {
    (resource.group, resource.kind): resource
    for resource in (REPLICA_SETS, STATEFUL_SETS, DEPLOYMENTS, REPLICATION_CONTROLLERS)
}
_WITHOUT_SCALE = {
    (resource.group, resource.kind): resource for resource in (JOBS, DAEMON_SETS, NODES)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many replicas the controller of a pod wants; it counts once per UID."""

    uid: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoScale:
    """Why the controller of a pod cannot be asked for its size: fails the entire budget."""

    why: str


ScaleOf = Callable[[Object], Scale | NoScale | None]


def selected_pods(budget: Object, pods: list[Object]) -> list[Object]:
    """The pods of the budget's namespace that its selector selects (`{}` selects all)."""
    selector = budget["spec"].get("selector")
    return [pod for pod in pods if matches(selector, pod["metadata"].get("labels") or {})]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """How many pods a budget counts on, how many must be healthy."""

    pods: int
    healthy: int


def expected(budget: Object, pods: list[Object], scale_of: ScaleOf) -> Expected | NoScale:
    """What the budget asks for: from pod counts (integer minAvailable) or from controllers."""
    spec = budget["spec"]
    most_out, least_in = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most_out is None and not _is_percentage(least_in):
        return Expected(pods=len(pods), healthy=int(least_in or 0))
    total: dict[str, int] = {}
    for pod in pods:
        if controller_of(pod) is None:
            continue
        scale = scale_of(pod)
        if isinstance(scale, NoScale):
            return scale
        if scale is None:
            return NoScale(why=f'found no controllers for pod "{pod["metadata"]["name"]}"')
        total[scale.uid] = scale.replicas
    count = sum(total.values())
    if most_out is not None:
        healthy = max(count - share(most_out, count, round_up=True), 0)
    else:
        healthy = share(str(least_in), count, round_up=True)
    return Expected(pods=count, healthy=healthy)


def _is_percentage(value: object) -> bool:
    return isinstance(value, str) and value.endswith("%")


def reconcile(budget: Object, pods: list[Object], scale_of: ScaleOf, now: datetime) -> Outcome:
    """The status a budget should have now, and when a disrupted pod expires."""
    wanted = expected(budget, pods, scale_of)
    if isinstance(wanted, NoScale):
        return _failed(budget, wanted.why, now)
    disrupted, expires_s = _disrupted(budget, pods, now)
    healthy = sum(
        1
        for pod in pods
        if pod_state.is_ready(pod)
        and not pod_state.is_terminating(pod)
        and pod["metadata"]["name"] not in disrupted
    )
    allowed = max(healthy - wanted.healthy, 0) if wanted.pods > 0 else 0
    old = budget.get("status") or {}
    entry = {
        "type": "DisruptionAllowed",
        "status": str(allowed > 0),
        "reason": "SufficientPods" if allowed > 0 else "InsufficientPods",
        "message": "",
        "observedGeneration": budget["metadata"].get("generation", 1),
    }
    status = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": wanted.healthy,
        "expectedPods": wanted.pods,
        "conditions": pod_state.with_condition(old.get("conditions"), entry, stamp(now)),
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    return Outcome(writes=_put_if_changed(budget, status), again_in_s=expires_s)


def _failed(budget: Object, why: str, now: datetime) -> Outcome:
    """No disruption is allowed while the budget cannot be computed; observedGeneration stays."""
    old = budget.get("status") or {}
    entry = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": why,
    }
    if old.get("observedGeneration"):
        entry["observedGeneration"] = old["observedGeneration"]
    status = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
        **old,
        "disruptionsAllowed": 0,
        "conditions": pod_state.with_condition(old.get("conditions"), entry, stamp(now)),
    }
    return Outcome(writes=_put_if_changed(budget, status))


def _disrupted(
    budget: Object, pods: list[Object], now: datetime
) -> tuple[dict[str, str], float | None]:
    """Recently allowed evictions whose pods are not terminating yet, and the next expiry."""
    known: Mapping[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    pending: dict[str, str] = {}
    waits: list[float] = []
    for pod in pods:
        name = pod["metadata"]["name"]
        if name not in known or pod_state.is_terminating(pod):
            continue
        left_s = (parse_stamp(known[name]) + DELETION_TIMEOUT - now).total_seconds()
        if left_s > 0:
            pending[name] = known[name]
            waits.append(left_s)
    return pending, min(waits, default=None)


def _put_if_changed(budget: Object, status: Object) -> tuple[Write, ...]:
    if status == budget.get("status"):
        return ()
    return (UpdateStatus(resource=POD_DISRUPTION_BUDGETS, body=with_status(budget, status)),)


def scale_lookup(caches: Caches) -> ScaleOf:
    """Who scales a pod, as far as the caches know: Deployment over ReplicaSet."""

    def scale_of(pod: Object) -> Scale | NoScale | None:
        owner = controller_of(pod)
        if owner is None:
            return None
        namespace = pod["metadata"]["namespace"]
        resource = _SCALABLE.get((_group(owner), owner["kind"]))
        if resource is None:
            return _no_scale(owner)
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


def _no_scale(owner: Object) -> NoScale:
    builtin = _WITHOUT_SCALE.get((_group(owner), owner["kind"]))
    if builtin is not None:
        return NoScale(why=f"{builtin.group_resource} does not implement the scale subresource")
    return NoScale(why=f'no matches for kind "{owner["kind"]}" in version "{owner["apiVersion"]}"')


def _live(owner: Object, resource: Resource, namespace: str, caches: Caches) -> Object | None:
    """The owner, if it still is the very object that the reference means."""
    found = caches[resource].get((namespace, owner["name"]))
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


def _reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    budget = caches[POD_DISRUPTION_BUDGETS].get(key)
    if budget is None:
        return NOTHING
    wanted = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
    pods = selected_pods(budget, caches[PODS].labelled(key[0], wanted))
    return reconcile(budget, pods, scale_lookup(caches), now)


CONTROLLER = Controller(
    name="disruption-controller",
    routes={
        POD_DISRUPTION_BUDGETS: own_key,
        PODS: _budgets_of_pod,
        REPLICA_SETS: _budgets_of_owner,
        DEPLOYMENTS: _budgets_of_owner,
        STATEFUL_SETS: _budgets_of_owner,
        REPLICATION_CONTROLLERS: _budgets_of_owner,
    },
    reconcile=_reconcile_key,
)
