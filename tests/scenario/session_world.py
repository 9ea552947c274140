"""A cluster in memory and virtual time, driven by the deciding rules alone.

Objects are JSON as the API server would store them; writes go through ``rules.decision_request``
and are applied with strict preconditions (a stale version is 409, a foreign UID is 409). One
``cycle`` is what the remediator does in one pass. The controllers a drain depends on (kubelet,
disruption controller) run with the clock. Every request is kept, so that a test can state what
must never be sent.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rules import decision as d
from rules import pdb_queue
from rules.decision_request import MERGE_PATCH, Request, request
from rules.drain import DrainInput, DrainPlan, plan_drain
from rules.drain_memory import DrainMemory, answered, forced
from rules.eviction import EvictionOutcome, classify, no_answer
from rules.fleet import FleetVerdict, judge_fleet
from rules.gang import Gang, gangs_of
from rules.mark import marked
from rules.pdb import matching
from rules.pdb_view import PdbView
from rules.pod_view import ClaimView, OwnerView, PodView, VolumeAttachmentView
from rules.policy import Policy
from rules.policy_load import load_policy
from rules.policy_selector import selects
from rules.reason import Severity
from rules.session import decide
from rules.session_observation import Permit, is_open, observe, sessions_by_node
from rules.session_recheck import recheck
from rules.session_time import format_time, parse_time
from rules.snapshot import (
    AgentPod,
    FleetSnapshot,
    FreshNode,
    HealthView,
    LabelSelector,
    LeaseView,
    NodeView,
    PauseView,
    QuarantineView,
)

START = 1_790_000_000.0
MAX_ROUNDS = 12


class CrashError(Exception):
    """The controller died between two writes."""


@dataclass(frozen=True, slots=True)
class Said:
    """One change of what a session says."""

    at: float
    node: str
    phase: str
    message: str


def policy_of(**sections: Any) -> Policy:
    """An Enforce policy with the given sections, through the strict reader."""
    loaded = load_policy({"mode": "Enforce", **sections})
    assert isinstance(loaded, Policy), loaded
    return loaded


ROOMY = {
    "maxUnavailable": {"percent": 100, "atMost": 1000},
    "maxNew": {"count": 1000, "window": "10m"},
    "perReason": {"count": 1000, "window": "24h"},
}
"""A budget that is in nobody's way, for scenarios about something else."""


@dataclass
class Controller:
    """What one process holds in memory; a crash or restart makes a new one."""

    queue: pdb_queue.PdbQueue = field(default_factory=pdb_queue.PdbQueue)
    memories: dict[str, DrainMemory] = field(default_factory=dict)
    plans: dict[str, DrainPlan] = field(default_factory=dict)
    active_at: dict[str, float] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)


class World:
    """The cluster, its clock and one controller."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or policy_of(budget=ROOMY)
        self.now = START
        self.version = 100
        self.nodes: dict[str, dict[str, Any]] = {}
        self.quarantines: dict[str, dict[str, Any]] = {}
        self.healths: dict[str, dict[str, Any]] = {}
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.pdbs: dict[tuple[str, str], dict[str, Any]] = {}
        self.pauses: dict[str, dict[str, Any]] = {}
        self.owners: dict[str, dict[str, Any]] = {}
        self.missing_owners: set[str] = set()
        self.leases: dict[str, dict[str, Any]] = {}
        self.attachments: list[dict[str, Any]] = []
        self.claims: dict[str, dict[str, Any]] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.no_room: frozenset[str] = frozenset()
        self.kueue_unhealthy: dict[str, tuple[str, ...]] = {}
        self.own_node = ""
        self.nobody_took_over = False
        self.sent: list[tuple[float, d.Write, Request, int]] = []
        self.said: list[Said] = []
        self.steps: list[tuple[float, str, str]] = []
        self.hand_overs: list[float] = []
        self.controller = Controller()
        self.eviction_answers: list[Any] = []
        """Scripted answers (status, headers, body) that come before the simulated ones."""
        self.crash_after: int | None = None
        self.meddler: Any = None
        """Called with every request before it is applied: somebody else writes in between."""
        self.api_away = False

    # ------------------------------------------------------------------ building the cluster

    def _meta(self, name: str, **more: Any) -> dict[str, Any]:
        self.version += 1
        return {
            "name": name,
            "uid": f"uid-{self.version}",
            "resourceVersion": str(self.version),
            "generation": 1,
            "creationTimestamp": format_time(self.now),
            **more,
        }

    def touch(self, item: dict[str, Any]) -> None:
        """Somebody else wrote the object."""
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)

    def add_node(self, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> None:
        self.nodes[name] = {
            "metadata": self._meta(
                name, labels={"gpuward.io/gpus": "8", **(labels or {})}, annotations={}
            ),
            "spec": {"providerID": f"sim://{name}", **spec},
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": format_time(self.now + 60),
                    }
                ],
                "nodeInfo": {"bootID": f"boot-{name}-1"},
                "allocatable": {"nvidia.com/gpu": "8"},
            },
        }
        self.healths[name] = {
            "metadata": self._meta(name),
            "status": {
                "publisher": {"heartbeat": format_time(self.now)},
                "nodeUID": self.nodes[name]["metadata"]["uid"],
                "bootID": f"boot-{name}-1",
                "agentVersion": "0.1.0",
                "rulesVersion": "1",
                "driverVersion": "580.65.06",
                "health": "Healthy",
                "sources": [{"name": "nvml", "state": "Up"}],
                "incidents": [],
            },
        }

    def add_nodes(self, count: int, **labels: str) -> list[str]:
        names = [f"n{index}" for index in range(count)]
        for name in names:
            self.add_node(name, labels=labels)
        return names

    def incident(
        self,
        node: str,
        reason: str = "Xid79GPUFallenOffBus",
        *,
        severity: str = "Fatal",
        level: str = "Drain",
        gpu: str = "",
    ) -> str:
        """The agent publishes a new incident; returns its id."""
        self.version += 1
        name = f"inc-{self.version}"
        self.healths[node]["status"]["incidents"].insert(
            0,
            {
                "id": name,
                "reason": reason,
                "severity": severity,
                "level": level,
                "active": True,
                "firstSeen": format_time(self.now),
                "gpus": [gpu or f"GPU-{node}-0"],
                "recommendedAction": "RestartNode",
                "evidence": [f"NVRM: Xid (PCI:0000:4e:00): 79, {node}"],
            },
        )
        return name

    def close(self, node: str, incident: str) -> None:
        for known in self.healths[node]["status"]["incidents"]:
            if known["id"] == incident:
                known["active"] = False
                known["closedAt"] = format_time(self.now)

    def close_all(self, node: str) -> None:
        for known in self.healths[node]["status"]["incidents"]:
            known["active"] = False

    def silence(self, node: str) -> None:
        """The agent stops beating."""
        self.healths[node]["silent"] = True

    def speak(self, node: str) -> None:
        self.healths[node].pop("silent", None)

    def reboot(self, node: str) -> None:
        boot = self.nodes[node]["status"]["nodeInfo"]["bootID"]
        base, _, number = boot.rpartition("-")
        self.nodes[node]["status"]["nodeInfo"]["bootID"] = f"{base}-{int(number) + 1}"
        self.healths[node]["status"]["bootID"] = f"{base}-{int(number) + 1}"
        self.touch(self.nodes[node])

    def set_ready(self, node: str, status: str) -> None:
        self.nodes[node]["status"]["conditions"][0] |= {
            "status": status,
            "lastTransitionTime": format_time(self.now),
        }
        self.touch(self.nodes[node])

    def label(self, node: str, **labels: str | None) -> None:
        for key, value in labels.items():
            name = key.replace("__", "/").replace("_", "-")
            self._put(self.nodes[node]["metadata"]["labels"], name, value)
        self.touch(self.nodes[node])

    def annotate(self, node: str, name: str, value: str | None) -> None:
        self._put(self.nodes[node]["metadata"]["annotations"], name, value)
        self.touch(self.nodes[node])

    def taint(self, node: str, key: str, effect: str = "NoSchedule") -> None:
        self.nodes[node]["spec"].setdefault("taints", []).append({"key": key, "effect": effect})
        self.touch(self.nodes[node])

    def untaint(self, node: str, key: str) -> None:
        spec = self.nodes[node]["spec"]
        spec["taints"] = [taint for taint in spec.get("taints", []) if taint["key"] != key]
        self.touch(self.nodes[node])

    def cordon(self, node: str, on: bool = True) -> None:
        self._put(self.nodes[node]["spec"], "unschedulable", True if on else None)
        self.touch(self.nodes[node])

    @staticmethod
    def _put(target: dict[str, Any], key: str, value: Any) -> None:
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value

    def add_pod(
        self,
        name: str,
        node: str,
        *,
        namespace: str = "team-a",
        owner: tuple[str, str, str] | None = ("apps/v1", "ReplicaSet", "web"),
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        ready: bool = True,
        phase: str = "Running",
        grace: int = 0,
        gpus: int = 0,
        **spec: Any,
    ) -> str:
        references = []
        if owner is not None:
            version, kind, owner_name = owner
            references = [
                {
                    "apiVersion": version,
                    "kind": kind,
                    "name": owner_name,
                    "uid": f"{kind}-{namespace}-{owner_name}",
                    "controller": True,
                }
            ]
        self.pods[namespace, name] = {
            "metadata": self._meta(
                name,
                namespace=namespace,
                labels={"app": "web", **(labels or {})},
                annotations=annotations or {},
                ownerReferences=references,
            ),
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": grace,
                "containers": [
                    {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
                ],
                **spec,
            },
            "status": {
                "phase": phase,
                "startTime": format_time(self.now),
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "containerStatuses": [{"name": "main", "state": {"running": {}}}],
            },
        }
        return self.pods[namespace, name]["metadata"]["uid"]

    def add_daemonset_owner(self, uid: str) -> None:
        """A GET of the DaemonSet finds it."""
        self.owners[uid] = {"kind": "DaemonSet", "metadata": {"name": "ds", "uid": uid}}

    def add_pdb(
        self, name: str, *, namespace: str = "team-a", app: str = "web", **spec: Any
    ) -> None:
        self.pdbs[namespace, name] = {
            "metadata": self._meta(name, namespace=namespace),
            "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
            "status": {},
        }
        self.sync_pdbs()

    def pause(self, name: str = "stop", **scope: Any) -> None:
        self.pauses[name] = {
            "metadata": self._meta(name),
            "spec": {"scope": scope or {"all": True}, "reason": "incident 42", "by": "ada"},
        }

    def open_by_person(self, node: str, name: str = "by-hand", **spec: Any) -> None:
        self.quarantines[name] = {
            "metadata": self._meta(name),
            "spec": {
                "nodeName": node,
                "level": "Drain",
                "causes": [
                    {
                        "source": "Human",
                        "reason": "Requested",
                        "severity": "Degraded",
                        "message": "it smells",
                        "by": "ada",
                    }
                ],
                **spec,
            },
        }

    # ------------------------------------------------------------------ reading it

    def node(self, name: str) -> NodeView:
        return msgspec.convert(self.nodes[name], NodeView)

    def session(self, node: str) -> QuarantineView:
        """The latest session of the node."""
        sessions = self.sessions(node)
        assert sessions, f"no session on {node}"
        return sessions[-1]

    def sessions(self, node: str) -> list[QuarantineView]:
        views = {name: msgspec.convert(q, QuarantineView) for name, q in self.quarantines.items()}
        return sessions_by_node(views).get(node, [])

    def phase(self, node: str) -> str:
        sessions = self.sessions(node)
        return sessions[-1].status.phase if sessions else ""

    def message(self, node: str) -> str:
        return self.session(node).status.message

    def condition(self, node: str, kind: str) -> str:
        """The reason of a True condition, "" otherwise."""
        for condition in self.session(node).status.conditions:
            if condition.type == kind and condition.status == "True":
                return condition.reason
        return ""

    def is_marked(self, node: str) -> bool:
        return marked(self.node(node))

    def unschedulable(self, node: str) -> bool:
        return bool(self.nodes[node]["spec"].get("unschedulable"))

    def phases(self, node: str) -> list[str]:
        """The phases the node's sessions went through, in order."""
        seen: list[str] = []
        for said in self.said:
            if said.node == node and (not seen or seen[-1] != said.phase):
                seen.append(said.phase)
        return seen

    def writes(self, *kinds: type) -> list[d.Write]:
        return [write for _, write, _, _ in self.sent if isinstance(write, kinds)]

    def snapshot(self) -> FleetSnapshot:
        convert = msgspec.convert
        return FleetSnapshot(
            now=self.now,
            policy=self.policy,
            nodes={name: convert(n, NodeView) for name, n in self.nodes.items()},
            healths={name: convert(h, HealthView) for name, h in self.healths.items()},
            quarantines={n: convert(q, QuarantineView) for n, q in self.quarantines.items()},
            pauses={name: convert(p, PauseView) for name, p in self.pauses.items()},
            maintenance_leases={n: convert(le, LeaseView) for n, le in self.leases.items()},
            agents=self._agents(),
            own_node=self.own_node,
            nobody_took_over=self.nobody_took_over,
            reserved=frozenset(self.controller.reserved),
            gangs=self._gangs(),
            kueue_unhealthy=self.kueue_unhealthy,
        )

    def _agents(self) -> dict[str, AgentPod]:
        return {}

    def _gangs(self) -> dict[str, tuple[Gang, ...]]:
        owners = {uid: msgspec.convert(o, OwnerView) for uid, o in self.owners.items()}
        return {name: gangs_of(self.pods_on(name), owners) for name in self.nodes}

    def pods_on(self, node: str) -> tuple[PodView, ...]:
        return tuple(
            msgspec.convert(pod, PodView)
            for pod in self.pods.values()
            if pod["spec"]["nodeName"] == node
        )

    # ------------------------------------------------------------------ time

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Advance the clock; the controllers and ours run at every step."""
        end = self.now + seconds
        while self.now < end:
            self.cycle()
            self.now = min(end, self.now + step)
            self._controllers()
        self.cycle()

    def run_until(self, node: str, phase: str, limit: float = 7200.0, step: float = 1.0) -> None:
        end = self.now + limit
        while self.now < end:
            self.cycle()
            if self.phase(node) == phase:
                return
            self.now += step
            self._controllers()
        raise AssertionError(f"{node} is {self.phase(node)}, not {phase}: {self.message(node)}")

    def restart(self) -> None:
        """A new process: nothing in memory survives but the previous leader's last renewal."""
        active = dict(self.controller.active_at)
        self.controller = Controller()
        self.controller.active_at = active

    def sleep(self, seconds: float) -> None:
        """No controller of ours works, the rest of the cluster does."""
        for _ in range(int(seconds)):
            self.now += 1
            self._controllers()

    def _controllers(self) -> None:
        for health in self.healths.values():
            if not health.get("silent"):
                health["status"]["publisher"]["heartbeat"] = format_time(self.now)
        for key, pod in list(self.pods.items()):
            deleted = parse_time(pod["metadata"].get("deletionTimestamp") or "")
            node = self.nodes.get(pod["spec"]["nodeName"])
            alive = node is not None and node["status"]["conditions"][0]["status"] != "Unknown"
            if deleted is None or self.now < deleted or not alive or pod.get("hung"):
                continue
            if pod["metadata"].get("finalizers"):
                pod["status"]["containerStatuses"] = [
                    {"name": "main", "state": {"terminated": {}}}
                ]
            else:
                del self.pods[key]
        self.sync_pdbs()

    def sync_pdbs(self) -> None:
        """The disruption controller, for integers and percentages of a known replica count."""
        for (namespace, _), pdb in self.pdbs.items():
            if pdb.get("frozen"):
                continue
            selector = msgspec.convert(pdb["spec"]["selector"], LabelSelector)
            pods = [
                pod
                for (where, _), pod in self.pods.items()
                if where == namespace and selects(selector, pod["metadata"]["labels"])
            ]
            healthy = sum(
                1
                for pod in pods
                if pod["status"]["conditions"][0]["status"] == "True"
                and not pod["metadata"].get("deletionTimestamp")
            )
            expected = pdb["spec"].get("replicas", len(pods))
            if "minAvailable" in pdb["spec"]:
                desired = pdb["spec"]["minAvailable"]
            else:
                desired = expected - pdb["spec"].get("maxUnavailable", 0)
            pdb["status"] = {
                "observedGeneration": 1,
                "expectedPods": expected,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
            }

    # ------------------------------------------------------------------ our controller

    def cycle(self) -> FleetVerdict | None:
        """One pass over every node, as the remediator's loop makes it."""
        if self.api_away:
            return None
        snapshot = self.snapshot()
        verdict = judge_fleet(snapshot)
        named = {q["spec"]["nodeName"] for q in self.quarantines.values()}
        for name in sorted({*self.nodes, *named}):
            snapshot, verdict = self._node_cycle(name, snapshot, verdict)
        self._send_evictions()
        for event in verdict.events:
            if request(event).body["metadata"]["name"] not in self.events:
                self._send(event)
        return verdict

    def _node_cycle(
        self, name: str, snapshot: FleetSnapshot, verdict: FleetVerdict
    ) -> tuple[FleetSnapshot, FleetVerdict]:
        for _ in range(MAX_ROUNDS):
            sessions = sessions_by_node(snapshot.quarantines)
            open_sessions = [s for s in sessions.get(name, ()) if is_open(s)] or [None]
            progressed = False
            for session in open_sessions:
                decision = self._decide(name, session, snapshot, verdict, sessions)
                self._follow(name, session, decision)
                accepted = all(self._send(write) < 300 for write in decision.writes)
                if accepted and session is not None:
                    self.controller.active_at[session.name] = self.now
                progressed = progressed or bool(decision.writes)
            if not progressed:
                return snapshot, verdict
            snapshot = self.snapshot()
            verdict = judge_fleet(snapshot)
        raise AssertionError(f"{name} never comes to rest: {decision}")

    def _decide(
        self,
        name: str,
        session: QuarantineView | None,
        snapshot: FleetSnapshot,
        verdict: FleetVerdict,
        sessions: dict[str, list[QuarantineView]],
    ) -> d.Decision:
        permit = verdict.permits.get(session.name, Permit()) if session else Permit()
        node: NodeView | None = None
        decision: d.Decision | None = None
        for _ in range(2):
            seen = observe(
                snapshot,
                name,
                permit=permit,
                sessions=sessions,
                session=session,
                node=node,
                plan=self.controller.plans.get(session.name) if session else None,
                last_active_at=self.controller.active_at.get(session.name) if session else None,
            )
            decision = decide(session, seen, self.now, self.policy)
            if not decision.needs_fresh_node:
                break
            node = msgspec.convert(self.nodes[name], FreshNode)
        assert decision is not None
        assert not decision.needs_fresh_node
        self._say(name, session, decision)
        return decision

    def _say(self, name: str, session: QuarantineView | None, decision: d.Decision) -> None:
        if not self.steps or self.steps[-1][1:] != (name, decision.step):
            self.steps.append((self.now, name, decision.step))
        if decision.status is None:
            return
        said = Said(self.now, name, decision.status.phase, decision.status.message)
        last = next((s for s in reversed(self.said) if s.node == name), None)
        if last is None or (last.phase, last.message) != (said.phase, said.message):
            self.said.append(said)
        if decision.hand_over:
            self.hand_overs.append(self.now)

    def _follow(self, name: str, session: QuarantineView | None, decision: d.Decision) -> None:
        if session is None or decision.evicting is d.Evicting.NO:
            if session is not None:
                self.controller.plans.pop(session.name, None)
            return
        dry_run = decision.evicting is d.Evicting.PROBE
        status = decision.status
        assert status is not None
        drain = status.drain
        memory = self.controller.memories.get(session.name)
        if memory is None:
            memory = DrainMemory.resume(drain)
        convert = msgspec.convert
        causes = session.spec.causes
        look = DrainInput(
            node=name,
            session=session.name,
            pods=self.pods_on(name),
            pdbs=tuple(convert(pdb, PdbView) for pdb in self.pdbs.values()),
            owners={uid: convert(o, OwnerView) for uid, o in self.owners.items()},
            missing_owners=frozenset(self.missing_owners),
            attachments=tuple(convert(a, VolumeAttachmentView) for a in self.attachments),
            claims={key: convert(c, ClaimView) for key, c in self.claims.items()},
            no_room=self.no_room,
            severity=max((c.severity for c in causes), key=lambda s: Severity(s).rank),
            reasons=tuple(c.reason for c in causes),
            dry_run=dry_run,
            last_active_at=self.controller.active_at.get(session.name),
            **({"drain": drain} if drain else {}),
        )
        plan = plan_drain(look, self.policy, memory, self.now)
        self.controller.memories[session.name] = plan.memory
        self.controller.plans[session.name] = plan
        for target, delete in plan.force:
            if self._send(target) < 300 and self._send(delete) < 300:
                eviction = d.EvictPod(
                    node=name, namespace=delete.namespace, name=delete.name, uid=delete.uid
                )
                self.controller.memories[session.name] = forced(
                    self.controller.memories[session.name], eviction
                )

    def _send_evictions(self) -> None:
        wanted = [
            eviction
            for name, plan in sorted(self.controller.plans.items())
            for eviction in plan.evict
            if not self._answered(name, eviction)
        ]
        self.controller.queue, send = pdb_queue.due(self.controller.queue, wanted, self.now)
        for eviction in send:
            outcome = self._evict(eviction)
            self.controller.queue = pdb_queue.answered(
                self.controller.queue, eviction, outcome, self.policy.drain.backoff, self.now, 0.5
            )
            memory = self.controller.memories[eviction.session]
            self.controller.memories[eviction.session] = answered(memory, eviction, outcome)

    def _answered(self, session: str, eviction: d.EvictPod) -> bool:
        outcome = self.controller.memories[session].outcomes.get(eviction.uid)
        return outcome is not None and (outcome.done or eviction.dry_run)

    def _evict(self, eviction: d.EvictPod) -> EvictionOutcome:
        node = msgspec.convert(self.nodes[eviction.node], FreshNode)
        if eviction.harmful and (held := recheck(eviction, node, self.snapshot())):
            return no_answer(held)
        pod = self.pods.get((eviction.namespace, eviction.name))
        view = msgspec.convert(pod, PodView) if pod else None
        pdbs = (
            matching(view, [msgspec.convert(p, PdbView) for p in self.pdbs.values()])
            if view
            else ()
        )
        wire = request(eviction)
        if self.eviction_answers:
            status, headers, body = self.eviction_answers.pop(0)
            self.sent.append((self.now, eviction, wire, status))
        else:
            status, headers, body = self._eviction_api(eviction, wire)
        assert view is not None
        return classify(status, headers, body, view, pdbs, self.now)

    def _eviction_api(
        self, eviction: d.EvictPod, wire: Request
    ) -> tuple[int, dict[str, str], bytes]:
        pod = self.pods.get((eviction.namespace, eviction.name))
        status, body = 201, {"kind": "Status", "status": "Success"}
        if pod is None:
            status, body = 404, {"kind": "Status", "details": {"kind": "pods"}}
        else:
            assert pod["spec"]["nodeName"] == eviction.node, "evicting a pod that is elsewhere"
            view = msgspec.convert(pod, PodView)
            found = matching(view, [msgspec.convert(p, PdbView) for p in self.pdbs.values()])
            if len(found) > 1:
                text = "This pod has more than one PodDisruptionBudget, which the eviction"
                status, body = 500, {"kind": "Status", "message": text, "code": 500}
            elif found and found[0].status.disruptions_allowed < 1 and view.ready:
                cause = {"reason": "DisruptionBudget", "message": "needs N healthy pods"}
                status = 429
                body = {"kind": "Status", "message": "budget", "details": {"causes": [cause]}}
            elif not eviction.dry_run:
                self._terminate(pod)
                if found:
                    key = (found[0].metadata.namespace, found[0].metadata.name)
                    self.pdbs[key]["status"]["disruptionsAllowed"] -= 1
        self.sent.append((self.now, eviction, wire, status))
        return status, {}, json.dumps(body).encode()

    def _terminate(self, pod: dict[str, Any], grace: int | None = None) -> None:
        own = pod["spec"].get("terminationGracePeriodSeconds", 30)
        period = own if grace is None else grace
        pod["metadata"].setdefault("deletionTimestamp", format_time(self.now + period))

    # ------------------------------------------------------------------ the API server

    def _send(self, write: d.Write) -> int:
        if self.crash_after is not None:
            if self.crash_after <= 0:
                self.crash_after = None
                raise CrashError
            self.crash_after -= 1
        wire = request(write)
        if write.harmful:
            node = msgspec.convert(self.nodes[write.node], FreshNode)
            assert recheck(write, node, self.snapshot()) == "", "the rules contradict themselves"
        if self.meddler is not None:
            self.meddler(write)
        status = self._apply(write, wire)
        self.sent.append((self.now, write, wire, status))
        return status

    def _apply(self, write: d.Write, wire: Request) -> int:
        match write:
            case d.CreateSession():
                return self._create(wire)
            case d.PatchSessionSpec() | d.WriteSessionStatus():
                return self._patch(self.quarantines, write.name, wire)
            case d.MarkNode() | d.UnmarkNode() | d.RelabelNode():
                if isinstance(write, d.UnmarkNode) and write.orphan:
                    assert write.session not in self.quarantines
                return self._patch(self.nodes, write.node, wire)
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
            case d.DeleteSession():
                self.quarantines.pop(write.name)
                return 200
            case _:
                raise AssertionError(f"unexpected {write}")

    def _create(self, wire: Request) -> int:
        assert wire.body is not None
        name = wire.body["metadata"]["name"]
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
        assert wire.content_type == MERGE_PATCH
        assert wire.body is not None
        patch = json.loads(json.dumps(wire.body))
        version = patch["metadata"].pop("resourceVersion")
        if version != item["metadata"]["resourceVersion"]:
            return 409
        before = json.dumps(item, sort_keys=True)
        _merge(item, patch)
        if json.dumps(item, sort_keys=True) != before:
            self.touch(item)
        return 200


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            inner = target.setdefault(key, {})
            _merge(inner, value)
        else:
            target[key] = value
