"""The Eviction API, answer by answer: the part of the server that drains depend on.

The order of its steps is the contract: budgets are charged before the caller's preconditions are
checked, and a dry run charges nobody. Clients tell the cases apart by codes and causes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import ApiError, bad_request, namespace_terminating, not_found
from hack.sim.cluster.resource import DeleteOptions, WriteOptions
from hack.sim.cluster.store.deletion import check_preconditions, delete, read_delete_options
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.selectors import matches
from hack.sim.cluster.store.tables import rfc3339

STALE_RETRY_AFTER_S = 10
_MULTIPLE = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
_SERVER = WriteOptions(manager="kube-apiserver")


def evict(api: ObjectApi, namespace: str, name: str, body: Any, *, dry_run: bool) -> None:
    """Evict a pod; ApiError when it is refused."""
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise bad_request("the body is not an Eviction")
    if (body.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = read_delete_options(body.get("deleteOptions"), {})
    options = replace(options, dry_run=dry_run or options.dry_run)
    _check_namespace(api, namespace, name)
    pods, budgets = (_kind(api, one) for one in (r.PODS, r.POD_DISRUPTION_BUDGETS))
    pod = api.get(pods, name, namespace).obj
    covering = [] if _ignores_budgets(pod) else _covering(api, budgets, pod)
    if len(covering) > 1:
        raise ApiError(500, "", _MULTIPLE)
    if covering and not _goes_free(pod, covering[0]):
        _charge(api, budgets, covering[0], name, options)
    check_preconditions(pods, pod, options)
    if not options.dry_run:
        now = rfc3339(api.clock())
        status = _with_disruption_target(pod.get("status") or {}, now)
        marked = {**pod, "metadata": dict(pod["metadata"]), "status": status}
        api.replace(pods, api.get(pods, name, namespace), marked, _SERVER, "status")
        options = replace(options, resource_version=None)
    delete(api, pods, name, namespace, options)


def _kind(api: ObjectApi, resource: r.Resource) -> Kind:
    kind = api.registry.find(resource.group, resource.version, resource.plural)
    assert kind is not None, "pods and budgets are always served"
    return kind


def _check_namespace(api: ObjectApi, namespace: str, name: str) -> None:
    found = api.peek(r.NAMESPACES, namespace)
    if found is None:
        raise not_found(r.NAMESPACES, namespace)
    if found["metadata"].get("deletionTimestamp"):
        raise namespace_terminating(r.PODS, name, namespace)


def _ignores_budgets(pod: Object) -> bool:
    """Whether the pod's phase or deletion takes it out of every budget's protection."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def _covering(api: ObjectApi, kind: Kind, pod: Object) -> list[Object]:
    labels = pod["metadata"].get("labels") or {}
    collection = api.collection(kind)
    budgets = [
        collection.objects[key].obj for key in collection.range(pod["metadata"]["namespace"])
    ]
    return [one for one in budgets if matches((one.get("spec") or {}).get("selector"), labels)]


def _goes_free(pod: Object, budget: Object) -> bool:
    """Whether the budget lets this pod, which is not ready, go without charging it."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    if any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
        return False
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    always = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return always or healthy >= desired > 0


def _charge(api: ObjectApi, kind: Kind, budget: Object, pod: str, options: DeleteOptions) -> None:
    """Check the budget and take one disruption from it."""
    metadata, status = budget["metadata"], budget.get("status") or {}
    if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        cause = f"The disruption budget {metadata['name']} is still being processed by the server."
        raise _too_many(cause, STALE_RETRY_AFTER_S)
    if (status.get("disruptionsAllowed") or 0) <= 0:
        raise _too_many(_refusal(metadata["name"], status), None)
    if not options.dry_run:
        charged = _charged(status, pod, rfc3339(api.clock()))
        body = {**budget, "metadata": dict(metadata), "status": charged}
        present = api.get(kind, metadata["name"], metadata["namespace"])
        api.replace(kind, present, body, _SERVER, "status")


def _too_many(cause: str, retry_after_s: int | None) -> ApiError:
    """429 with its cause; `Retry-After` only where waiting is known to help."""
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    headers = {}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
        headers["Retry-After"] = str(retry_after_s)
    return ApiError(429, "TooManyRequests", _VIOLATION, details, headers=headers)


def _refusal(name: str, status: Object) -> str:
    """Why a budget allows no disruption, in the server's words."""
    subject = f"The disruption budget {name}"
    for one in status.get("conditions") or []:
        if one.get("reason") == "SyncFailed" and one.get("status") == "False":
            return (
                f"{subject} does not allow evicting pods currently because it failed sync: "
                f"{one.get('message', '')}"
            )
    current, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    if current <= desired:
        return f"{subject} needs {desired} healthy pods and has {current} currently"
    return f"{subject} does not allow evicting pods currently"


def _charged(status: Object, pod_name: str, now: str) -> Object:
    """The budget's status after one disruption was taken from it."""
    allowed = status["disruptionsAllowed"] - 1
    result = {
        **status,
        "disruptionsAllowed": allowed,
        "disruptedPods": {**(status.get("disruptedPods") or {}), pod_name: now},
    }
    if allowed == 0:
        entry = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": status.get("observedGeneration") or 0,
            "lastTransitionTime": now,
            "reason": "InsufficientPods",
            "message": "",
        }
        result["conditions"] = _with_condition(status, entry)
    return result


def _with_condition(status: Object, entry: Object) -> list[Object]:
    present = status.get("conditions") or []
    return [*(one for one in present if one.get("type") != entry["type"]), entry]


def _with_disruption_target(status: Object, now: str) -> Object:
    """The pod's status saying that the eviction API takes it."""
    reason = "EvictionByEvictionAPI"
    for one in status.get("conditions") or []:
        said = (one.get("type"), one.get("reason"), one.get("status"))
        if said == ("DisruptionTarget", reason, "True"):
            return status
    entry = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": reason,
        "message": "Eviction API: evicting",
    }
    return {**status, "conditions": _with_condition(status, entry)}
