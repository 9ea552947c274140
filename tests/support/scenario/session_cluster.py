"""The objects of the virtual cluster: building it, what people and agents do to it, reading it.

Objects are JSON as an API server would store them. See `session_world`.
"""

from typing import Any

import msgspec

from rules.api.metadata import LabelSelector
from rules.api.nodes import NodeView, QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine_taint import quarantined
from rules.api.selectors import selects
from rules.api.timestamps import format_time
from rules.session.observation import sessions_by_node

START = 1_790_000_000.0
LONG_UP_S = 86_400.0
"""How long the kubelet of a new node has been there: its boot is no news."""


class Cluster:
    """Objects and a clock."""

    def __init__(self) -> None:
        self.now = START
        self.nodes_behind_s = 0.0
        """How far the clocks of all nodes are behind the API server's."""
        self.version = 100
        self.nodes: dict[str, dict[str, Any]] = {}
        self.quarantines: dict[str, dict[str, Any]] = {}
        self.records: dict[str, dict[str, Any]] = {}
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
        self.jobs: dict[str, dict[str, Any]] = {}
        """Of our own namespace, by name."""
        self.templates: dict[str, dict[str, Any]] = {}

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
                        "lastTransitionTime": format_time(self.now - LONG_UP_S),
                    }
                ],
                "nodeInfo": {"bootID": f"boot-{name}-1"},
                "allocatable": {"nvidia.com/gpu": "8"},
            },
        }
        self.healths[name] = {
            "metadata": self._meta(name),
            "status": {
                "publisher": {},
                "nodeUID": self.nodes[name]["metadata"]["uid"],
                "bootID": f"boot-{name}-1",
                "agentVersion": "0.1.0",
                "rulesVersion": "1",
                "driverVersion": (labels or {}).get("gpuward.io/driver", "580.65.06"),
                "health": "Healthy",
                "sources": [{"name": "nvml", "state": "Up"}],
                "incidents": [],
            },
        }
        self.beat(self.healths[name])

    def beat(self, health: dict[str, Any], at: float | None = None) -> None:
        """The agent writes (at `at`) by its node's clock; the server notes by its own who did."""
        wrote_at = self.now if at is None else at
        heartbeat = format_time(wrote_at - self.nodes_behind_s)
        health["status"]["publisher"]["heartbeat"] = heartbeat
        wrote = {"manager": "gpuward-agent", "operation": "Update", "subresource": "status"}
        health["metadata"]["managedFields"] = [{**wrote, "time": format_time(wrote_at)}]

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
            if known["active"]:
                known.update(active=False, closedAt=format_time(self.now))

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
        ready = self.nodes[node]["status"]["conditions"][0]
        # An unchanged kubelet reports every five minutes only.
        ready["lastHeartbeatTime"] = format_time(self.now)
        self.set_ready(node, ready["status"])

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

    def open_by_operator(self, node: str, name: str = "by-hand", **spec: Any) -> None:
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

    def add_ended_session(self, node: str, name: str) -> str:
        """History: the node was quarantined an hour ago and released since."""
        view = self.node(node)
        self.quarantines[name] = {
            "metadata": self._meta(name),
            "spec": {
                "nodeName": node,
                "nodeUID": view.uid,
                "causes": [{"source": "Detector", "incident": name, "reason": "Xid79"}],
            },
            "status": {
                "mode": "Enforce",
                "phase": "Released",
                "phaseSince": format_time(self.now - 1800),
                "timeline": [{"at": format_time(self.now - 3600), "step": "Marked"}],
            },
        }
        self.quarantines[name]["metadata"]["creationTimestamp"] = format_time(self.now - 3600)
        return name

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

    def is_quarantined(self, node: str) -> bool:
        return quarantined(self.node(node))

    def unschedulable(self, node: str) -> bool:
        return bool(self.nodes[node]["spec"].get("unschedulable"))

    def pods_on(self, node: str) -> tuple[PodView, ...]:
        return tuple(
            msgspec.convert(pod, PodView)
            for pod in self.pods.values()
            if pod["spec"]["nodeName"] == node
        )

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
