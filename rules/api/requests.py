"""Return the HTTP request of each write: method, path, content type and body.

The gateway calls `request(write)` and sends the result.
Merge patches with `metadata.resourceVersion` answer 409 when stale (a failing JSON Patch
`test` answers 422, which looks like a validation error).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from rules.api import device_taints, health, names, object_name, timestamps
from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.quarantine import QuarantineStatus
from rules.api.repair_writes import (
    CreateTestJob,
    DeleteTestJob,
    SetRepairCondition,
    SetValidated,
    Verb,
    WriteRepairObject,
)
from rules.text import printable

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"
_OURS = f"/apis/{names.API_VERSION}"
QUARANTINES = f"{_OURS}/gpuquarantines"
RECORDS = f"{_OURS}/gpurecords"
HEALTHS = f"{_OURS}/gpunodehealths"
EVIDENCES = f"{_OURS}/gpuevidences"
DEPLOYMENT = "gpuward-remediator"
_EVENT_BYTES = 1024
"""An Event with a longer message is refused."""

_NodeCondition = d.SetNodeUnknown | SetRepairCondition | SetValidated | d.SetDrainConditions
_AnyCondition = _NodeCondition | d.SetDisruptionTarget | d.NotifyPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request to the API server; `body` is a JSON value."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    content_type: str = JSON


def request(write: d.Write) -> Request:
    """The exact request of `write`."""
    match write:
        case d.TaintAndCordon() | d.RemoveTaint() | d.RelabelNode():
            node = object_name.segment(write.node)
            path = f"/api/v1/nodes/{node}?fieldManager={names.COMPONENT_REMEDIATOR}"
            # Equal to a merge patch here, because a taint list has no merge key, but it costs the
            # API server an eighth less.
            body = dict(write.patch)
            return Request(method="PATCH", path=path, content_type=STRATEGIC_PATCH, body=body)
        case d.EvictPod() | d.DeletePod() | d.SetDisruptionTarget() | d.NotifyPod():
            return _pod_request(write)
        case d.SetNodeUnknown():
            metadata = {
                "resourceVersion": write.resource_version,
                "uid": write.node_uid,
                "labels": {names.LABEL_HEALTH: "unknown"},
            }
            return _node_condition(
                write, names.CONDITION_HEALTHY, "Unknown", "AgentStale", metadata
            )
        case d.SetHealthSilent():
            return _status(
                f"{HEALTHS}/{object_name.segment(write.node)}",
                write.resource_version,
                {"silentSince": write.since or None},
            )
        case SetRepairCondition():
            reason = write.step if write.asks else "NotNeeded"
            return _node_condition(
                write, write.kind, _status_value(write.asks), reason, {"uid": write.node_uid}
            )
        case WriteRepairObject():
            return _repair_object(write)
        case TaintDevice():
            path = device_taints.address(write.api_version).path
            return Request(method="POST", path=path, body=write.body)
        case UntaintDevice():
            path = device_taints.address(write.api_version).path
            path = f"{path}/{object_name.segment(write.name)}"
            return _delete(path, write.uid, write.resource_version)
        case d.DeleteObject():
            return _delete(f"{_OURS}/{write.plural}/{object_name.segment(write.name)}", write.uid)
        case CreateTestJob():
            return Request(method="POST", path=_jobs(write.namespace), body=dict(write.body))
        case DeleteTestJob():
            path = f"{_jobs(write.namespace)}/{object_name.segment(write.name)}"
            return _delete(path, write.uid, propagationPolicy="Background")
        case SetValidated():
            reason = "TestPassed" if write.passed else "TestFailed"
            value = _status_value(write.passed)
            return _node_condition(
                write, names.CONDITION_VALIDATED, value, reason, {"uid": write.node_uid}
            )
        case d.SetDrainConditions():
            conditions = []
            for kind, holds in write.states:
                reason = names.REASON_QUARANTINE if holds else names.REASON_WITHDRAWN
                conditions.append(_node_state(write, kind, _status_value(holds), reason))
            return _conditioned(_node(write), {"uid": write.node_uid}, *conditions)
        case d.EmitEvent():
            path = f"/api/v1/namespaces/{object_name.segment(write.namespace)}/events"
            return Request(method="POST", path=path, body=_event(write))
        case d.CreateRecord():
            return _create(RECORDS, "GPURecord", write.name)
        case d.WriteRecord():
            path = f"{RECORDS}/{object_name.segment(write.name)}"
            return _status(path, write.resource_version, dict(write.status))
        case d.CreateSession():
            return _create(QUARANTINES, "GPUQuarantine", write.name, spec=health.plain(write.spec))
        case d.PatchSessionSpec():
            filled = {"nodeUID": write.node_uid, "bootID": write.boot_id, "level": write.level}
            spec: dict[str, Any] = {key: value for key, value in filled.items() if value}
            if write.causes is not None:
                spec["causes"] = health.plain(write.causes)
            metadata = {"resourceVersion": write.resource_version}
            path = f"{QUARANTINES}/{object_name.segment(write.name)}"
            return _merge(path, {"metadata": metadata, "spec": spec})
        case d.WriteSessionStatus():
            path = f"{QUARANTINES}/{object_name.segment(write.name)}"
            return _status(path, write.resource_version, status_patch(write.status))


def _jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{object_name.segment(namespace)}/jobs"


def _create(path: str, kind: str, name: str, **more: Any) -> Request:
    body = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, **more}
    return Request(method="POST", path=path, body=body)


def _merge(path: str, body: dict[str, Any]) -> Request:
    return Request(method="PATCH", path=path, content_type=MERGE_PATCH, body=body)


def _status(path: str, version: str, status: dict[str, Any]) -> Request:
    body = {"metadata": {"resourceVersion": version}, "status": status}
    return _merge(f"{path}/status", body)


def _delete(path: str, uid: str, version: str = "", **more: Any) -> Request:
    wanted = {"uid": uid, **({"resourceVersion": version} if version else {})}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wanted}
    return Request(method="DELETE", path=path, body={**options, **more})


def status_patch(status: QuarantineStatus) -> dict[str, Any]:
    """Return the entire status as a merge patch with null for empty fields."""
    return _with_nulls(status)


def _with_nulls(part: msgspec.Struct) -> dict[str, Any]:
    patch: dict[str, Any] = dict.fromkeys(part.__struct_encode_fields__)
    patch.update(health.plain(part))
    for name, key in zip(part.__struct_fields__, part.__struct_encode_fields__, strict=True):
        if isinstance(value := getattr(part, name), msgspec.Struct):
            patch[key] = _with_nulls(value)
    return patch


def _pod_request(
    write: d.EvictPod | d.DeletePod | d.SetDisruptionTarget | d.NotifyPod,
) -> Request:
    namespace, name = object_name.segment(write.namespace), object_name.segment(write.name)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    match write:
        case d.EvictPod():
            options: dict[str, Any] = {"preconditions": {"uid": write.uid}}
            if write.dry_run:
                options["dryRun"] = ["All"]
            query = "?dryRun=All" if write.dry_run else ""
            return _evict(f"{path}/eviction{query}", write.name, write.namespace, options)
        case d.DeletePod():
            return _delete(path, write.uid, gracePeriodSeconds=write.grace_s)
        case d.SetDisruptionTarget():
            condition = _condition(write, "DisruptionTarget", "True", names.REASON_QUARANTINE)
            # A different UID in the patch is refused, which makes it a precondition.
            return _conditioned(path, {"uid": write.uid}, condition)
        case d.NotifyPod():
            value, reason, at = "False", "DrainWithdrawn", None
            if write.drain_at is not None:
                value, reason = "True", names.REASON_QUARANTINE
                at = timestamps.format_time(write.drain_at)
            condition = _condition(write, names.CONDITION_DRAIN_PLANNED, value, reason)
            # One write for both: the right to patch pods/status cannot change a pod's spec.
            metadata = {"uid": write.uid, "annotations": {names.ANNOTATION_DRAIN_AT: at}}
            return _conditioned(path, metadata, condition)


def _evict(path: str, name: str, namespace: str, options: dict[str, Any]) -> Request:
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    return Request(method="POST", path=path, body={**body, "deleteOptions": options})


def _condition(write: _AnyCondition, kind: str, status: str, reason: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": write.message,
        "lastTransitionTime": timestamps.format_time(write.at),
    }


def _conditioned(path: str, metadata: dict[str, Any], *conditions: dict[str, str]) -> Request:
    """Return a strategic merge patch, which keeps other conditions; a different UID is refused."""
    body = {"metadata": metadata, "status": {"conditions": [*conditions]}}
    return Request(method="PATCH", path=f"{path}/status", content_type=STRATEGIC_PATCH, body=body)


def _node_condition(
    write: _NodeCondition, kind: str, status: str, reason: str, metadata: dict[str, Any]
) -> Request:
    return _conditioned(_node(write), metadata, _node_state(write, kind, status, reason))


def _node_state(write: _NodeCondition, kind: str, status: str, reason: str) -> dict[str, str]:
    at = timestamps.format_time(write.at)
    return {**_condition(write, kind, status, reason), "lastHeartbeatTime": at}


def _node(write: _NodeCondition) -> str:
    return f"/api/v1/nodes/{object_name.segment(write.node)}"


def _status_value(value: bool) -> str:
    return "True" if value else "False"


def _repair_object(write: WriteRepairObject) -> Request:
    at, body = write.address, dict(write.body)
    manager = f"?fieldManager={names.COMPONENT_REMEDIATOR}"
    match write.verb:
        case Verb.CREATE:
            collection = replace(at, name="")
            return Request(method="POST", path=f"{collection.path}{manager}", body=body)
        case Verb.PATCH:
            return _merge(f"{at.path}{manager}", body)
        case Verb.DELETE:
            return Request(method="DELETE", path=at.path, body=body)


def _event(write: d.EmitEvent) -> dict[str, Any]:
    about = _about(write)
    uid = about.get("uid", "")
    digest = hashlib.sha256(f"{uid}/{write.reason}/{write.key}".encode()).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": object_name.name_from(
                write.pod or write.node or DEPLOYMENT, f".{digest[:16]}"
            ),
            "namespace": write.namespace,
        },
        "involvedObject": about,
        "type": write.kind,
        "reason": write.reason,
        "message": printable.within_bytes(write.message, _EVENT_BYTES),
        "count": 1,
        "firstTimestamp": timestamps.format_time(write.at),
        "lastTimestamp": timestamps.format_time(write.at),
        "eventTime": timestamps.format_micro_time(write.at),
        "action": write.reason,
        "source": {"component": names.COMPONENT_REMEDIATOR},
        "reportingComponent": names.COMPONENT_REMEDIATOR,
        "reportingInstance": names.COMPONENT_REMEDIATOR,
    }


def _about(write: d.EmitEvent) -> dict[str, str]:
    """Return the Event's object; a namespaced object has the Event's namespace."""
    if write.pod:
        its = {"name": write.pod, "namespace": write.namespace, "uid": write.pod_uid}
        return {"apiVersion": "v1", "kind": "Pod", **its}
    if write.node_uid:
        return {"apiVersion": "v1", "kind": "Node", "name": write.node, "uid": write.node_uid}
    its = {"name": DEPLOYMENT, "namespace": write.namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", **its}


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `target` with the merge patch applied."""
    found = dict(target)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            inner = found.get(key)
            found[key] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            found[key] = value
    return found
