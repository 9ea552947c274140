"""The kinds every control plane serves: names, scope, verbs, subresources, selectable fields.

Read once when a server starts.  The table follows `kubectl api-resources` of Kubernetes 1.36
for the groups that node remediation and its installation touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.kinds import Kind
from hack.sim.cluster.store.selectors import FieldReader
from hack.sim.cluster.tables.columns import COLUMNS
from hack.sim.cluster.validation.fieldtypes import BuiltinSchema

Object = Mapping[str, Any]

READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _at(*path: str, default: str = "") -> FieldReader:
    def read(obj: Object) -> str:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            return str(value).lower()
        return default if value is None else str(value)

    return read


def metadata_fields(*, namespaced: bool) -> dict[str, FieldReader]:
    """The two fields every kind can be selected by."""
    fields = {"metadata.name": _at("metadata", "name")}
    if namespaced:
        fields["metadata.namespace"] = _at("metadata", "namespace")
    return fields


def _event_source(obj: Object) -> str:
    source = obj.get("source") or {}
    return str(source.get("component") or obj.get("reportingComponent") or "")


_POD_FIELDS: dict[str, FieldReader] = {
    "spec.nodeName": _at("spec", "nodeName"),
    "spec.restartPolicy": _at("spec", "restartPolicy"),
    "spec.schedulerName": _at("spec", "schedulerName"),
    "spec.serviceAccountName": _at("spec", "serviceAccountName"),
    "spec.hostNetwork": _at("spec", "hostNetwork", default="false"),
    "status.phase": _at("status", "phase"),
    "status.podIP": _at("status", "podIP"),
    "status.nominatedNodeName": _at("status", "nominatedNodeName"),
}
_EVENT_FIELDS: dict[str, FieldReader] = {
    **{
        f"involvedObject.{name}": _at("involvedObject", name)
        for name in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    },
    "reason": _at("reason"),
    "reportingComponent": _at("reportingComponent"),
    "source": _event_source,
    "type": _at("type"),
}


def _kind(
    resource: Resource,
    short_names: str = "",
    *,
    subresources: str = "",
    categories: str = "",
    fields: Mapping[str, FieldReader] | None = None,
    indexed: tuple[str, ...] = (),
    storage: str = "",
    respelled: bool = False,
    generation: bool = False,
    status_on_create: bool = False,
    unconditional_update: bool = True,
    create_on_update: bool = False,
) -> Kind:
    return Kind(
        resource=resource,
        singular=resource.kind.lower(),
        short_names=tuple(short_names.split()),
        categories=tuple(categories.split()),
        verbs=READ_WRITE
        if resource != r.NAMESPACES
        else tuple(verb for verb in READ_WRITE if verb != "deletecollection"),
        subresources=tuple(subresources.split()),
        generation=generation,
        status_on_create=status_on_create,
        unconditional_update=unconditional_update,
        create_on_update=create_on_update,
        columns=COLUMNS.get(resource, COLUMNS[None]),
        fields={**metadata_fields(namespaced=resource.namespaced), **(fields or {})},
        indexed=("metadata.name", *indexed),
        schema=BuiltinSchema(resource.kind, resource.group),
        storage=storage,
        respelled=respelled,
    )


def builtin_kinds() -> tuple[Kind, ...]:
    """Every built-in kind."""
    return (
        _kind(
            r.NODES,
            "no",
            subresources="status",
            fields={"spec.unschedulable": _at("spec", "unschedulable", default="false")},
            status_on_create=True,
        ),
        _kind(
            r.PODS,
            "po",
            categories="all",
            subresources="status binding eviction",
            fields=_POD_FIELDS,
            indexed=("spec.nodeName",),
            generation=True,
        ),
        _kind(
            r.NAMESPACES,
            "ns",
            subresources="status finalize",
            fields={"status.phase": _at("status", "phase")},
        ),
        _kind(r.EVENTS, "ev", fields=_EVENT_FIELDS, storage="events"),
        _kind(r.NEW_EVENTS, "ev", fields=_EVENT_FIELDS, storage="events", respelled=True),
        _kind(r.CONFIGMAPS, "cm"),
        _kind(r.SECRETS, fields={"type": _at("type")}),
        _kind(r.SERVICES, "svc", categories="all", subresources="status"),
        _kind(r.POD_TEMPLATES),
        _kind(r.SERVICE_ACCOUNTS, "sa", subresources="token"),
        _kind(
            r.REPLICATION_CONTROLLERS,
            "rc",
            categories="all",
            subresources="status",
            generation=True,
        ),
        _kind(r.PERSISTENT_VOLUMES, "pv", subresources="status"),
        _kind(r.PERSISTENT_VOLUME_CLAIMS, "pvc", subresources="status"),
        _kind(r.DEPLOYMENTS, "deploy", categories="all", subresources="status", generation=True),
        _kind(r.REPLICA_SETS, "rs", categories="all", subresources="status", generation=True),
        _kind(r.DAEMON_SETS, "ds", categories="all", subresources="status", generation=True),
        _kind(r.STATEFUL_SETS, "sts", categories="all", subresources="status", generation=True),
        _kind(r.CONTROLLER_REVISIONS),
        _kind(
            r.JOBS,
            categories="all",
            subresources="status",
            generation=True,
            fields={"status.successful": _at("status", "succeeded", default="0")},
        ),
        _kind(r.CRON_JOBS, "cj", categories="all", subresources="status", generation=True),
        _kind(
            r.POD_DISRUPTION_BUDGETS,
            "pdb",
            subresources="status",
            generation=True,
            unconditional_update=False,
        ),
        _kind(r.LEASES, create_on_update=True, unconditional_update=False),
        _kind(r.ROLES),
        _kind(r.ROLE_BINDINGS),
        _kind(r.CLUSTER_ROLES),
        _kind(r.CLUSTER_ROLE_BINDINGS),
        _kind(r.VOLUME_ATTACHMENTS, subresources="status"),
        _kind(r.STORAGE_CLASSES, "sc"),
        _kind(r.PRIORITY_CLASSES, "pc", generation=True),
        _kind(
            r.CUSTOM_RESOURCE_DEFINITIONS,
            "crd crds",
            categories="api-extensions",
            subresources="status",
            generation=True,
            unconditional_update=False,
        ),
        _kind(r.NETWORK_POLICIES, "netpol", generation=True),
        _kind(r.INGRESSES, "ing", subresources="status", generation=True),
        _kind(r.VALIDATING_ADMISSION_POLICIES, subresources="status", generation=True),
        _kind(r.VALIDATING_ADMISSION_POLICY_BINDINGS, generation=True),
        _kind(r.VALIDATING_WEBHOOKS, generation=True),
        _kind(r.MUTATING_WEBHOOKS, generation=True),
        _kind(r.RUNTIME_CLASSES),
        _kind(r.RESOURCE_CLAIMS, subresources="status", generation=True),
        _kind(r.RESOURCE_SLICES),
    )
