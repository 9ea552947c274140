"""The API server and kubelet of the virtual cluster: strict preconditions, every request kept.

A stale version is 409, a foreign UID is 409, a full budget is 429. Patches, schemas and answers to
evictions are those of the simulated server. Objects are changed in place: tests hold them.
See `session_world`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import read_address
from hack.sim.cluster.store.deletion import charged_budget
from hack.sim.cluster.store.patching import merge_patch, strategic_merge
from hack.sim.cluster.store.schema import StructuralSchema
from remediator.kube.answer import Answer
from rules.api import device_taints
from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.object_name import is_object_name
from rules.api.repair_writes import ObjectAddress, WriteRepairObject
from rules.api.requests import MERGE_PATCH, STRATEGIC_PATCH, Request, request
from rules.api.timestamps import format_time, parse_time
from rules.repair.objects import ReadState
from rules.session.causes import CRD_CAUSES
from tests.support.cluster.provider_definitions import DEFINITIONS, schema_of
from tests.support.copying import copied
from tests.support.scenario.session_cluster import Cluster

W = TypeVar("W", bound=d.Write)
JSON = "application/json"
_NO_UNICODE = re.compile("[\ud800-\udfff]")
HEARTBEAT_S = 300.0
"""Heartbeat period of an agent, as the real one has."""
OWN = "gpuward"
"""Our own namespace."""
EVICTED = "EvictionByEvictionAPI"
VERSIONS = {one["spec"]["group"]: one["spec"]["versions"][0]["name"] for one in DEFINITIONS}


@dataclass(frozen=True, slots=True)
class StatusChange:
    """One change of a session's phase or message."""

    at: float
    node: str
    phase: str
    message: str


class CrashError(Exception):
    """The controller died between two writes."""


class ApiServer(Cluster):
    """Applies requests; terminates pods as time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[float, d.Write, Request, int]] = []
        self.objects: dict[str, dict[str, Any]] = {}
        """Objects of repair providers, by path."""
        self.unserved: set[str] = set()
        """API groups that are not installed."""
        self.device_taints_act = True
        """Whether the controller manager has the feature gate of DeviceTaintRules on."""
        self.undefined: set[str] = set()
        """Resources of gpuward whose definition is gone."""
        self.unreadable: dict[str, ReadState] = {}
        """Resources whose reading fails, and how."""
        self.rejected: list[str] = []
        """Schema violations of writes."""
        self.crash_after: int | None = None
        self.meddler: Any = None
        """Called with every write before it is applied: somebody else writes in between."""
        self.before_each: Callable[[d.Write], None] | None = None
        """Sees each write before anything comes of it."""
        self.refusing: dict[type, tuple[int, str]] = {}
        """Kinds of writes that are answered with this code and message instead."""
        self.refusing_on: set[str] = set()
        """Only on these nodes or objects, by name; empty means on all."""
        self.drops: set[str] = set()
        """Fields of a session's status, as `repair.adapter`, that the definition does not know."""
        self.eviction_answers: list[tuple[int, dict[str, str], bytes]] = []
        """Scripted answers (status, headers, body) that come before the simulated ones."""
        self.evidences: dict[str, dict[str, Any]] = {}
        """GPUEvidence objects by name."""
        self.own_leases: dict[str, dict[str, Any]] = {}
        """Leases of our own namespace, by name."""
        self.status_changes: list[StatusChange] = []
        """Every change of a session's phase or message, in order."""

    def put(
        self, api_version: str, resource: str, name: str, namespace: str = "", **body: Any
    ) -> dict[str, Any]:
        """Somebody else's object."""
        at = ObjectAddress(
            api_version=api_version, resource=resource, namespace=namespace, name=name
        )
        meta = self._meta(name, **body.pop("metadata", {}))
        if namespace:
            meta["namespace"] = namespace
        made = {"apiVersion": api_version, "metadata": meta, **body}
        self.objects[at.path] = made
        return made

    def held(self, resource: str) -> list[dict[str, Any]]:
        """All objects of a resource."""
        return [o for path, o in self.objects.items() if f"/{resource}/" in path]

    def writes(self, *kinds: type[W]) -> list[W]:
        return [write for _, write, _, _ in self.sent if isinstance(write, kinds)]

    def run_controllers(self) -> None:
        for health in self.healths.values():
            publisher = health["status"]["publisher"]
            beat = parse_time(publisher["heartbeat"]) or 0.0
            if not health.get("silent") and self.now - self.nodes_behind_s - beat >= HEARTBEAT_S:
                self.beat(health)
        for key, pod in list(self.pods.items()):
            deleted = parse_time(pod["metadata"].get("deletionTimestamp") or "")
            node = self.nodes.get(pod["spec"]["nodeName"])
            alive = node is not None and node["status"]["conditions"][0]["status"] != "Unknown"
            if deleted is None or self.now < deleted or not alive or pod.get("hung"):
                continue
            if pod["metadata"].get("finalizers"):
                pod["status"]["phase"] = "Failed"
                pod["status"]["containerStatuses"] = [
                    {"name": "main", "state": {"terminated": {}}}
                ]
            else:
                del self.pods[key]
        self.sync_pdbs()

    def _eviction_api(self, eviction: d.EvictPod, wire: Request) -> Answer:
        pod = self.pods.get((eviction.namespace, eviction.name))
        answer = answer_of(201, {"kind": "Status", "status": "Success"})
        if pod is None:
            answer = refusal(404, name=eviction.name)
        else:
            assert pod["spec"]["nodeName"] == eviction.node, "evicting a pod that is elsewhere"
            budgets = [b for (space, _), b in self.pdbs.items() if space == eviction.namespace]
            try:
                budget = charged_budget(pod, budgets)
            except ApiError as error:
                wait = error.headers.get("Retry-After")
                after_s = float(wait) if wait else None
                answer = replace(answer_of(error.code, error.status()), retry_after_s=after_s)
            else:
                if not eviction.dry_run:
                    self._evict(pod, budget)
        self.sent.append((self.now, eviction, wire, answer.code))
        return answer

    def _evict(self, pod: dict[str, Any], budget: dict[str, Any] | None) -> None:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": EVICTED}
        pod["status"]["conditions"].append(condition)
        self._terminate(pod)
        if budget is not None:
            budget["status"]["disruptionsAllowed"] -= 1

    def _terminate(self, pod: dict[str, Any], grace: int | None = None) -> None:
        own = pod["spec"].get("terminationGracePeriodSeconds", 30)
        period = own if grace is None else grace
        pod["metadata"].setdefault("deletionTimestamp", format_time(self.now + period))

    def receive(self, write: d.Write, wire: Request) -> Answer:
        """Apply a write of gpuward, or refuse it."""
        if self.before_each is not None:
            self.before_each(write)
        if self.crash_after is not None:
            if self.crash_after <= 0:
                self.crash_after = None
                raise CrashError
            self.crash_after -= 1
        if self.meddler is not None:
            self.meddler(write)
        if isinstance(write, d.EvictPod):
            return self._evicted(write, wire)
        names = {write.node, getattr(write, "name", "")}
        refuses = not self.refusing_on or bool(self.refusing_on & names)
        refused = self.refusing.get(type(write)) if refuses else None
        status, stored = (refused[0], {}) if refused else self._apply(write, wire)
        self.sent.append((self.now, write, wire, status))
        if status >= 300:
            return refusal(status, refused[1] if refused else "", name=getattr(write, "name", ""))
        if isinstance(write, d.WriteSessionStatus):
            self._record_change(write)
        return answer_of(status, stored)

    def dry_run(self, eviction: d.EvictPod) -> Answer:
        """What an operator's dry run is answered: it changes nothing, and is no request of
        gpuward.
        """
        answer = self._eviction_api(eviction, request(eviction))
        self.sent.pop()
        return answer

    def receive_lease(self, wire: Request) -> Answer:
        """The lease of our own namespace, made or written again."""
        assert wire.body is not None
        name = wire.body["metadata"]["name"]
        known = self.own_leases.get(name)
        if known is not None and wire.method == "POST":
            return refusal(409, name=name)
        self.own_leases[name] = {"metadata": self._meta(name), "spec": wire.body["spec"]}
        return answer_of(200, self.own_leases[name])

    def _record_change(self, write: d.WriteSessionStatus) -> None:
        change = StatusChange(self.now, write.node, write.status.phase, write.status.message)
        last = next((s for s in reversed(self.status_changes) if s.node == write.node), None)
        if last is None or (last.phase, last.message) != (change.phase, change.message):
            self.status_changes.append(change)

    def _evicted(self, eviction: d.EvictPod, wire: Request) -> Answer:
        if not self.eviction_answers:
            return self._eviction_api(eviction, wire)
        status, headers, body = self.eviction_answers.pop(0)
        self.sent.append((self.now, eviction, wire, status))
        after = headers.get("Retry-After")
        wait = float(after) if after else None
        return Answer(code=status, body=body, content_type=JSON, retry_after_s=wait)

    def _apply(self, write: d.Write, wire: Request) -> tuple[int, dict[str, Any]]:
        """The status of the answer, and the object as it is then."""
        at = read_address(wire.method, wire.path.partition("?")[0], watch=False)
        if at.group in self.unserved or at.resource in self.undefined:
            return 404, {}
        _check(write, self.quarantines)
        body = copied(wire.body or {}, {})
        name = at.name or body["metadata"]["name"]
        items, key = self._place(write, at.resource, at.namespace, name)
        item = items.get(key)
        if wire.method == "POST":
            return (409, {}) if item is not None else self._create(write, items, key, body)
        if item is None:
            return 404, {}
        metadata = body.get("metadata", {})
        wanted = body.get("preconditions", {}) if wire.method == "DELETE" else metadata
        for field in ("uid", "resourceVersion"):
            if (value := wanted.pop(field, None)) is not None and value != item["metadata"][field]:
                return 409, {}
        if wire.method == "DELETE":
            self._delete(items, key, body)
            return 200, {}
        # Custom objects take no other language; a request of a repair goes to any kind.
        built_in = not at.group and not isinstance(write, WriteRepairObject)
        assert wire.content_type == (STRATEGIC_PATCH if built_in else MERGE_PATCH)
        patch = strategic_merge if built_in else merge_patch
        self._store(items, item, patch(item, body))
        return 200, item

    def _place(
        self, write: d.Write, resource: str, namespace: str, name: str
    ) -> tuple[dict[Any, dict[str, Any]], Any]:
        """Where an object is kept, and under which key."""
        if isinstance(write, WriteRepairObject) and resource != "nodes":
            return self.objects, write.address.path
        if isinstance(write, TaintDevice | UntaintDevice):
            return self.objects, f"{device_taints.address(write.api_version).path}/{name}"
        if resource == "pods":
            return self.pods, (namespace, name)
        kept = {
            "nodes": self.nodes,
            "gpuquarantines": self.quarantines,
            "gpurecords": self.records,
            "jobs": self.jobs,
            "events": self.events,
        }
        return kept[resource], name

    def _create(
        self, write: d.Write, items: dict[Any, dict[str, Any]], key: Any, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if isinstance(write, WriteRepairObject):
            body = self._completed(write.address, body)
        name = body.get("metadata", {}).get("name", "")
        causes = body.get("spec", {}).get("causes", ())
        if not is_object_name(name) or len(causes) > CRD_CAUSES:
            return 422, {}
        if items is not self.events:
            body["metadata"] = {**self._meta(name), **body["metadata"]}
        if isinstance(write, TaintDevice) and self.device_taints_act:
            body["status"] = {"conditions": [{"type": "EvictionInProgress", "status": "False"}]}
        items[key] = body
        return 201, body

    def _completed(self, at: ObjectAddress, body: dict[str, Any]) -> dict[str, Any]:
        """A provider's object as its schema completes it; empty where it breaks the schema."""
        kind, schema = schema_of(at.api_version.rpartition("/")[0], at.resource)
        assert "*" not in at.api_version, "a write names its version"
        assert (body["kind"], body["apiVersion"]) == (kind, at.api_version)
        found = body["metadata"]["name"], body["metadata"].get("namespace", "")
        assert found == (at.name, at.namespace)
        structural = StructuralSchema(schema)
        complete, pruned = structural.complete(body)
        problems = [str(problem) for problem in structural.problems(complete)]
        self.rejected += [*pruned, *problems]
        assert problems or not pruned, f"{kind} has no {pruned}"
        return {} if problems else complete

    def _store(self, items: Any, item: dict[str, Any], new: dict[str, Any]) -> None:
        if items is self.quarantines:
            for field in self.drops:
                new = json.loads(encoded(new))
                _drop(new.get("status"), field.split("."))
        if encoded(new) != encoded(item):
            _become(item, new)
            self.touch(item)

    def _delete(self, items: Any, key: Any, options: dict[str, Any]) -> None:
        item = items[key]
        if items is self.pods:
            self._terminate(item, options.get("gracePeriodSeconds"))
        elif items is self.jobs:
            self.delete_job(key)
        elif item["metadata"].get("finalizers"):
            item["metadata"]["deletionTimestamp"] = format_time(self.now)
            self.touch(item)
        else:
            del items[key]

    def delete_job(self, name: str) -> None:
        """A Job goes, and its pods with it."""
        uid = self.jobs.pop(name)["metadata"]["uid"]
        for key, pod in list(self.pods.items()):
            if any(owner["uid"] == uid for owner in pod["metadata"]["ownerReferences"]):
                del self.pods[key]


def _check(write: d.Write, sessions: dict[str, dict[str, Any]]) -> None:
    """What no write of gpuward may lack, whatever the API server takes."""
    if isinstance(write, d.WriteSessionStatus):
        for condition in write.status.conditions:
            # The design asks for both; a reason that is over would show as Blocked.
            assert condition.reason or condition.status == "False", condition
            assert condition.message, condition
            assert condition.last_transition_time, condition
    if isinstance(write, d.RemoveTaint) and write.orphan:
        status = sessions.get(write.session, {}).get("status", {})
        assert status.get("phase", "Released") in {"Released", "Cancelled", "NodeGone"}


def _become(item: dict[str, Any], new: dict[str, Any]) -> None:
    """Change the object in place, part by part: a test may hold its labels."""
    for key in item.keys() - new.keys():
        del item[key]
    for key, value in new.items():
        old = item.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _become(old, value)
        else:
            item[key] = value


def _drop(part: Any, path: list[str]) -> None:
    """Take a field off, in every item of the lists on its way."""
    if isinstance(part, list):
        for item in part:
            _drop(item, path)
    elif isinstance(part, dict) and len(path) == 1:
        part.pop(path[0], None)
    elif isinstance(part, dict):
        _drop(part.get(path[0]), path[1:])


_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict"}


def answer_of(code: int, body: object) -> Answer:
    """JSON as the API server sends it."""
    return Answer(code=code, body=encoded(body), content_type=JSON)


def encoded(body: object) -> bytes:
    """As it goes over the wire; what is no Unicode is replaced, as API servers do."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return _NO_UNICODE.sub("\ufffd", json.dumps(body, ensure_ascii=False)).encode()


def refusal(code: int, message: str = "", *, name: str = "") -> Answer:
    """Return a Status; `name` is the object it is about."""
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    body |= {"reason": _REASONS[code]} if code in _REASONS else {}
    return answer_of(code, body | ({"details": {"name": name}} if name else {}))
