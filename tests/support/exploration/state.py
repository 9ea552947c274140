"""A state of the small world: two nodes with all that belongs to them, pods, one PDB, one leader.

Everything is immutable and hashable; `packing` encodes moments and names.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from rules.api.health import HealthStatus, IncidentStatus, PublisherPod, SourceStatus
from rules.api.metadata import LabelSelector, ObjectMeta, TimedMeta
from rules.api.names import ANNOTATION_SESSION, COMPONENT_REMEDIATOR, LABEL_GPUS
from rules.api.nodes import FreshNode, HealthView, NodeView, QuarantineView
from rules.api.pods import PodCondition, PodMeta, PodSpec, PodStatus, PodView
from rules.api.quarantine import QuarantineSpec, QuarantineStatus
from rules.api.timestamps import format_time
from rules.api.workloads import PdbSpec, PdbStatus, PdbView
from rules.session.observation import is_open
from tests.support.exploration.packing import NODES, NOW, OLDEST_S, Moment, pack, slim, unpack

NOW_MOMENT = Moment(0, True)
LONG_UP_S = 100_000
"""Since when everything is there that the rules do not call young."""
OPERATOR, DRIVER, KURED, AUTOSCALER = "kubectl", "driver-manager", "kured", "cluster-autoscaler"


class NodeState(NamedTuple):
    """The Node object."""

    uid: int = 1
    boot: int = 1
    ready: str = "True"
    back: Moment | None = None
    """When its kubelet came back, unless that was long ago."""
    cordoned: bool = False
    managers: tuple[tuple[str, Moment | None], ...] = ()
    """Who claims ``spec.unschedulable`` in managedFields, and since when; None: without time."""
    taints: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ((LABEL_GPUS, "8"),)
    annotations: tuple[tuple[str, Any], ...] = ()
    """The session annotation decoded and packed."""


class HealthState(NamedTuple):
    """The agent's health status: incidents that are active, of which boot, whether the agent
    lives.
    """

    active: tuple[int, ...] = ()
    boot: int = 1
    alive: bool = True


class SessionState(NamedTuple):
    """A GPUQuarantine."""

    name: str
    created: Moment
    spec: Any
    status: Any


class Memory(NamedTuple):
    """What the leading process remembers about one node."""

    active_at: Moment | None = None
    drain: Any = None
    """Packed DrainMemory while the drain is steered to go."""
    asked: tuple[str, ...] = ()
    """Pods asked to go since time last passed."""
    in_flight: tuple[tuple[str, str, str], ...] = ()
    """Evictions chosen and not sent yet: pod UID, session, PDB."""
    gangs_read: bool = False
    deleted: tuple[SessionState, ...] = ()
    """Open sessions that it saw disappear."""


class Ghost(NamedTuple):
    """What really happened to the node, for the invariants: no rule sees it."""

    cordoned_by: str = ""
    """Another than gpuward whose cordon took effect and is still meant."""
    taken: bool = False
    """gpuward took the node out of service for a fault that is still there."""
    request: Moment | None = None
    """When an operator clearly requested that the node is in service,"""
    about: tuple[int, ...] = ()
    """knowing of these incidents."""
    excused: tuple[int, ...] = ()
    """Incidents with which it may be in service: an operator reported it, or did what looks like
    it.
    """
    owner: str = ""
    """How far a foreign owner's work is known: ``begun``, then ``seen`` by the leader or
    ``missed``.
    """
    owner_left: Moment | None = None
    booted: Moment | None = None
    uncordoned_since_boot: bool = True
    """The first uncordon after a boot may be the driver manager's."""
    script: str = ""
    """How far a foreign controller's own procedure is."""


class Bundle(NamedTuple):
    """One node and all that belongs to it."""

    node: NodeState | None = NodeState()
    health: HealthState = HealthState()
    sessions: tuple[SessionState, ...] = ()
    lagging: tuple[NodeState | None, tuple[SessionState, ...]] | None = None
    """The leader's cached copies where its watch is behind."""
    memory: Memory = Memory()
    ghost: Ghost = Ghost()


class PodState(NamedTuple):
    """One pod of the protected workload. ``node`` None: no node will have it."""

    node: int | None
    number: int = 0
    """Counts the pods that took this place: another number is another UID."""
    leaving: bool = False


class State(NamedTuple):
    """The entire world; ``left`` is how many foreign acts may still happen."""

    bundles: tuple[Bundle, Bundle]
    pods: tuple[PodState, ...]
    pdb_minimum: int = 1
    paused: bool = False
    skips: bool = False
    """A policy rule keeps the pods."""
    leads: bool = True
    took_over: Moment = Moment(-OLDEST_S, False)
    clock_jumped: bool = False
    left: int = 0

    def with_bundle(self, index: int, **changes: Any) -> State:
        """The state with some fields of one node's bundle replaced."""
        bundles = list(self.bundles)
        bundles[index] = bundles[index]._replace(**changes)
        return self._replace(bundles=(bundles[0], bundles[1]))

    def with_node(self, index: int, **changes: Any) -> State:
        node = self.bundles[index].node
        assert node is not None
        return self.with_bundle(index, node=node._replace(**changes))

    def with_ghost(self, index: int, **changes: Any) -> State:
        return self.with_bundle(index, ghost=self.bundles[index].ghost._replace(**changes))

    def with_memory(self, index: int, **changes: Any) -> State:
        return self.with_bundle(index, memory=self.bundles[index].memory._replace(**changes))


def mirrored(state: State) -> State:
    """The same world with the two nodes exchanged."""
    bundles = (state.bundles[1], state.bundles[0])
    pods = list(state.pods)
    for slot in range(0, len(pods), 2):
        pods[slot], pods[slot + 1] = pods[slot + 1], pods[slot]
    moved = tuple(p if p.node is None else p._replace(node=1 - p.node) for p in pods)
    return state._replace(bundles=bundles, pods=moved)


@lru_cache(maxsize=200_000)
def _rank(bundle: Bundle) -> str:
    return repr(bundle)


def canonical(state: State) -> tuple[State, bool]:
    """One of the two mirror images, always the same; whether it is the other one."""
    first, second = map(_rank, state.bundles)
    if first < second:
        return state, False
    other = mirrored(state)
    if first == second and repr(state.pods) <= repr(other.pods):
        return state, False
    return other, True


# ---------------------------------------------------------------------- as the rules see it


@lru_cache(maxsize=200_000)
def node_view(node: NodeState, index: int, version: str, *, fresh: bool) -> NodeView:
    name = NODES[index]
    annotations = {
        key: msgspec.json.encode(unpack(value, index)).decode()
        if key == ANNOTATION_SESSION
        else value
        for key, value in node.annotations
    }
    content = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}-{node.uid}",
            "resourceVersion": version,
            "creationTimestamp": format_time(NOW - LONG_UP_S),
            "labels": dict(node.labels),
            "annotations": annotations,
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update" if at else "Apply",
                    "time": format_time(NOW + at.at) if at else "",
                    "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
                }
                for manager, at in node.managers
            ],
        },
        "spec": {
            "unschedulable": node.cordoned,
            "taints": [
                {"key": key, "value": value, "effect": "NoSchedule"} for key, value in node.taints
            ],
        },
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": node.ready,
                    "lastTransitionTime": format_time(
                        NOW + (node.back.at if node.back else -LONG_UP_S)
                    ),
                }
            ],
            "nodeInfo": {"bootID": f"boot-{name}-{node.boot}"},
        },
    }
    return msgspec.convert(content, FreshNode if fresh else NodeView)


@lru_cache(maxsize=200_000)
def session_view(session: SessionState, index: int, version: str) -> QuarantineView:
    name = unpack(session.name, index)
    created = format_time(NOW + session.created.at)
    return QuarantineView(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", resource_version=version, creation_timestamp=created
        ),
        spec=unpack(session.spec, index),
        status=unpack(session.status, index),
    )


def session_of(
    name: str, created: Moment, spec: QuarantineSpec, status: QuarantineStatus, index: int
) -> SessionState:
    return SessionState(
        name=pack(name, index),
        created=created,
        spec=pack(spec, index),
        status=pack(slim(status), index),
    )


def status_of(session: SessionState, index: int) -> QuarantineStatus:
    return session_view(session, index, "1").status


def open_sessions(bundle: Bundle, index: int) -> tuple[SessionState, ...]:
    return tuple(s for s in bundle.sessions if is_open(session_view(s, index, "1")))


@lru_cache(maxsize=200_000)
def health_view(health: HealthState, node_uid: int, index: int) -> HealthView:
    name = NODES[index]
    incidents = tuple(
        IncidentStatus(
            id=f"inc-{name}-{number}",
            reason="Xid79GPUFallenOffBus" if number == 0 else "RowRemapFailure",
            severity="Fatal",
            level="Drain",
            active=True,
            first_seen=format_time(NOW - LONG_UP_S),
        )
        for number in health.active
    )
    beat = NOW if health.alive else NOW - LONG_UP_S
    return HealthView(
        metadata=TimedMeta(name=name),
        status=HealthStatus(
            publisher=PublisherPod(heartbeat=format_time(beat)),
            node_uid=f"uid-{name}-{node_uid}",
            boot_id=f"boot-{name}-{health.boot}",
            agent_version="1",
            rules_version="1",
            sources=(SourceStatus(name="nvml", state="Up"),),
            incidents=incidents,
        ),
    )


def pod_uid(slot: int, pod: PodState) -> str:
    return f"pod-{slot}-{pod.number}"


@lru_cache(maxsize=200_000)
def pod_view(slot: int, pod: PodState, owner: tuple[str, str, str]) -> PodView:
    version, kind, name = owner
    meta = {
        "name": f"web-{slot}-{pod.number}",
        "namespace": "team",
        "uid": pod_uid(slot, pod),
        "creationTimestamp": format_time(NOW - 100),
        "labels": {"app": "web"},
        "deletionTimestamp": format_time(NOW + 10) if pod.leaving else None,
        "ownerReferences": [
            {"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": True}
        ],
    }
    there = pod.node is not None
    return PodView(
        metadata=msgspec.convert(meta, PodMeta),
        spec=PodSpec(node_name=NODES[pod.node] if pod.node is not None else ""),
        status=PodStatus(
            phase="Running" if there else "Pending",
            conditions=(PodCondition(type="Ready", status="True" if there else "False"),),
        ),
    )


@lru_cache(maxsize=200_000)
def pdb_view(minimum: int, pods: tuple[PodState, ...]) -> PdbView:
    """The PDB as the disruption controller keeps it."""
    healthy = sum(1 for pod in pods if pod.node is not None and not pod.leaving)
    return PdbView(
        metadata=msgspec.convert({"name": "web", "namespace": "team"}, PodMeta),
        spec=PdbSpec(min_available=minimum, selector=LabelSelector(match_labels={"app": "web"})),
        status=PdbStatus(
            disruptions_allowed=max(0, healthy - minimum),
            current_healthy=healthy,
            desired_healthy=minimum,
            expected_pods=len(pods),
        ),
    )


def patched(node: NodeState, body: dict[str, Any], index: int) -> NodeState:
    """The node after a merge patch of gpuward."""
    metadata, spec = body["metadata"], body.get("spec", {})
    annotations = {
        key: pack(json.loads(value), index)
        if key == ANNOTATION_SESSION and value is not None
        else value
        for key, value in metadata.get("annotations", {}).items()
    }
    managers = node.managers
    cordoned = node.cordoned
    if "unschedulable" in spec:
        cordoned = bool(spec["unschedulable"])
        if cordoned != node.cordoned:
            managers = ((COMPONENT_REMEDIATOR, NOW_MOMENT),) if cordoned else ()
    taints = node.taints
    if "taints" in spec:
        taints = tuple((t["key"], t.get("value", "")) for t in spec["taints"] or ())
    return node._replace(
        labels=_merged(node.labels, metadata.get("labels", {})),
        annotations=_merged(node.annotations, annotations),
        cordoned=cordoned,
        managers=managers,
        taints=taints,
    )


def _merged(
    old: tuple[tuple[str, Any], ...], patch: dict[str, Any]
) -> tuple[tuple[str, Any], ...]:
    merged = {**dict(old), **patch}
    return tuple(sorted((key, value) for key, value in merged.items() if value is not None))
