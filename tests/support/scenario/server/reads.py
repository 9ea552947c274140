"""What the API server of the virtual cluster answers to a GET: one object, a list, or why not."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from hack.sim.cluster.store.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from remediator.kube.answer import Answer
from rules.repair.objects import ReadState
from rules.session.exclusions import MAINTENANCE_NAMESPACE as MAINTENANCE
from tests.support.scenario.server.apiserver import OWN, ApiServer, answer_of, refusal

Object = dict[str, Any]

JSON: Final = "application/json"
_OWNER_KINDS: Final = {
    "replicasets": "ReplicaSet",
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "jobs": "Job",
    "cronjobs": "CronJob",
}
_FIELDS: Final = {
    "metadata.name": lambda o: str(o["metadata"]["name"]),
    "spec.nodeName": lambda o: str(o["spec"].get("nodeName", "")),
    "spec.driver": lambda o: str(o["spec"].get("driver", "")),
    "status.phase": lambda o: str(o.get("status", {}).get("phase", "")),
    "status.health": lambda o: str(o.get("status", {}).get("health", "")),
    "status.silentSince": lambda o: str(o.get("status", {}).get("silentSince", "")),
}


class Selection:
    """What a list or a watch asks for."""

    def __init__(self, path: str, query: Mapping[str, str]) -> None:
        self.path = path
        self.labels = _labels(query.get("labelSelector"))
        self.fields = _fields(query.get("fieldSelector"))

    def has(self, item: Object) -> bool:
        """Whether the object is asked for."""
        if self.labels.requirements and not self.labels.matches(item["metadata"].get("labels")):
            return False
        return not self.fields.terms or self.fields.matches(item)


class Reads(ApiServer):
    """Reads of the objects that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.installed = {"kueue.x-k8s.io": "v1beta1", "node-maintenance.medik8s.io": "v1beta1"}
        """API groups of others, with their versions."""
        self.server_version = "v1.37.0"
        self.device_rules = "v1"
        """The version of resource.k8s.io that has DeviceTaintRules; "" if none has."""
        self.kueue_unhealthy: dict[str, tuple[str, ...]] = {}
        """Nodes that Kueue still replaces, by key of the gang."""
        self.unlisted: tuple[int, str] | None = None
        """What is answered to the list of a node's pods, where it is no list."""
        self.unread: set[str] = set()
        """Nodes whose pods cannot be listed for now."""
        self.gets: list[tuple[str, str]] = []
        """Path and label selector of every read."""
        self.hanging: set[str] = set()
        """Resources about single objects of which no answer comes."""

    def hangs(self, path: str) -> bool:
        """Whether nobody answers this for now."""
        return any(f"/{resource}/" in path for resource in self.hanging)

    def read(self, path: str, query: Mapping[str, str]) -> Answer:
        """The answer to a GET."""
        self.gets.append((path, query.get("labelSelector", "")))
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts == ["apis"]:
            return self._groups()
        if parts == ["version"]:
            return answer_of(200, {"gitVersion": self.server_version})
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        namespace = ""
        if rest and rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if not rest:
            return refusal(404)
        resource, name = rest[0], rest[1] if len(rest) > 1 else ""
        if resource == "devicetaintrules" and parts[2] != self.device_rules:
            return refusal(404)
        if (failing := self._failing(group, resource)) is not None:
            return failing
        if name:
            found = self._one(path, resource, namespace, name)
            return found if isinstance(found, Answer) else answer_of(200, found)
        selection = Selection(path, query)
        if (node := selection.fields.wanted("spec.nodeName")) is not None:
            if self.unlisted is not None:
                return refusal(*self.unlisted)
            if node in self.unread:
                return refusal(503, "not now")
        items = [item for item in self.collection(path).values() if selection.has(item)]
        return self.listed(items)

    def listed(self, items: list[Object]) -> Answer:
        """A list."""
        body = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        return answer_of(200, body)

    def collection(self, path: str) -> dict[str, Object]:
        """All objects of a collection, by namespace/name; empty where nobody serves it."""
        resource, namespace = _place(path)
        match resource:
            case "nodes":
                return self.nodes
            case "gpunodehealths":
                return {name: _published(health) for name, health in self.healths.items()}
            case "gpuquarantines":
                return self.quarantines
            case "gpuwardpauses":
                return self.pauses
            case "gpurecords":
                return self.records
            case "gpuevidences":
                return self.evidences
            case "poddisruptionbudgets":
                return _keyed(self.pdbs.items(), "")
            case "pods":
                return _keyed(self.pods.items(), namespace)
            case "jobs" if namespace == OWN:
                return self.jobs
            case "podtemplates" if namespace == OWN:
                return self.templates
            case "leases":
                if namespace == OWN:
                    return self.own_leases
                held = self.leases if namespace == MAINTENANCE else {}
                return {f"node-{name}": _named(f"node-{name}", o) for name, o in held.items()}
            case "volumeattachments":
                return {str(number): o for number, o in enumerate(self.attachments)}
            case "persistentvolumeclaims":
                return {key.partition("/")[2]: o for key, o in self.claims.items()}
            case "workloads":
                return self._workloads(namespace)
        is_one_of_it = _paths_in(path).fullmatch
        return {p: o for p, o in self.objects.items() if is_one_of_it(p)}

    def _one(self, path: str, resource: str, namespace: str, name: str) -> Answer | Object:
        if path in self.objects:
            return self.objects[path]
        if resource in _OWNER_KINDS and (resource, namespace) != ("jobs", OWN):
            return self._owner(_OWNER_KINDS[resource], namespace, name)
        items = self.collection(path.rpartition("/")[0])
        key = f"{namespace}/{name}" if resource in {"pods", "poddisruptionbudgets"} else name
        return items.get(key) or refusal(404, name=name)

    def _owner(self, kind: str, namespace: str, name: str) -> Answer | Object:
        """Whom pods name as their owner: there, certainly not, or not to be read."""
        uids = {
            owner["uid"]
            for (where, _), pod in self.pods.items()
            if where == namespace
            for owner in pod["metadata"].get("ownerReferences", ())
            if (owner["kind"], owner["name"]) == (kind, name)
        }
        for uid in uids:
            if uid in self.owners:
                return self.owners[uid]
        return refusal(404, name=name) if uids & self.missing_owners else refusal(403)

    def _failing(self, group: str, resource: str) -> Answer | None:
        if group in self.unserved or resource in self.undefined:
            return refusal(404)
        sight = self.unreadable.get(resource)
        if sight is None:
            return None
        return refusal(403 if sight is ReadState.FORBIDDEN else 500, f"{resource} cannot be read")

    def _groups(self) -> Answer:
        served = {g: v for g, v in self.installed.items() if g not in self.unserved}
        groups = [
            {"name": g, "preferredVersion": {"version": v}, "versions": [{"version": v}]}
            for g, v in served.items()
        ]
        return answer_of(200, {"groups": groups})

    def _workloads(self, namespace: str) -> dict[str, Object]:
        found: dict[str, Object] = {}
        for key, nodes in self.kueue_unhealthy.items():
            kind, _, where = key.partition(" ")
            home, _, name = where.partition("/")
            owners = [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "w"}]
            found[name] = {
                "metadata": {"name": name, "namespace": home, "ownerReferences": owners},
                "status": {"unhealthyNodes": [{"name": node} for node in nodes]},
            }
        return {n: o for n, o in found.items() if o["metadata"]["namespace"] == namespace}


@cache
def _labels(text: str | None) -> LabelSelector:
    return parse_label_selector(text)


@cache
def _fields(text: str | None) -> FieldSelector:
    return parse_field_selector(text, _FIELDS)


@cache
def _place(path: str) -> tuple[str, str]:
    """Resource and namespace of a collection."""
    parts = path.strip("/").split("/")
    return parts[-1], parts[-2] if len(parts) > 3 and parts[-3] == "namespaces" else ""


@cache
def _paths_in(path: str) -> re.Pattern[str]:
    """What the objects of a collection are called."""
    resource, namespace = _place(path)
    everywhere = "" if namespace else "(namespaces/[^/]+/)?"
    return re.compile(f"{re.escape(path.removesuffix(resource))}{everywhere}{resource}/[^/]+")


def _keyed(items: Iterable[tuple[tuple[str, str], Object]], namespace: str) -> dict[str, Object]:
    return {f"{ns}/{n}": item for (ns, n), item in items if namespace in {"", ns}}


def _named(name: str, item: Object) -> Object:
    return {**item, "metadata": {**item.get("metadata", {}), "name": name}}


def _published(health: Object) -> Object:
    """The health status as its agent publishes it: unhealthy while an incident is active."""
    status = health["status"]
    active = {i["severity"] for i in status.get("incidents", ()) if i.get("active")}
    if status.get("health") != "Healthy" or not active:
        return health
    value = "Unhealthy" if "Fatal" in active else "Degraded"
    return {**health, "status": {**status, "health": value}}
