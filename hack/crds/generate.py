"""Turn the wire types of `rules` into structural CRD schemas.

One walk over the types keeps the cluster's schema and the programs' decoding the same thing. The
bounds in `hack.crds.fields` keep every object small enough for etcd and every CEL rule inside
the API server's cost budget (it refuses rules under lists or strings without a limit).
"""

import types
import typing
from typing import Any

import msgspec

from hack.crds.fields import FIELDS, PARTS
from rules.api.evidence import EvidenceSpec
from rules.api.gpu_record import RecordStatus
from rules.api.health import HealthStatus
from rules.api.names import GROUP, VERSION
from rules.api.quarantine import PauseSpec, QuarantineSpec, QuarantineStatus

PRINTER = dict[str, Any]
OPEN_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
LIST_KEYS = {"Condition": "type", "IncidentStatus": "id", "SourceStatus": "name"}


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Structural schema of one wire type; KeyError names a field without text and bounds."""
    properties = {}
    required = []
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        key = f"{struct.__name__}.{field.encode_name}"
        properties[field.encode_name] = _value(hints[field.name], key)
        if field.required:
            required.append(field.encode_name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if struct.__name__ in PARTS:
        schema["description"] = PARTS[struct.__name__]
    if required:
        schema["required"] = required
    return schema


def _value(hint: Any, key: str) -> dict[str, Any]:
    bounds = FIELDS[key]
    schema = _typed(hint, key)
    schema["description"] = bounds.text
    if bounds.default is not None:
        schema["default"] = bounds.default
    if bounds.immutable:
        schema["x-kubernetes-validations"] = [
            {"rule": "self == oldSelf", "message": f"{key.split('.')[1]} cannot be changed"}
        ]
    return schema


def _typed(hint: Any, key: str) -> dict[str, Any]:
    bounds = FIELDS[key]
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    origin = typing.get_origin(hint)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        schema = {"type": "array", "maxItems": bounds.max_items, "items": _item(item, key)}
        if isinstance(item, type) and item.__name__ in LIST_KEYS:
            schema["x-kubernetes-list-type"] = "map"
            schema["x-kubernetes-list-map-keys"] = [LIST_KEYS[item.__name__]]
        return schema
    if origin is dict:
        return dict(OPEN_OBJECT)
    return _item(hint, key)


def _item(hint: Any, key: str) -> dict[str, Any]:
    bounds = FIELDS[key]
    if hint is bool:
        return {"type": "boolean"}
    if hint is int:
        return {"type": "integer", "format": "int64"}
    if hint is float:
        return {"type": "number"}
    if hint is str:
        if bounds.enum:
            return {"type": "string", "enum": list(bounds.enum)}
        text: dict[str, Any] = {"type": "string", "maxLength": bounds.max_length}
        return {**text, "pattern": bounds.pattern} if bounds.pattern else text
    return schema_of(hint)


def _crd(
    *,
    kind: str,
    plural: str,
    short: str,
    text: str,
    spec: dict[str, Any] | None,
    status: dict[str, Any] | None,
    columns: list[PRINTER],
    selectable: list[str],
) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    top: dict[str, Any] = {"type": "object", "description": text, "properties": properties}
    if spec is not None:
        properties["spec"] = spec
        top["required"] = ["spec"]
    if status is not None:
        properties["status"] = status
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": top},
    }
    if status is not None:
        version["subresources"] = {"status": {}}
    if selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "gpuward"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["gpuward"],
            },
            "versions": [version],
        },
    }


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> PRINTER:
    column: PRINTER = {"name": name, "type": kind, "jsonPath": path}
    if wide:
        column["priority"] = 1
    return column


def crds() -> dict[str, dict[str, Any]]:
    """File name to CRD, for every kind gpuward defines."""
    quarantine_spec = schema_of(QuarantineSpec)
    quarantine_spec["required"] = ["nodeName", "causes"]
    quarantine_spec["properties"]["causes"]["minItems"] = 1
    age = _column("Age", ".metadata.creationTimestamp", "date")
    return {
        "gpuevidences.yaml": _crd(
            kind="GPUEvidence",
            plural="gpuevidences",
            short="gev",
            text="What the agent knew about the node of a session. Named as the session.",
            spec=schema_of(EvidenceSpec),
            status=None,
            columns=[
                _column("Node", ".spec.nodeName"),
                _column("Taken", ".spec.takenAt"),
                _column("Driver", ".spec.driverVersion", wide=True),
                _column("SHA-256", ".spec.sha256", wide=True),
                age,
            ],
            selectable=[".spec.nodeName"],
        ),
        "gpunodehealths.yaml": _crd(
            kind="GPUNodeHealth",
            plural="gpunodehealths",
            short="gnh",
            text="Health status of the GPUs of one node. Named as the node.",
            spec=None,
            status=schema_of(HealthStatus),
            columns=[
                _column("Health", ".status.health"),
                _column("Usable", ".status.gpusHealthy"),
                _column("Reason", ".status.reason"),
                _column("Changed", ".status.observedAt", "date"),
                _column("Silent", ".status.silentSince", "date"),
                _column("Driver", ".status.driverVersion", wide=True),
                _column("Message", ".status.message", wide=True),
                age,
            ],
            selectable=[".status.health", ".status.silentSince"],
        ),
        "gpuquarantines.yaml": _crd(
            kind="GPUQuarantine",
            plural="gpuquarantines",
            short="gq",
            text="One session on one node: why it is out of service, what was done, what is next.",
            spec=quarantine_spec,
            status=schema_of(QuarantineStatus),
            columns=[
                _column("Node", ".spec.nodeName", wide=True),
                _column("Phase", ".status.phase"),
                _column("Mode", ".status.mode"),
                _column("Reason", ".status.reason"),
                _column("Blocked", '.status.conditions[?(@.type=="Blocked")].reason'),
                _column("Needs Operator", '.status.conditions[?(@.type=="NeedsHuman")].status'),
                _column("Evicted", ".status.drain.evicted", "integer", wide=True),
                _column("Message", ".status.message", wide=True),
                age,
            ],
            selectable=[".spec.nodeName"],
        ),
        "gpurecords.yaml": _crd(
            kind="GPURecord",
            plural="gpurecords",
            short="gr",
            text="What happened to one GPU, wherever it was plugged in, or to one node.",
            spec=None,
            status=schema_of(RecordStatus),
            columns=[
                _column("Scope", ".status.scope", wide=True),
                _column("Serial", ".status.serial", wide=True),
                _column("Faults", ".status.counters.faults", "integer"),
                _column("Message", ".status.message"),
                age,
            ],
            selectable=[],
        ),
        "gpuwardpauses.yaml": _crd(
            kind="GPUWardPause",
            plural="gpuwardpauses",
            short="gp",
            text="An operator's request: no new disruption on these nodes.",
            spec=schema_of(PauseSpec),
            status=None,
            columns=[
                _column("All", ".spec.scope.all", "boolean"),
                _column("By", ".spec.by"),
                _column("Reason", ".spec.reason"),
                _column("Until", ".spec.until"),
                _column("Ended by", ".spec.ended.by"),
                age,
            ],
            selectable=[],
        ),
    }
