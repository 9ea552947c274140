"""The columns that `kubectl get` shows for each built-in kind.

Read by the registry; cells are functions of (object, now).  Headers and order follow the printers
of Kubernetes 1.36, so that people and scripts see what they are used to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.kinds import Column, Object
from hack.sim.cluster.store.timestamps import age, duration, epoch
from hack.sim.cluster.tables.columns_node import external_ip, internal_ip, node_roles, node_status
from hack.sim.cluster.tables.columns_pod import pod_ready, pod_restarts, pod_status


def value_at(obj: Any, path: str, default: Any = "<none>") -> Any:
    """The value under a dotted path, `default` where a step is missing or empty."""
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return default if obj is None or obj == "" else obj


def _path(name: str, path: str, *, wide: bool = False, default: Any = "<none>") -> Column:
    return Column(name, "string", lambda obj, _: str(value_at(obj, path, default)), wide)


def _count(name: str, path: str) -> Column:
    return Column(name, "integer", lambda obj, _: value_at(obj, path, 0))


def _text(name: str, read: Callable[[Object, float], Any], *, wide: bool = False) -> Column:
    return Column(name, "string", read, wide)


NAME = Column("Name", "string", lambda obj, _: obj["metadata"].get("name", ""), format="name")
AGE = _text("Age", lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now))
_CREATED = _text("Created At", lambda obj, _: obj["metadata"].get("creationTimestamp", ""))


def _ratio(have: str, want: str) -> Callable[[Object, float], str]:
    return lambda obj, _: f"{value_at(obj, have, 0)}/{value_at(obj, want, 0)}"


def _containers(field: str) -> Callable[[Object, float], str]:
    def read(obj: Object, _: float) -> str:
        containers = value_at(obj, "spec.template.spec.containers", [])
        return ",".join(str(container.get(field, "")) for container in containers)

    return read


def _labels(path: str) -> Callable[[Object, float], str]:
    def read(obj: Object, _: float) -> str:
        labels = value_at(obj, path, {})
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"

    return read


_WORKLOAD = (
    _text("Containers", _containers("name"), wide=True),
    _text("Images", _containers("image"), wide=True),
    _text("Selector", _labels("spec.selector.matchLabels"), wide=True),
)


def _event_seen(obj: Object, now: float) -> str:
    last = obj.get("lastTimestamp") or value_at(obj, "series.lastObservedTime", None)
    return age(last or obj.get("eventTime") or obj["metadata"].get("creationTimestamp"), now)


def _event_first(obj: Object, now: float) -> str:
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    return age(first or obj["metadata"].get("creationTimestamp"), now)


def _event_object(obj: Object, _: float) -> str:
    target = obj.get("involvedObject") or {}
    return f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"


def _event_source(obj: Object, _: float) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


_EVENT = (
    _text("Last Seen", _event_seen),
    _path("Type", "type", default=""),
    _path("Reason", "reason", default=""),
    _text("Object", _event_object),
    _path("Subobject", "involvedObject.fieldPath", wide=True, default=""),
    _text("Source", _event_source, wide=True),
    _text("Message", lambda obj, _: str(obj.get("message", "")).strip()),
    _text("First Seen", _event_first, wide=True),
    _text("Count", lambda obj, _: str(obj.get("count") or 1), wide=True),
    _text("Name", lambda obj, _: obj["metadata"]["name"], wide=True),
)


def _job_status(obj: Object, _: float) -> str:
    conditions = {
        one.get("type"): one.get("status") for one in value_at(obj, "status.conditions", [])
    }
    for condition in ("Complete", "Failed", "Suspended", "FailureTarget"):
        if conditions.get(condition) == "True":
            return condition
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else "Running"


def _job_duration(obj: Object, now: float) -> str:
    began = epoch(value_at(obj, "status.startTime", None))
    if began is None:
        return ""
    return duration((epoch(value_at(obj, "status.completionTime", None)) or now) - began)


def _data_count(obj: Object, _: float) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _ports(obj: Object, _: float) -> str:
    ports = value_at(obj, "spec.ports", [])
    return ",".join(f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in ports) or "<none>"


def _role_ref(obj: Object, _: float) -> str:
    ref = obj.get("roleRef") or {}
    return f"{ref.get('kind')}/{ref.get('name')}"


COLUMNS: dict[Resource | None, tuple[Column, ...]] = {
    None: (NAME, AGE),
    r.NODES: (
        NAME,
        _text("Status", node_status),
        _text("Roles", node_roles),
        AGE,
        _path("Version", "status.nodeInfo.kubeletVersion", default=""),
        _text("Internal-IP", internal_ip, wide=True),
        _text("External-IP", external_ip, wide=True),
        _path("OS-Image", "status.nodeInfo.osImage", wide=True, default="<unknown>"),
        _path("Kernel-Version", "status.nodeInfo.kernelVersion", wide=True, default="<unknown>"),
        _path(
            "Container-Runtime",
            "status.nodeInfo.containerRuntimeVersion",
            wide=True,
            default="<unknown>",
        ),
    ),
    r.PODS: (
        NAME,
        _text("Ready", pod_ready),
        _text("Status", pod_status),
        _text("Restarts", pod_restarts),
        AGE,
        _path("IP", "status.podIP", wide=True),
        _path("Node", "spec.nodeName", wide=True),
        _path("Nominated Node", "status.nominatedNodeName", wide=True),
        _text("Readiness Gates", lambda obj, _: "<none>", wide=True),
    ),
    r.NAMESPACES: (NAME, _path("Status", "status.phase", default=""), AGE),
    r.EVENTS: _EVENT,
    r.NEW_EVENTS: _EVENT,
    r.CONFIGMAPS: (NAME, Column("Data", "integer", _data_count), AGE),
    r.SECRETS: (
        NAME,
        _path("Type", "type", default=""),
        Column("Data", "integer", _data_count),
        AGE,
    ),
    r.SERVICES: (
        NAME,
        _path("Type", "spec.type", default="ClusterIP"),
        _path("Cluster-IP", "spec.clusterIP"),
        _path("External-IP", "spec.externalName"),
        _text("Port(s)", _ports),
        AGE,
        _text("Selector", _labels("spec.selector"), wide=True),
    ),
    r.DEPLOYMENTS: (
        NAME,
        _text("Ready", _ratio("status.readyReplicas", "spec.replicas")),
        _count("Up-to-date", "status.updatedReplicas"),
        _count("Available", "status.availableReplicas"),
        AGE,
        *_WORKLOAD,
    ),
    r.REPLICA_SETS: (
        NAME,
        _count("Desired", "spec.replicas"),
        _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"),
        AGE,
        *_WORKLOAD,
    ),
    r.DAEMON_SETS: (
        NAME,
        _count("Desired", "status.desiredNumberScheduled"),
        _count("Current", "status.currentNumberScheduled"),
        _count("Ready", "status.numberReady"),
        _count("Up-to-date", "status.updatedNumberScheduled"),
        _count("Available", "status.numberAvailable"),
        _text("Node Selector", _labels("spec.template.spec.nodeSelector")),
        AGE,
        *_WORKLOAD,
    ),
    r.STATEFUL_SETS: (
        NAME,
        _text("Ready", _ratio("status.readyReplicas", "spec.replicas")),
        AGE,
        *_WORKLOAD[:2],
    ),
    r.JOBS: (
        NAME,
        _text("Status", _job_status),
        _text("Completions", _ratio("status.succeeded", "spec.completions")),
        _text("Duration", _job_duration),
        AGE,
        *_WORKLOAD,
    ),
    r.POD_DISRUPTION_BUDGETS: (
        NAME,
        _path("Min Available", "spec.minAvailable", default="N/A"),
        _path("Max Unavailable", "spec.maxUnavailable", default="N/A"),
        _count("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ),
    r.LEASES: (NAME, _path("Holder", "spec.holderIdentity", default=""), AGE),
    r.CUSTOM_RESOURCE_DEFINITIONS: (NAME, _CREATED),
    r.CLUSTER_ROLES: (NAME, _CREATED),
    r.ROLES: (NAME, _CREATED),
    r.CLUSTER_ROLE_BINDINGS: (NAME, _text("Role", _role_ref), AGE),
    r.ROLE_BINDINGS: (NAME, _text("Role", _role_ref), AGE),
    r.PRIORITY_CLASSES: (
        NAME,
        _count("Value", "value"),
        _text("Global-Default", lambda obj, _: str(bool(obj.get("globalDefault"))).lower()),
        AGE,
        _path("PreemptionPolicy", "preemptionPolicy", default="PreemptLowerPriority"),
    ),
    r.VOLUME_ATTACHMENTS: (
        NAME,
        _path("Attacher", "spec.attacher", default=""),
        _path("PV", "spec.source.persistentVolumeName", default=""),
        _path("Node", "spec.nodeName", default=""),
        _text("Attached", lambda obj, _: str(value_at(obj, "status.attached", False)).lower()),
        AGE,
    ),
}
