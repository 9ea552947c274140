"""What a pod's fields mean to controllers: owners, quantities, conditions, times, its template.

Workload controllers, scheduler, disruption controller and fake kubelets use it; nothing here
writes.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

Obj = dict[str, Any]


def reference(owner: Obj) -> Obj:
    """The controlling ownerReference that points at `owner`."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Obj) -> Obj | None:
    """The reference with `controller: true`, of which an object has at most one."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def is_controlled_by(obj: Obj, kind: str, uid: str) -> bool:
    """Whether the object's controller is the owner of that kind and UID."""
    owner = controller_of(obj)
    return owner is not None and owner["kind"] == kind and owner["uid"] == uid


def controlled_by(objects: Iterable[Obj], owner: Obj) -> list[Obj]:
    """Those of the objects whose controller is exactly `owner` (by UID)."""
    uid = owner["metadata"]["uid"]
    return [obj for obj in objects if is_controlled_by(obj, owner["kind"], uid)]


_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_FACTOR = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{s}i": Decimal(1024) ** power for power, s in enumerate("KMGTPE", start=1)},
}


@lru_cache(maxsize=4096)
def _decimal(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"not a Kubernetes quantity: {text!r}")
    return Decimal(match[1]) * _FACTOR[match[2] or ""]


@lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int:
    """The quantity of one resource: cpu in millicores, anything else in full units (rounded
    up).
    """
    value = _decimal(text) * 1000 if resource == "cpu" else _decimal(text)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))


GPU = "nvidia.com/gpu"


def condition(obj: Obj, kind: str) -> Obj | None:
    """The status condition of that type, of a pod or any other object."""
    for entry in obj.get("status", {}).get("conditions") or ():
        if entry["type"] == kind:
            return dict(entry)
    return None


def is_true(obj: Obj, kind: str) -> bool:
    """Whether the condition of that type is there and True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def with_condition(conditions: list[Obj] | None, new: Obj, now: str) -> list[Obj]:
    """The list with one condition set; its transition time moves only when its status changes."""
    out = [dict(entry) for entry in conditions or ()]
    for position, entry in enumerate(out):
        if entry["type"] == new["type"]:
            same = entry["status"] == new["status"]
            since = entry.get("lastTransitionTime", now) if same else now
            out[position] = {**new, "lastTransitionTime": since}
            return out
    return [*out, {**new, "lastTransitionTime": now}]


def phase(pod: Obj) -> str:
    """The pod's phase, Pending where none is set yet."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def is_ready(pod: Obj) -> bool:
    """Condition Ready is True."""
    return is_true(pod, "Ready")


def is_terminating(obj: Obj) -> bool:
    """A deletion timestamp is set."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_finished(pod: Obj) -> bool:
    """Phase Succeeded or Failed."""
    return phase(pod) in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    """Neither finished nor terminating: counts as a replica."""
    return not is_finished(pod) and not is_terminating(pod)


def node_of(pod: Obj) -> str:
    """The node it is bound to, or the empty string."""
    return str(pod.get("spec", {}).get("nodeName") or "")


def resource_requests(pod: Obj) -> dict[str, int]:
    """What the pod takes from a node: cpu in millicores, other resources in units.

    The sum over its containers and restartable init containers, at least the largest other init
    container. A limit without a request counts as the request.
    """
    spec = pod["spec"]
    running: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, value in _requests(container).items():
            running[name] = running.get(name, 0) + value
    for container in spec.get("initContainers") or ():
        for name, value in _requests(container).items():
            if container.get("restartPolicy") == "Always":
                running[name] = running.get(name, 0) + value
            else:
                starting[name] = max(starting.get(name, 0), value)
    return {
        name: max(running.get(name, 0), starting.get(name, 0))
        for name in running.keys() | starting.keys()
    }


def _requests(container: Obj) -> dict[str, int]:
    resources = container.get("resources") or {}
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(name, str(value)) for name, value in merged.items()}


def from_template(
    template: Obj,
    owner: Obj,
    *,
    name: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    finalizers: list[str] | None = None,
) -> Obj:
    """The pod that `owner` makes from a pod template, named `name` or with a generated name."""
    meta = template.get("metadata") or {}
    own: dict[str, Any] = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(meta.get("labels") or {}), **(labels or {})},
        "annotations": {**(meta.get("annotations") or {}), **(annotations or {})},
        "ownerReferences": [reference(owner)],
    }
    if name is None:
        own["generateName"] = f"{owner['metadata']['name']}-"
    else:
        own["name"] = name
    if finalizers:
        own["finalizers"] = finalizers
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": {**template["spec"]}}


def template_hash(template: Obj) -> str:
    """A short name for one pod template: equal templates have equal hashes."""
    meta = template.get("metadata") or {}
    identity = {
        "labels": {
            key: value
            for key, value in (meta.get("labels") or {}).items()
            if key != "pod-template-hash"
        },
        "annotations": meta.get("annotations") or {},
        "spec": template["spec"],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return digest[:10]


def stamp(at: datetime) -> str:
    """The time with whole seconds, as metav1.Time is written."""
    return _utc(at, "seconds")


def stamp_micro(at: datetime) -> str:
    """The time with microseconds, as metav1.MicroTime (Lease, Event) is written."""
    return _utc(at, "microseconds")


def _utc(at: datetime, precision: str) -> str:
    """RFC 3339 with a Z: ten times faster than strftime, which shows in big fleets."""
    return at.astimezone(UTC).isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def parse_stamp(text: str) -> datetime:
    """The moment that an API timestamp names. Raises ValueError for anything else."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
