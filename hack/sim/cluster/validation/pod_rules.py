"""Defaults, admission and validation of pods and pod templates.

Called by the strategies; follows core/v1 for what scheduling, eviction and deletion depend on.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.statuses import (
    FieldProblem,
    duplicate,
    forbidden,
    forbidden_field,
    invalid,
    required,
    unsupported,
)
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.validation.cluster import Cluster
from hack.sim.cluster.validation.names import dns_label_problem

_SYSTEM_PRIORITIES = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
_POD_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_CONTAINER_DEFAULTS: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE = ("activeDeadlineSeconds", "tolerations")
_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
_CONTAINER_LISTS = ("containers", "initContainers")


def complete_pod_template(spec: Object) -> None:
    """Fill in the defaults of a pod's or a template's spec, in place."""
    for field, value in _POD_DEFAULTS.items():
        spec.setdefault(field, value)
    for name in _CONTAINER_LISTS:
        if name not in spec:
            continue
        containers = []
        for container in spec[name]:
            image = str(container.get("image", ""))
            tag = image.rpartition("/")[2].partition(":")[2]
            policy = "Always" if tag in {"", "latest"} and "@" not in image else "IfNotPresent"
            filled = {**_CONTAINER_DEFAULTS, "imagePullPolicy": policy, **container}
            filled["resources"] = _with_requests(filled.get("resources") or {})
            containers.append(filled)
        spec[name] = containers


def _with_requests(resources: Object) -> Object:
    limits = resources.get("limits")
    if not limits:
        return resources
    return {**resources, "requests": {**limits, **(resources.get("requests") or {})}}


def complete_pod(api: Cluster, pod: Object) -> None:
    """A new pod as admission leaves it: defaults, priority, tolerations, a fresh status."""
    spec = dict(pod.get("spec") or {})
    pod["spec"] = spec
    complete_pod_template(spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _admit_priority(api, pod, spec)
    tolerations = list(spec.get("tolerations") or [])
    for key in _NOT_READY_TAINTS:
        if not any(_tolerates_no_execute(one, key) for one in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            )
    spec["tolerations"] = tolerations
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}


def _tolerates_no_execute(toleration: Object, key: str) -> bool:
    effect = toleration.get("effect") or "NoExecute"
    if effect != "NoExecute":
        return False
    stated = toleration.get("key")
    return stated == key or (not stated and toleration.get("operator") == "Exists")


def _admit_priority(api: Cluster, pod: Object, spec: Object) -> None:
    name = spec.get("priorityClassName")
    if not name:
        spec["priority"] = 0
        return
    found = api.peek(r.PRIORITY_CLASSES, name)
    if found is None and name not in _SYSTEM_PRIORITIES:
        raise forbidden(
            r.PODS,
            pod["metadata"].get("name") or "",
            f"no PriorityClass with name {name} was found",
        )
    spec["priority"] = int(found.get("value", 0)) if found else _SYSTEM_PRIORITIES[name]


def _qos_class(spec: Object) -> str:
    containers = [one for name in _CONTAINER_LISTS for one in spec.get(name) or []]
    resources = [one.get("resources") or {} for one in containers]
    stated = [
        name
        for one in resources
        for name in (*(one.get("limits") or {}), *(one.get("requests") or {}))
        if name in {"cpu", "memory"}
    ]
    if not stated:
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(one.get("limits") or {})
        and all(
            (one.get("requests") or {}).get(name) == one["limits"][name]
            for name in ("cpu", "memory")
        )
        for one in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def keep_pod_owners(_: Cluster, old: Object, new: Object, subresource: str) -> None:
    """A write of pod status never changes who owns the pod."""
    if subresource != "status":
        return
    owners = old["metadata"].get("ownerReferences")
    new["metadata"].pop("ownerReferences", None)
    if owners:
        new["metadata"]["ownerReferences"] = owners


def pod_problems(_: Cluster, pod: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that the pod breaks."""
    spec = pod.get("spec") or {}
    if old is not None:
        before = old.get("spec") or {}
        return [] if before is spec else _change_problems(before, spec)
    return spec_problems(spec, "spec")


def spec_problems(spec: Object, path: str) -> list[FieldProblem]:
    """Every rule that a pod's or a template's spec breaks by itself."""
    problems = []
    containers: list[Any] = spec.get("containers") or []
    if not containers:
        problems.append(required(f"{path}.containers"))
    names = set()
    for index, container in enumerate(containers):
        where = f"{path}.containers[{index}]"
        name = container.get("name") or ""
        if not name:
            problems.append(required(f"{where}.name"))
        elif why := dns_label_problem(name):
            problems.append(invalid(f"{where}.name", name, why))
        elif name in names:
            problems.append(duplicate(f"{where}.name", name))
        names.add(name)
        if not container.get("image"):
            problems.append(required(f"{where}.image"))
        problems += _extended_resource_problems(container.get("resources") or {}, where)
    volumes = [str(volume.get("name") or "") for volume in spec.get("volumes") or []]
    problems += [
        duplicate(f"{path}.volumes[{index}].name", name)
        for index, name in enumerate(volumes)
        if name in volumes[:index]
    ]
    problems += [
        unsupported(f"{path}.tolerations[{index}].operator", one["operator"], _OPERATORS[:2])
        for index, one in enumerate(spec.get("tolerations") or [])
        if one.get("operator") not in {None, *_OPERATORS}
    ]
    policies = ("Always", "OnFailure", "Never")
    if spec.get("restartPolicy") not in policies:
        problems.append(unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), policies))
    return problems


def _extended_resource_problems(resources: Object, where: str) -> list[FieldProblem]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return [
        invalid(
            f"{where}.resources.requests", requests.get(name), f"must be equal to {name} limit"
        )
        for name in {*limits, *requests}
        if "/" in name and limits.get(name) != requests.get(name)
    ]


def _change_problems(before: Object, after: Object) -> list[FieldProblem]:
    def fixed(spec: Object) -> Object:
        rest = {key: value for key, value in spec.items() if key not in _MUTABLE}
        for name in _CONTAINER_LISTS:
            rest[name] = [
                {key: value for key, value in one.items() if key != "image"}
                for one in spec.get(name) or []
            ]
        return rest

    kept = before.get("tolerations") or []
    added_only = all(one in (after.get("tolerations") or []) for one in kept)
    if fixed(before) == fixed(after) and added_only:
        return []
    return [
        forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
            "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
            "(allow it to be set to 1 if it was previously negative)",
        )
    ]
