"""How each write looks on the wire: verb, path, content type and body, as a pure function.

The gateway at the edge calls `request(write)` and sends the result; a dry run prints it.
Merge patches with `metadata.resourceVersion` answer 409 when stale (a failing JSON Patch
`test` answers 422, which looks like a validation error).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from rules.api import writes as d
from rules.api.health import plain
from rules.api.names import (
    API_VERSION,
    COMPONENT_REMEDIATOR,
    CONDITION_HEALTHY,
    CONDITION_VALIDATED,
    GROUP,
    LABEL_HEALTH,
    VERSION,
)
from rules.api.object_name import name_from, segment
from rules.api.quarantine import QuarantineStatus
from rules.api.repair.writes import (
    CreateTestJob,
    DeleteTestJob,
    SetRepairCondition,
    SetValidated,
    Verb,
    WriteRepairObject,
)
from rules.api.timestamps import format_micro_time, format_time

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"
QUARANTINES = f"/apis/{GROUP}/{VERSION}/gpuquarantines"
RECORDS = f"/apis/{GROUP}/{VERSION}/gpurecords"
HEALTHS = f"/apis/{GROUP}/{VERSION}/gpunodehealths"
EVIDENCES = f"/apis/{GROUP}/{VERSION}/gpuevidences"
DEPLOYMENT = "gpuward-remediator"


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
        case d.MarkNode() | d.UnmarkNode() | d.RelabelNode():
            return Request(
                method="PATCH",
                path=f"/api/v1/nodes/{segment(write.node)}?fieldManager={COMPONENT_REMEDIATOR}",
                content_type=MERGE_PATCH,
                body=dict(write.patch),
            )
        case d.EvictPod() | d.DeletePod() | d.SetDisruptionTarget():
            return _pod_request(write)
        case d.SetNodeUnknown():
            return _set_unknown(write)
        case d.SetVerdictSilent():
            return Request(
                method="PATCH",
                path=f"{HEALTHS}/{segment(write.node)}/status",
                content_type=MERGE_PATCH,
                body={
                    "metadata": {"resourceVersion": write.resource_version},
                    "status": {"silentSince": write.since or None},
                },
            )
        case SetRepairCondition():
            reason = write.step if write.asks else "NotNeeded"
            return _condition(write, write.kind, on=write.asks, reason=reason)
        case WriteRepairObject():
            return _repair_object(write)
        case d.DeleteEvidence():
            path = f"{EVIDENCES}/{segment(write.name)}"
            return Request(method="DELETE", path=path, body=_delete_options(write.uid))
        case CreateTestJob() | DeleteTestJob():
            return _job_request(write)
        case SetValidated():
            reason = "TestPassed" if write.passed else "TestFailed"
            return _condition(write, CONDITION_VALIDATED, on=write.passed, reason=reason)
        case d.EmitEvent():
            return Request(
                method="POST",
                path=f"/api/v1/namespaces/{segment(write.namespace)}/events",
                body=_event(write),
            )
        case d.CreateRecord() | d.WriteRecord() | d.DeleteRecord():
            return _record_request(write)
        case _:
            return _session_request(write)


def _record_request(write: d.CreateRecord | d.WriteRecord | d.DeleteRecord) -> Request:
    path = f"{RECORDS}/{segment(write.name)}"
    match write:
        case d.CreateRecord():
            body: dict[str, Any] = {
                "apiVersion": API_VERSION,
                "kind": "GPURecord",
                "metadata": {"name": write.name},
            }
            return Request(method="POST", path=RECORDS, body=body)
        case d.WriteRecord():
            body = {
                "metadata": {"resourceVersion": write.resource_version},
                "status": dict(write.status),
            }
            path = f"{path}/status"
            return Request(method="PATCH", path=path, content_type=MERGE_PATCH, body=body)
        case d.DeleteRecord():
            return Request(method="DELETE", path=path, body=_delete_options(write.uid))


def _session_request(
    write: d.CreateSession | d.PatchSessionSpec | d.WriteSessionStatus | d.DeleteSession,
) -> Request:
    path = f"{QUARANTINES}/{segment(write.name)}"
    match write:
        case d.CreateSession():
            body = {
                "apiVersion": API_VERSION,
                "kind": "GPUQuarantine",
                "metadata": {"name": write.name},
                "spec": plain(write.spec),
            }
            return Request(method="POST", path=QUARANTINES, body=body)
        case d.PatchSessionSpec():
            filled = {"nodeUID": write.node_uid, "bootID": write.boot_id, "level": write.level}
            spec: dict[str, Any] = {key: value for key, value in filled.items() if value}
            if write.causes is not None:
                spec["causes"] = plain(write.causes)
            body = {"metadata": {"resourceVersion": write.resource_version}, "spec": spec}
            return Request(method="PATCH", path=path, content_type=MERGE_PATCH, body=body)
        case d.WriteSessionStatus():
            body = {
                "metadata": {"resourceVersion": write.resource_version},
                "status": status_patch(write.status),
            }
            path = f"{path}/status"
            return Request(method="PATCH", path=path, content_type=MERGE_PATCH, body=body)
        case d.DeleteSession():
            return Request(method="DELETE", path=path, body=_delete_options(write.uid))


def status_patch(status: QuarantineStatus) -> dict[str, Any]:
    """The whole status as a merge patch: what is empty is removed by null."""
    patch: dict[str, Any] = dict.fromkeys(status.__struct_encode_fields__)
    patch.update(plain(status))
    if status.drain is not None:
        drain: dict[str, Any] = dict.fromkeys(status.drain.__struct_encode_fields__)
        patch["drain"] = {**drain, **plain(status.drain)}
    return patch


def _job_request(write: CreateTestJob | DeleteTestJob) -> Request:
    path = f"/apis/batch/v1/namespaces/{segment(write.namespace)}/jobs"
    if isinstance(write, CreateTestJob):
        return Request(method="POST", path=path, body=dict(write.body))
    body = {**_delete_options(write.uid), "propagationPolicy": "Background"}
    return Request(method="DELETE", path=f"{path}/{segment(write.name)}", body=body)


def _pod_request(write: d.EvictPod | d.DeletePod | d.SetDisruptionTarget) -> Request:
    path = f"/api/v1/namespaces/{segment(write.namespace)}/pods/{segment(write.name)}"
    match write:
        case d.EvictPod():
            options: dict[str, Any] = {"preconditions": {"uid": write.uid}}
            if write.dry_run:
                options["dryRun"] = ["All"]
            body: dict[str, Any] = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": write.name, "namespace": write.namespace},
                "deleteOptions": options,
            }
            query = "?dryRun=All" if write.dry_run else ""
            return Request(method="POST", path=f"{path}/eviction{query}", body=body)
        case d.DeletePod():
            return Request(
                method="DELETE", path=path, body=_delete_options(write.uid, write.grace_s)
            )
        case d.SetDisruptionTarget():
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "GPUNodeQuarantine",
                "message": write.message,
                "lastTransitionTime": format_time(write.at),
            }
            # A foreign UID in the patch is a 409: the precondition of a patch.
            body = {"metadata": {"uid": write.uid}, "status": {"conditions": [condition]}}
            return Request(
                method="PATCH", path=f"{path}/status", content_type=STRATEGIC_PATCH, body=body
            )


def _delete_options(uid: str, grace_s: int | None = None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


def _set_unknown(write: d.SetNodeUnknown) -> Request:
    condition = {
        "type": CONDITION_HEALTHY,
        "status": "Unknown",
        "reason": "AgentStale",
        "message": write.message,
        "lastHeartbeatTime": format_time(write.at),
        "lastTransitionTime": format_time(write.at),
    }
    return Request(
        method="PATCH",
        path=f"/api/v1/nodes/{segment(write.node)}/status",
        content_type=STRATEGIC_PATCH,
        body={
            "metadata": {
                "resourceVersion": write.resource_version,
                "uid": write.node_uid,
                "labels": {LABEL_HEALTH: "unknown"},
            },
            "status": {"conditions": [condition]},
        },
    )


def _condition(
    write: SetValidated | SetRepairCondition, kind: str, *, on: bool, reason: str
) -> Request:
    """A strategic merge patch leaves the other conditions; a foreign UID in it is a 409."""
    condition = {
        "type": kind,
        "status": "True" if on else "False",
        "reason": reason,
        "message": write.message,
        "lastHeartbeatTime": format_time(write.at),
        "lastTransitionTime": format_time(write.at),
    }
    return Request(
        method="PATCH",
        path=f"/api/v1/nodes/{segment(write.node)}/status",
        content_type=STRATEGIC_PATCH,
        body={"metadata": {"uid": write.node_uid}, "status": {"conditions": [condition]}},
    )


def _repair_object(write: WriteRepairObject) -> Request:
    at, body = write.address, dict(write.body)
    manager = f"?fieldManager={COMPONENT_REMEDIATOR}"
    match write.verb:
        case Verb.CREATE:
            collection = replace(at, name="")
            return Request(method="POST", path=f"{collection.path}{manager}", body=body)
        case Verb.PATCH:
            path = f"{at.path}{manager}"
            return Request(method="PATCH", path=path, content_type=MERGE_PATCH, body=body)
        case Verb.DELETE:
            if (at.api_version, at.resource) == ("v1", "pods"):
                eviction = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": at.name, "namespace": at.namespace},
                    "deleteOptions": body,
                }
                return Request(method="POST", path=f"{at.path}/eviction", body=eviction)
            return Request(method="DELETE", path=at.path, body=body)


def _event(write: d.EmitEvent) -> dict[str, Any]:
    digest = hashlib.sha256(f"{write.node_uid}/{write.reason}/{write.key}".encode()).hexdigest()
    if write.node_uid:
        about = {"apiVersion": "v1", "kind": "Node", "name": write.node, "uid": write.node_uid}
    else:
        about = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": DEPLOYMENT,
            "namespace": write.namespace,
        }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": name_from(write.node or DEPLOYMENT, f".{digest[:16]}"),
            "namespace": write.namespace,
        },
        "involvedObject": about,
        "type": write.kind,
        "reason": write.reason,
        "message": write.message,
        "count": 1,
        "firstTimestamp": format_time(write.at),
        "lastTimestamp": format_time(write.at),
        "eventTime": format_micro_time(write.at),
        "action": write.reason,
        "source": {"component": COMPONENT_REMEDIATOR},
        "reportingComponent": COMPONENT_REMEDIATOR,
        "reportingInstance": COMPONENT_REMEDIATOR,
    }
