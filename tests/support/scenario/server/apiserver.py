"""The API server and kubelet of the virtual cluster: strict preconditions, every request kept.

A stale version is 409, a foreign UID is 409, a full budget is 429. See `session_world`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from remediator.kube.answer import Answer
from rules.api import writes as d
from rules.api.object_name import is_object_name
from rules.api.pods import PodView
from rules.api.repair_writes import (
    CreateTestJob,
    DeleteTestJob,
    SetRepairCondition,
    SetValidated,
    WriteRepairObject,
)
from rules.api.requests import MERGE_PATCH, STRATEGIC_PATCH, Request, request
from rules.api.timestamps import format_time, parse_time
from rules.api.workloads import PdbView
from rules.drain.eviction import matching
from rules.session.causes import CRD_CAUSES
from tests.support.copying import copied
from tests.support.scenario.server.provider_objects import ProviderObjects, merge

W = TypeVar("W", bound=d.Write)
JSON = "application/json"
_NO_UNICODE = re.compile("[\ud800-\udfff]")
HEARTBEAT_S = 300.0
"""How often an agent says that it lives, as the real one does."""
OWN = "gpuward"
"""Our own namespace."""


@dataclass(frozen=True, slots=True)
class Said:
    """One change of what a session says."""

    at: float
    node: str
    phase: str
    message: str


class CrashError(Exception):
    """The controller died between two writes."""


class ApiServer(ProviderObjects):
    """Applies requests; terminates pods as time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[float, d.Write, Request, int]] = []
        self.crash_after: int | None = None
        self.meddler: Any = None
        """Called with every write before it is applied: somebody else writes in between."""
        self.before_each: Callable[[d.Write], None] | None = None
        """Sees each write before anything comes of it."""
        self.refusing: dict[type, tuple[int, str]] = {}
        """Kinds of writes that are answered with this code and message instead."""
        self.refusing_on: set[str] = set()
        """Only on these nodes; empty means on all."""
        self.drops: set[str] = set()
        """Fields of a session's status, as `repair.adapter`, that the definition does not know."""
        self.eviction_answers: list[tuple[int, dict[str, str], bytes]] = []
        """Scripted answers (status, headers, body) that come before the simulated ones."""
        self.evidences: dict[str, dict[str, Any]] = {}
        """GPUEvidence objects by name."""
        self.own_leases: dict[str, dict[str, Any]] = {}
        """Leases of our own namespace, by name."""
        self.said: list[Said] = []
        """Every change of what a session says, as it was stored."""

    def writes(self, *kinds: type[W]) -> list[W]:
        return [write for _, write, _, _ in self.sent if isinstance(write, kinds)]

    def _controllers(self) -> None:
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
        status = 201
        body: dict[str, Any] = {"kind": "Status", "status": "Success"}
        if pod is None:
            status, body = 404, {"kind": "Status", "details": {"kind": "pods"}}
        else:
            assert pod["spec"]["nodeName"] == eviction.node, "evicting a pod that is elsewhere"
            view = msgspec.convert(pod, PodView)
            found = matching(view, [msgspec.convert(p, PdbView) for p in self.pdbs.values()])
            if len(found) > 1:
                text = "This pod has more than one PodDisruptionBudget, which the eviction"
                status, body = 500, {"kind": "Status", "message": text, "code": 500}
            elif found and not _free(pod, found[0]) and found[0].status.disruptions_allowed < 1:
                cause = {"reason": "DisruptionBudget", "message": "needs N healthy pods"}
                status = 429
                body = {"kind": "Status", "message": "budget", "details": {"causes": [cause]}}
            elif not eviction.dry_run:
                pod["status"]["conditions"].append(
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "EvictionByEvictionAPI",
                    }
                )
                self._terminate(pod)
                if found and not _free(pod, found[0]):
                    key = (found[0].metadata.namespace, found[0].metadata.name)
                    self.pdbs[key]["status"]["disruptionsAllowed"] -= 1
        self.sent.append((self.now, eviction, wire, status))
        return answer_of(status, body)

    def _terminate(self, pod: dict[str, Any], grace: int | None = None) -> None:
        own = pod["spec"].get("terminationGracePeriodSeconds", 30)
        period = own if grace is None else grace
        pod["metadata"].setdefault("deletionTimestamp", format_time(self.now + period))

    def receive(self, write: d.Write, wire: Request) -> Answer:
        """Apply a write of ours, or refuse it."""
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
        refuses = not self.refusing_on or write.node in self.refusing_on
        refused = self.refusing.get(type(write)) if refuses else None
        status = refused[0] if refused else self._apply(write, wire)
        self.sent.append((self.now, write, wire, status))
        if status >= 300:
            return refusal(status, refused[1] if refused else "", name=getattr(write, "name", ""))
        if isinstance(write, d.WriteSessionStatus):
            self._says(write)
        return answer_of(status, self._written(write))

    def dry_run(self, eviction: d.EvictPod) -> Answer:
        """What a person's dry run is answered: it changes nothing, and is no request of ours."""
        answer = self._eviction_api(eviction, request(eviction))
        self.sent.pop()
        return answer

    def receive_lease(self, wire: Request) -> Answer:
        """The lease of our own namespace, made or written anew."""
        assert wire.body is not None
        name = wire.body["metadata"]["name"]
        known = self.own_leases.get(name)
        if known is not None and wire.method == "POST":
            return refusal(409, name=name)
        self.own_leases[name] = {"metadata": self._meta(name), "spec": wire.body["spec"]}
        return answer_of(200, self.own_leases[name])

    def _says(self, write: d.WriteSessionStatus) -> None:
        said = Said(self.now, write.node, write.status.phase, write.status.message)
        last = next((s for s in reversed(self.said) if s.node == write.node), None)
        if last is None or (last.phase, last.message) != (said.phase, said.message):
            self.said.append(said)

    def _written(self, write: d.Write) -> dict[str, Any]:
        """The object that a write that was accepted returns."""
        match write:
            case d.CreateSession() | d.PatchSessionSpec() | d.WriteSessionStatus():
                return self.quarantines[write.name]
            case d.CreateRecord() | d.WriteRecord():
                return self.records[write.name]
            case WriteRepairObject():
                at = write.address
                if at.resource == "nodes":
                    return self.nodes[at.name]
                return self.objects.get(at.path, {})
            case d.MarkNode() | d.UnmarkNode() | d.RelabelNode():
                return self.nodes[write.node]
            case SetRepairCondition() | SetValidated():
                return self.nodes[write.node]
        return {}

    def _evicted(self, eviction: d.EvictPod, wire: Request) -> Answer:
        if not self.eviction_answers:
            return self._eviction_api(eviction, wire)
        status, headers, body = self.eviction_answers.pop(0)
        self.sent.append((self.now, eviction, wire, status))
        after = headers.get("Retry-After")
        wait = float(after) if after else None
        return Answer(code=status, body=body, content_type=JSON, retry_after_s=wait)

    def _apply(self, write: d.Write, wire: Request) -> int:
        match write:
            case d.CreateSession():
                return 404 if "gpuquarantines" in self.undefined else self._create(wire)
            case d.PatchSessionSpec() | d.WriteSessionStatus():
                if isinstance(write, d.WriteSessionStatus):
                    for condition in write.status.conditions:
                        # The design asks for both; a reason that is over would show as Blocked.
                        assert condition.reason or condition.status == "False", condition
                        assert condition.message, condition
                        assert condition.last_transition_time, condition
                return self._patch(self.quarantines, write.name, wire)
            case d.MarkNode() | d.UnmarkNode() | d.RelabelNode():
                if isinstance(write, d.UnmarkNode) and write.orphan:
                    status = self.quarantines.get(write.session, {}).get("status", {})
                    assert status.get("phase", "Released") in {"Released", "Cancelled", "NodeGone"}
                return self._patch(self.nodes, write.node, wire)
            case SetRepairCondition():
                return self._condition(write, wire)
            case WriteRepairObject():
                return self.write_object(write, wire)
            case CreateTestJob() | DeleteTestJob():
                return self._job(write, wire)
            case SetValidated():
                return self._condition(write, wire)
            case d.EmitEvent():
                assert wire.body is not None
                name = wire.body["metadata"]["name"]
                if name in self.events:
                    return 409
                self.events[name] = wire.body
                return 201
            case d.SetDisruptionTarget():
                pod = self.pods.get((write.namespace, write.name))
                if pod is None or pod["metadata"]["uid"] != write.uid:
                    return 409
                pod["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
                return 200
            case d.DeletePod():
                pod = self.pods.get((write.namespace, write.name))
                if pod is None or pod["metadata"]["uid"] != write.uid:
                    return 409
                self._terminate(pod, write.grace_s)
                return 200
            case d.DeleteObject():
                kept = {"gpuquarantines": self.quarantines, "gpurecords": self.records}
                kept[write.plural].pop(write.name)
                return 200
            case d.CreateRecord():
                if write.name in self.records:
                    return 409
                self.records[write.name] = {"metadata": self._meta(write.name)}
                return 201
            case d.WriteRecord():
                return self._patch(self.records, write.name, wire)
            case _:
                raise AssertionError(f"unexpected {write}")

    def _condition(self, write: SetRepairCondition | SetValidated, wire: Request) -> int:
        """A strategic merge patch of a node's status, conditions by type."""
        node = self.nodes.get(write.node)
        if node is None:
            return 404
        assert wire.body is not None
        if wire.body["metadata"]["uid"] != node["metadata"]["uid"]:
            return 409
        (new,) = wire.body["status"]["conditions"]
        others = [c for c in node["status"]["conditions"] if c["type"] != new["type"]]
        node["status"]["conditions"] = [*others, new]
        self.touch(node)
        return 200

    def _job(self, write: CreateTestJob | DeleteTestJob, wire: Request) -> int:
        known = self.jobs.get(write.name)
        assert wire.body is not None
        if isinstance(write, CreateTestJob):
            if known is not None:
                return 409
            meta = {**self._meta(write.name, namespace=OWN), **wire.body["metadata"]}
            self.jobs[write.name] = {**copy.deepcopy(dict(wire.body)), "metadata": meta}
            return 201
        if known is None:
            return 404
        if known["metadata"]["uid"] != wire.body["preconditions"]["uid"]:
            return 409
        self.delete_job(write.name)
        return 200

    def delete_job(self, name: str) -> None:
        """A Job goes, and its pods with it."""
        uid = self.jobs.pop(name)["metadata"]["uid"]
        for key, pod in list(self.pods.items()):
            if any(owner["uid"] == uid for owner in pod["metadata"]["ownerReferences"]):
                del self.pods[key]

    def _create(self, wire: Request) -> int:
        assert wire.body is not None
        name = wire.body["metadata"]["name"]
        if not is_object_name(name) or len(wire.body["spec"].get("causes", ())) > CRD_CAUSES:
            return 422
        if name in self.quarantines:
            return 409
        self.quarantines[name] = {
            "metadata": self._meta(name),
            "spec": copy.deepcopy(wire.body["spec"]),
        }
        return 201

    def _patch(self, store: dict[str, dict[str, Any]], name: str, wire: Request) -> int:
        item = store.get(name)
        if item is None:
            return 404
        # Custom objects take no other language.
        built_in = store is self.nodes
        assert wire.content_type == (STRATEGIC_PATCH if built_in else MERGE_PATCH)
        assert wire.body is not None
        patch = copied(wire.body, {})
        version = patch["metadata"].pop("resourceVersion")
        if version != item["metadata"]["resourceVersion"]:
            return 409
        before = encoded(item)
        merge(item, patch)
        if store is self.quarantines:
            for field in self.drops:
                _drop(item.get("status"), field.split("."))
        if encoded(item) != before:
            self.touch(item)
        return 200


def _drop(part: Any, path: list[str]) -> None:
    """Take a field off, in every item of the lists on its way."""
    if isinstance(part, list):
        for item in part:
            _drop(item, path)
    elif isinstance(part, dict) and len(path) == 1:
        part.pop(path[0], None)
    elif isinstance(part, dict):
        _drop(part.get(path[0]), path[1:])


def _free(pod: dict[str, Any], pdb: PdbView) -> bool:
    """What the eviction registry lets go without asking the budget."""
    ready = pod["status"]["conditions"][0]["status"] == "True"
    if pod["status"]["phase"] in {"Pending", "Succeeded", "Failed"}:
        return True
    if "deletionTimestamp" in pod["metadata"]:
        return True
    healthy = pdb.status.current_healthy >= pdb.status.desired_healthy > 0
    always = pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
    return not ready and (always or healthy)


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
    """A Status; `name` where it says about which object."""
    said = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    said |= {"reason": _REASONS[code]} if code in _REASONS else {}
    return answer_of(code, said | ({"details": {"name": name}} if name else {}))
