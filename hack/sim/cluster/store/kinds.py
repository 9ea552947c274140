"""The kinds that the server serves: built-in ones, and those of CustomResourceDefinitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import FieldProblem
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.selectors import FieldReader
from hack.sim.cluster.store.tables import COLUMNS, NAME_AND_AGE, Column

Object = dict[str, Any]
_EMPTY_IS_ABSENT = frozenset({"taints", "labels", "annotations", "finalizers", "ownerReferences"})


class Schema:
    """Completes and checks an object's content; this one is of built-in kinds, which it only
    rids of what a typed server does not store: nulls, empty lists, `unschedulable: false`.
    """

    def complete(self, obj: Object) -> tuple[Object, list[str]]:
        """The object with defaults and without unknown fields; the paths that were unknown."""
        return _without_zeros(obj), []

    def problems(self, obj: Object, old: Object | None = None) -> list[FieldProblem]:
        """Every rule that the object breaks; `old` is what an update replaces."""
        return []


def _without_zeros(value: Object) -> Object:
    return {
        key: _without_zeros(inner) if isinstance(inner, dict) else inner
        for key, inner in value.items()
        if not (
            inner is None
            or (not inner and key in _EMPTY_IS_ABSENT)
            or (key == "unschedulable" and inner is False)
        )
    }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """A served kind."""

    resource: Resource
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    generation: bool = False
    status_on_create: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    custom: bool = False
    columns: tuple[Column, ...] = ()
    fields: Mapping[str, FieldReader] = field(default_factory=dict)
    indexed: tuple[str, ...] = ("metadata.name",)
    schema: Schema = field(default_factory=Schema)

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource, isolated from the rest."""
        return "status" in self.subresources

    @property
    def list_kind(self) -> str:
        """The kind of a list of it."""
        return self.resource.kind + "List"


class Registry:
    """All kinds being served, found as a URL names them."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        for kind in _builtin_kinds():
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Serve a kind (again)."""
        resource = kind.resource
        self._kinds[resource.group, resource.version, resource.plural] = kind

    def remove(self, resource: Resource) -> None:
        """Stop serving a kind."""
        self._kinds.pop((resource.group, resource.version, resource.plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind behind a URL."""
        return self._kinds.get((group, version, plural))

    def all(self) -> list[Kind]:
        """Every kind, in the order they were added."""
        return list(self._kinds.values())

    def groups(self) -> dict[str, list[str]]:
        """Each API group with its versions."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._kinds:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found


def field_at(path: str, default: str = "") -> FieldReader:
    """A reader of the text under a dotted path."""
    steps = path.removeprefix(".").split(".")

    def read(obj: Mapping[str, Any]) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            return str(value).lower()
        return default if value is None else str(value)

    return read


def metadata_fields(*paths: str) -> dict[str, FieldReader]:
    """Readers of the fields every kind can be selected by, and of `paths`."""
    return {path: field_at(path) for path in ("metadata.name", "metadata.namespace", *paths)}


_FIELDS: dict[Resource, dict[str, FieldReader]] = {
    r.NODES: {"spec.unschedulable": field_at("spec.unschedulable", "false")},
    r.PODS: metadata_fields(
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "status.phase", "status.podIP",
    ),
    r.EVENTS: metadata_fields(
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "reason", "reportingComponent", "type",
    )
    | {"source": field_at("source.component")},
    r.NAMESPACES: metadata_fields("status.phase"),
    r.SECRETS: metadata_fields("type"),
    r.RESOURCE_SLICES: metadata_fields("spec.nodeName", "spec.driver"),
}  # fmt: skip
_SHORT_NAMES = {
    r.NODES: "no", r.PODS: "po", r.NAMESPACES: "ns", r.EVENTS: "ev", r.CONFIGMAPS: "cm",
    r.SERVICES: "svc", r.SERVICE_ACCOUNTS: "sa", r.DEPLOYMENTS: "deploy", r.REPLICA_SETS: "rs",
    r.DAEMON_SETS: "ds", r.POD_DISRUPTION_BUDGETS: "pdb",
    r.CUSTOM_RESOURCE_DEFINITIONS: "crd crds",
}  # fmt: skip
_SUBRESOURCES = {
    r.PODS: ("status", "binding", "eviction"),
    r.SERVICE_ACCOUNTS: ("token",),
}
_WITHOUT_STATUS = {
    r.EVENTS, r.CONFIGMAPS, r.SECRETS, r.POD_TEMPLATES, r.LEASES, r.ROLES, r.ROLE_BINDINGS,
    r.CLUSTER_ROLES, r.CLUSTER_ROLE_BINDINGS, r.PRIORITY_CLASSES, r.RUNTIME_CLASSES,
    r.VALIDATING_ADMISSION_POLICY_BINDINGS, r.RESOURCE_SLICES, r.RESOURCE_CLAIM_TEMPLATES,
    r.DEVICE_CLASSES,
}  # fmt: skip
_WITH_GENERATION = {
    r.PODS, r.REPLICATION_CONTROLLERS, r.DEPLOYMENTS, r.REPLICA_SETS, r.DAEMON_SETS, r.JOBS,
    r.POD_DISRUPTION_BUDGETS, r.CUSTOM_RESOURCE_DEFINITIONS, r.RESOURCE_CLAIMS,
}  # fmt: skip
_UPDATED_BY_VERSION = {r.POD_DISRUPTION_BUDGETS, r.LEASES, r.CUSTOM_RESOURCE_DEFINITIONS}


def _builtin_kinds() -> list[Kind]:
    return [
        Kind(
            resource=resource,
            short_names=tuple(_SHORT_NAMES.get(resource, "").split()),
            subresources=_SUBRESOURCES.get(
                resource, () if resource in _WITHOUT_STATUS else ("status",)
            ),
            generation=resource in _WITH_GENERATION,
            status_on_create=resource == r.NODES,
            unconditional_update=resource not in _UPDATED_BY_VERSION,
            create_on_update=resource == r.LEASES,
            columns=COLUMNS.get(resource, NAME_AND_AGE),
            fields=metadata_fields() | _FIELDS.get(resource, {}),
            indexed=("metadata.name", *(("spec.nodeName",) if resource == r.PODS else ())),
        )
        for resource in r.BUILTIN
    ]


_SYSTEM_PRIORITIES = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}


def complete_new(obj: Object, priorities: dict[str, int]) -> None:
    """Fill in, in place, what a drain or a deletion of a new built-in object depends on.

    `priorities` are the values of PriorityClasses by name. Built-in objects are not validated: a
    real API server (KUBEBUILDER_ASSETS) judges them.
    """
    meta = obj["metadata"]
    match obj["kind"]:
        case "Pod":
            spec = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, **obj["spec"]}
            wanted = spec.get("priorityClassName") or ""
            spec["priority"] = {**_SYSTEM_PRIORITIES, **priorities}.get(wanted, 0)
            obj["spec"], obj["status"] = spec, {"phase": "Pending"}
        case "PodDisruptionBudget":
            # A new budget allows nothing until the disruption controller has seen it.
            obj["status"] = dict.fromkeys(
                ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0
            )
        case "Namespace":
            labels = {"kubernetes.io/metadata.name": meta["name"]}
            meta["labels"] = {**(meta.get("labels") or {}), **labels}
            obj["status"] = {"phase": "Active"}
