"""Defaults and validation of the kinds with few rules: namespaces, events, leases, budgets, RBAC.

Called by the strategies; each rule is one that a client of ours could break.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.statuses import FieldProblem, invalid, required
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.validation.cluster import Cluster
from hack.sim.cluster.validation.names import label_problems, qualified_name_problem

_CLUSTER_EVENT_NAMESPACES = frozenset({"default", "kube-system"})
_SHORT_TEXT = 128
_MESSAGE_LIMIT = 1024
_LEAST_SERIES = 2


def complete_namespace(_: Cluster, namespace: Object) -> None:
    """A new namespace is active, labelled with its name and kept until it is emptied."""
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {})}
    labels["kubernetes.io/metadata.name"] = metadata.get("name", "")
    metadata["labels"] = labels
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def keep_namespace(_: Cluster, old: Object, new: Object, subresource: str) -> None:
    """Only `finalize` changes what keeps a namespace, and it changes nothing else."""
    if subresource == "finalize":
        metadata = {**old["metadata"], "resourceVersion": new["metadata"]["resourceVersion"]}
        new["metadata"] = metadata
        new["status"] = old.get("status") or {}
    else:
        new["spec"] = old.get("spec") or {}


def forget_events(api: Cluster, namespace: Object) -> None:
    """The events of a namespace go with it."""
    collection = api.store.collections.get("events")
    if collection is None:
        return
    for key in list(collection.range(namespace["metadata"]["name"])):
        api.store.remove(collection, key)


def complete_budget(_: Cluster, budget: Object) -> None:
    """A new budget allows nothing until the disruption controller has seen it."""
    budget["status"] = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    }


def budget_problems(_: Cluster, budget: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that a PodDisruptionBudget breaks."""
    spec = budget.get("spec") or {}
    problems: list[FieldProblem] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        problems.append(
            invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
        )
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if value is not None and not _is_share(value):
            problems.append(
                invalid(f"spec.{field}", value, "must be greater than or equal to 0")
                if isinstance(value, int)
                else invalid(
                    f"spec.{field}",
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' "
                    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                )
            )
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in {None, "IfHealthyBudget", "AlwaysAllow"}:
        problems.append(invalid("spec.unhealthyPodEvictionPolicy", policy, "not supported"))
    selector = spec.get("selector") or {}
    problems += label_problems(selector.get("matchLabels") or {}, "spec.selector.matchLabels")
    return problems


def _is_share(value: Any) -> bool:
    if isinstance(value, int):
        return value >= 0
    number = value[:-1] if isinstance(value, str) and value.endswith("%") else ""
    return number.isdigit() and int(number) <= 100


def lease_problems(_: Cluster, lease: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that a Lease breaks."""
    spec = lease.get("spec") or {}
    problems = []
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        problems.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        problems.append(
            invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
        )
    return problems


def role_problems(_: Cluster, role: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that a role breaks."""
    return [
        required(f"rules[{index}].verbs")
        for index, rule in enumerate(role.get("rules") or [])
        if not rule.get("verbs")
    ]


def role_ref_problems(_: Cluster, binding: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that a binding of a role breaks."""
    ref = binding.get("roleRef") or {}
    problems = []
    if not ref.get("name"):
        problems.append(required("roleRef.name"))
    if old is not None and ref != old.get("roleRef"):
        problems.append(invalid("roleRef", ref, "cannot change roleRef"))
    for index, subject in enumerate(binding.get("subjects") or []):
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            problems.append(required(f"subjects[{index}].namespace"))
    return problems


def new_event_problems(api: Cluster, event: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that an Event breaks that comes through events.k8s.io, which has more of them."""
    problems = event_problems(api, event, old)
    if old is not None:
        return problems
    if not event.get("eventTime"):
        problems.append(required("eventTime"))
    if event.get("type") not in {"Normal", "Warning"}:
        problems.append(invalid("type", "", f"has invalid value: {event.get('type') or ''}"))
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(field):
            problems.append(invalid(field, "", "needs to be unset"))
    series = event.get("series")
    if series and series.get("count", 0) < _LEAST_SERIES:
        problems.append(invalid("series.count", "", f"should be at least {_LEAST_SERIES}"))
    return problems


def event_problems(_: Cluster, event: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that an Event breaks; those with an `eventTime` are held to more of them."""
    namespace = event["metadata"].get("namespace") or ""
    target = (event.get("involvedObject") or {}).get("namespace") or ""
    timed = bool(event.get("eventTime"))
    if target:
        misplaced = not timed and namespace != target
    else:
        misplaced = namespace not in (_CLUSTER_EVENT_NAMESPACES if timed else {"default"})
    problems = []
    if misplaced:
        problems.append(
            invalid("involvedObject.namespace", target, "does not match event.namespace")
        )
    if not timed:
        return problems
    controller = event.get("reportingComponent") or ""
    if not controller:
        problems.append(required("reportingComponent"))
    elif why := qualified_name_problem(controller):
        problems.append(invalid("reportingComponent", controller, why))
    for field, limit in (
        ("reportingInstance", _SHORT_TEXT),
        ("action", _SHORT_TEXT),
        ("reason", _SHORT_TEXT),
    ):
        text = event.get(field) or ""
        if not text:
            problems.append(required(field))
        elif len(text) > limit:
            problems.append(invalid(field, "", f"can have at most {limit} characters"))
    if len(event.get("message") or "") > _MESSAGE_LIMIT:
        problems.append(invalid("message", "", f"can have at most {_MESSAGE_LIMIT} characters"))
    return problems
