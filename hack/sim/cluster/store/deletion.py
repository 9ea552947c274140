"""Deleting and evicting: preconditions, finalizers, grace periods, budgets.

A pod bound to a node only goes when its kubelet confirms with grace 0; the garbage collector that
follows ownerReferences is a controller, and deletes in the background whatever the caller asks.

The order of an eviction's steps is the contract: budgets are charged before the caller's
preconditions are checked, and a dry run charges nobody. Clients tell the cases apart by codes and
causes.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import (
    ApiError,
    bad_request,
    conflict,
)
from hack.sim.cluster.resource import DeleteOptions, WriteOptions
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.selectors import matches
from hack.sim.cluster.store.store import Stored
from hack.sim.cluster.store.tables import epoch, rfc3339

_FINISHED = frozenset({"Succeeded", "Failed"})


def read_delete_options(body: Any, query: dict[str, str]) -> DeleteOptions:
    """The options of a DELETE from its body and query (the body wins)."""
    body = body if isinstance(body, dict) else {}
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    return DeleteOptions(
        grace=None if grace is None else int(grace),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=bool(body.get("dryRun") or query.get("dryRun")),
    )


def check_preconditions(kind: Kind, obj: Object, options: DeleteOptions) -> None:
    """409 when the object is not the one, or not the revision, that the caller means."""
    metadata = obj["metadata"]
    for name, wanted, found in (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
    ):
        if wanted and wanted != found:
            why = (
                f"the {name} in the precondition ({wanted}) does not match the {name} in record "
                f"({found}). The object might have been deleted and then recreated"
            )
            # These name the kind where other conflicts name the resource.
            raise conflict(
                replace(kind.resource, plural=kind.resource.kind), metadata["name"], why
            )


def delete(
    api: ObjectApi, kind: Kind, name: str, namespace: str | None, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Delete or begin to delete; what is left or was, and whether it is gone."""
    old = api.get(kind, name, namespace)
    check_preconditions(kind, old.obj, options)
    if kind.resource == r.PODS:
        grace = _pod_grace(old.obj, options)
        return (old, False) if grace is None else _delete_pod(api, kind, old, grace, options)
    return _delete_plain(api, kind, old, options)


def _pod_grace(pod: Object, options: DeleteOptions) -> int | None:
    """The grace period this delete sets; None when it changes nothing (grace only shrinks)."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if metadata.get("deletionTimestamp"):
        running = metadata.get("deletionGracePeriodSeconds")
        if running is None:
            return 0
        if options.grace is None or options.grace >= running:
            return None
        return max(0, options.grace)
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    grace = options.grace
    return int(spec.get("terminationGracePeriodSeconds", 30)) if grace is None else grace


def _delete_pod(
    api: ObjectApi, kind: Kind, old: Stored, grace: int, options: DeleteOptions
) -> tuple[Stored, bool]:
    metadata = dict(old.obj["metadata"])
    running = epoch(metadata.get("deletionTimestamp"))
    if running is None:
        ends = api.clock() + grace
    else:
        ends = running - int(metadata.get("deletionGracePeriodSeconds") or 0) + grace
        if ends < api.clock():  # never into the past, and still for the kubelet to end
            ends, grace = api.clock(), min(grace, 1)
    metadata["deletionTimestamp"] = rfc3339(ends)
    metadata["deletionGracePeriodSeconds"] = grace
    if running is None and metadata.get("generation"):
        metadata["generation"] += 1
    quarantined = {**old.obj, "metadata": metadata}
    gone = grace == 0 and not metadata.get("finalizers")
    if options.dry_run:
        return Stored(quarantined, old.revision), gone
    stored = api.put(kind, quarantined)
    return (api.remove(kind, stored.obj), True) if gone else (stored, False)


def _delete_plain(
    api: ObjectApi, kind: Kind, old: Stored, options: DeleteOptions
) -> tuple[Stored, bool]:
    metadata = dict(old.obj["metadata"])
    if not metadata.get("finalizers"):
        return (old if options.dry_run else api.remove(kind, old.obj)), True
    if metadata.get("deletionTimestamp") and metadata == old.obj["metadata"]:
        return old, False
    quarantined = {**old.obj, "metadata": metadata}
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = rfc3339(api.clock())
        metadata["deletionGracePeriodSeconds"] = 0
        if metadata.get("generation"):
            metadata["generation"] += 1
    return (
        Stored(quarantined, old.revision) if options.dry_run else api.put(kind, quarantined)
    ), False


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
    pods, budgets = (_kind(api, one) for one in (r.PODS, r.POD_DISRUPTION_BUDGETS))
    pod = api.get(pods, name, namespace).obj
    collection = api.collection(budgets)
    known = [collection.objects[key].obj for key in collection.range(namespace)]
    budget = charged_budget(pod, known)
    if budget is not None and not options.dry_run:
        now = rfc3339(api.clock())
        charged = _charged(budget.get("status") or {}, name, now)
        body = {**budget, "metadata": dict(budget["metadata"]), "status": charged}
        present = api.get(budgets, budget["metadata"]["name"], namespace)
        api.replace(budgets, present, body, _SERVER, "status")
    check_preconditions(pods, pod, options)
    if not options.dry_run:
        now = rfc3339(api.clock())
        status = _with_disruption_target(pod.get("status") or {}, now)
        quarantined = {**pod, "metadata": dict(pod["metadata"]), "status": status}
        api.replace(pods, api.get(pods, name, namespace), quarantined, _SERVER, "status")
        options = replace(options, resource_version=None)
    delete(api, pods, name, namespace, options)


def _kind(api: ObjectApi, resource: r.Resource) -> Kind:
    kind = api.registry.find(resource.group, resource.version, resource.plural)
    assert kind is not None, "pods and budgets are always served"
    return kind


def _ignores_budgets(pod: Object) -> bool:
    """Whether the pod's phase or deletion takes it out of every budget's protection."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def charged_budget(pod: Object, budgets: Iterable[Object]) -> Object | None:
    """The budget from which an eviction of the pod takes a disruption, None for none of them.

    `budgets` are those of the pod's namespace. ApiError when the eviction is refused.
    """
    if _ignores_budgets(pod):
        return None
    labels = pod["metadata"].get("labels") or {}
    covering = [one for one in budgets if matches((one.get("spec") or {}).get("selector"), labels)]
    if len(covering) > 1:
        raise ApiError(500, "", _MULTIPLE)
    if not covering or _goes_free(pod, covering[0]):
        return None
    (budget,) = covering
    metadata, status = budget["metadata"], budget.get("status") or {}
    if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        cause = f"The disruption budget {metadata['name']} is still being processed by the server."
        raise _too_many(cause, STALE_RETRY_AFTER_S)
    if (status.get("disruptionsAllowed") or 0) <= 0:
        raise _too_many(_refusal(metadata["name"], status), None)
    return budget


def _goes_free(pod: Object, budget: Object) -> bool:
    """Whether the budget lets this pod, which is not ready, go without charging it."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    if any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
        return False
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    always = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return always or healthy >= desired > 0


def _too_many(cause: str, retry_after_s: int | None) -> ApiError:
    """429 with its cause; `Retry-After` only where waiting is known to help."""
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    headers = {}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
        headers["Retry-After"] = str(retry_after_s)
    return ApiError(429, "TooManyRequests", _VIOLATION, details, headers=headers)


def _refusal(name: str, status: Object) -> str:
    """The server's message when a budget allows no disruption."""
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
        present = (one.get("type"), one.get("reason"), one.get("status"))
        if present == ("DisruptionTarget", reason, "True"):
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
