"""GPU health of nodes without an agent, for demo, benchmarks and tests.

It writes GPUNodeHealth with a heartbeat publisher, the two conditions and the labels as an agent
does, from scripted faults.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import structs

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers.pods import GPU, stamp, stamp_micro
from hack.sim.cluster.controllers.running import Clock
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NODES, STRATEGIC_MERGE_PATCH, Resource
from rules.api import evidence, names
from rules.api.health import (
    ExpectedGpus,
    GpuStatus,
    HealthStatus,
    IncidentStatus,
    PublisherPod,
    SourceStatus,
    Topology,
    plain,
)
from rules.catalog.reason import Action, Level, ReasonClass, Severity

DRIVER = "580.95.05"
RULES_VERSION = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What an agent knows of its node before it looks at a GPU."""

    name: str
    uid: str
    boot_id: str
    gpus: int
    product: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault as the agent would publish it; `gpu` is the index, None for the entire node."""

    reason: str
    severity: Severity = Severity.FATAL
    level: Level = Level.DRAIN
    klass: ReasonClass = ReasonClass.DECISIVE
    action: Action = Action.RESTART_NODE
    closes_on: str = "Reboot"
    gpu: int | None = 0
    xids: tuple[int, ...] = ()
    evidence: str = ""


XID_79 = Fault(
    reason="Xid79GPUFallenOffBus",
    xids=(79,),
    gpu=3,
    evidence="NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus.",
)


def gpu_uuid(node: str, index: int) -> str:
    """The UUID of a node's GPU: the same in every boot."""
    digest = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def pci_address(index: int) -> str:
    """The PCI address of the GPU of that index."""
    return f"0000:{0x1B + index * 0x11 & 0xFF:02x}:00"


def incident_of(fault: Fault, facts: NodeFacts, now: datetime, number: int) -> IncidentStatus:
    """Return the incident that opens with the fault; `number` makes its id unique on the node."""
    identity = f"{facts.uid}/{fault.reason}/{facts.boot_id}/{number}"
    return IncidentStatus(
        id=hashlib.sha256(identity.encode()).hexdigest()[:16],
        reason=fault.reason,
        klass=str(fault.klass),
        severity=str(fault.severity),
        level=str(fault.level),
        recommended_action=str(fault.action),
        scope="Node" if fault.gpu is None else "GPU",
        gpus=(gpu_uuid(facts.name, fault.gpu),) if fault.gpu is not None else (),
        pci=(pci_address(fault.gpu),) if fault.gpu is not None else (),
        xids=fault.xids,
        sources=("kmsg",) if fault.xids else ("nvml",),
        active=True,
        first_seen=stamp_micro(now),
        last_seen=stamp_micro(now),
        closes_on=fault.closes_on,
        evidence=(fault.evidence,) if fault.evidence else (),
    )


def health_status(
    facts: NodeFacts,
    incidents: Sequence[IncidentStatus],
    now: datetime,
    *,
    no_data: bool = False,
    publisher: PublisherPod | None = None,
) -> HealthStatus:
    """The health status that the active incidents make: Unhealthy, Unknown, Degraded, Healthy.

    Without a publishing pod it carries a heartbeat of now.
    """
    active = [incident for incident in incidents if incident.active]
    fatal = [incident for incident in active if incident.severity == Severity.FATAL]
    degraded = [incident for incident in active if incident.severity == Severity.DEGRADED]
    first = next(iter(fatal or degraded), None)
    if fatal:
        health = "Unhealthy"
    elif no_data:
        health = "Unknown"
    else:
        health = "Degraded" if degraded else "Healthy"
    sick = {uuid for incident in fatal for uuid in incident.gpus}
    gpus = tuple(
        GpuStatus(
            uuid=gpu_uuid(facts.name, index),
            index=index,
            pci=pci_address(index),
            product=facts.product,
            health="Unhealthy" if gpu_uuid(facts.name, index) in sick else "Healthy",
        )
        for index in range(facts.gpus)
    )
    reason = first.reason if first else ("SourceDown" if no_data else "AllChecksPassing")
    return HealthStatus(
        publisher=publisher or PublisherPod(heartbeat=stamp(now)),
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        observed_at=stamp(now),
        agent_version="scripted",
        rules_version=RULES_VERSION,
        driver_version=DRIVER,
        health=health,
        reason=reason,
        message=_message(health, first),
        gpus_healthy=f"{facts.gpus - len(sick)}/{facts.gpus}",
        expected_gpus=ExpectedGpus(count=facts.gpus, source="Configured"),
        sources=(SourceStatus(name="nvml", state="Down" if no_data else "Up", since=stamp(now)),),
        gpus=gpus,
        topology=Topology(interconnect="nvswitch" if facts.gpus > 1 else "single"),
        incidents=tuple(incidents),
    )


def _message(health: str, first: IncidentStatus | None) -> str:
    if first is not None:
        return f"{first.reason} is active; recommended action: {first.recommended_action}."
    return "All checks pass." if health == "Healthy" else "The GPU view is down."


def node_status_patch(
    status: HealthStatus, facts: NodeFacts, now: datetime, before: Mapping[str, Object]
) -> Object:
    """The strategic merge patch of nodes/status by which an agent shows its health status.

    `before` holds the conditions written last, by type: a condition keeps its transition time
    while its status stays.
    """
    healthy = {"Unhealthy": "False", "Unknown": "Unknown"}.get(status.health, "True")
    degraded = any(
        incident.active and incident.severity == Severity.DEGRADED for incident in status.incidents
    )
    fine = healthy == "True"
    entries = (
        (names.CONDITION_HEALTHY, healthy, "AllChecksPassing" if fine else status.reason),
        (
            names.CONDITION_DEGRADED,
            str(degraded),
            status.reason if degraded else "AllChecksPassing",
        ),
    )
    return {
        "metadata": {
            "labels": {
                names.LABEL_HEALTH: status.health.lower(),
                names.LABEL_GPUS: str(facts.gpus),
                names.LABEL_GPUS_HEALTHY: status.gpus_healthy.partition("/")[0],
                names.LABEL_INTERCONNECT: status.topology.interconnect,
                names.LABEL_PRODUCT: facts.product,
                names.LABEL_DRIVER: status.driver_version,
            }
        },
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "message": status.message,
                    "lastHeartbeatTime": stamp(now),
                    "lastTransitionTime": (
                        before[kind]["lastTransitionTime"]
                        if before.get(kind, {}).get("status") == value
                        else stamp(now)
                    ),
                }
                for kind, value, reason in entries
            ]
        },
    }


GPU_EVIDENCES = Resource(names.GROUP, names.VERSION, "gpuevidences", False, "GPUEvidence")
GPU_NODE_HEALTHS = Resource(names.GROUP, names.VERSION, "gpunodehealths", False, "GPUNodeHealth")
HEARTBEAT_S = 240.0
AT_ONCE = 64
"""Concurrent writes: a real server answers each only after its store has synced."""


@dataclass(slots=True)
class _Story:
    """What was published about one node so far."""

    facts: NodeFacts
    stored: Object
    """Its GPUNodeHealth as the server holds it."""
    incidents: list[IncidentStatus] = field(default_factory=list)
    no_data: bool = False
    opened: int = 0
    conditions: dict[str, Object] = field(default_factory=dict)


class FleetHealth:
    """The scripted health of many nodes; `shown` on the Node objects too, as by an agent."""

    def __init__(self, client: Client, clock: Clock, *, shown: bool = True) -> None:
        self._client = client
        self._clock = clock
        self._shown = shown
        self._stories: dict[str, _Story] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.publishers: dict[str, PublisherPod] = {}
        """The agents' pods, by node; a health status of any other node carries a heartbeat."""

    async def healthy(self, node: str) -> None:
        """The node is fine: all incidents closed, health status published."""
        story = await self._story(node)
        story.no_data = False
        story.incidents = self._closed(story, "Reset")
        await self._publish(story)

    async def all_healthy(self, nodes: Iterable[str]) -> None:
        """`healthy` for many nodes at once."""
        await asyncio.gather(*(self._in_turn(self.healthy(node)) for node in nodes))

    async def all_fail(self, nodes: Iterable[str], *faults: Fault) -> None:
        """`fail` for many nodes at once."""
        await asyncio.gather(*(self._in_turn(self.fail(node, *faults)) for node in nodes))

    async def _in_turn(self, work: Awaitable[None]) -> None:
        async with self._gate:
            await work
            # A fleet's agents are many programs; the server answers others in between.
            await asyncio.sleep(0)

    async def fail(self, node: str, *faults: Fault) -> None:
        """New incidents on the node."""
        story = await self._story(node)
        now = self._clock()
        for fault in faults:
            story.opened += 1
            story.incidents.insert(0, incident_of(fault, story.facts, now, story.opened))
        await self._publish(story)

    async def no_data(self, node: str) -> None:
        """The agent lives but its GPU view is down: health Unknown."""
        story = await self._story(node)
        story.no_data = True
        await self._publish(story)

    async def recreated(self, node: str) -> None:
        """The node came back under its name or in a new boot: learn it again and report it."""
        old = self._stories.pop(node, None)
        story = await self._story(node)
        if old is not None:
            story.incidents = self._closed(old, "Reboot")
            story.opened = old.opened
        await self._publish(story)

    async def keep_evidence(self, node: str) -> str:
        """Write the evidence of a quarantined node; return its digest, "" without quarantine."""
        found = await self._client.get(NODES, node)
        session = evidence.session_of(found["metadata"].get("annotations") or {})
        if not session:
            return ""
        spec = {
            "session": session,
            "nodeName": node,
            "nodeUID": found["metadata"]["uid"],
            "takenAt": stamp(self._clock()),
            "kernelLog": "NVRM: scripted",
        }
        spec["sha256"] = evidence.digest(spec)
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "GPUEvidence",
            "metadata": {"name": session},
        }
        try:
            await self._client.create(GPU_EVIDENCES, {**body, "spec": spec})
        except ApiError as error:
            if error.code != 409:
                raise
        return str(spec["sha256"])

    async def beat(self) -> None:
        """One heartbeat of every living agent."""
        for story in list(self._stories.values()):
            await self._publish(story, node_too=False)

    async def run(self, period_s: float = HEARTBEAT_S) -> None:
        """Heartbeats for ever."""
        while True:
            await asyncio.sleep(period_s)
            await self.beat()

    async def _story(self, node: str) -> _Story:
        story = self._stories.get(node)
        if story is None:
            facts = facts_of(await self._client.get(NODES, node))
            story = self._stories[node] = _Story(facts, await self._object(facts))
        return story

    def _closed(self, story: _Story, by: str) -> list[IncidentStatus]:
        now = self._clock()
        at, seen = stamp(now), stamp_micro(now)
        end = {"active": False, "closed_at": at, "closed_by": by, "last_seen": seen}
        return [structs.replace(one, **end) if one.active else one for one in story.incidents]

    async def _publish(self, story: _Story, *, node_too: bool = True) -> None:
        status = health_status(
            story.facts, story.incidents, self._clock(), no_data=story.no_data,
            publisher=self.publishers.get(story.facts.name),
        )  # fmt: skip
        try:
            await self._put(story, plain(status))
        except ApiError as error:
            if error.code != 409:
                raise
            # The remediator writes there since when a node is silent.
            story.stored = await self._object(story.facts)
            await self._put(story, plain(status))
        if node_too and self._shown:
            patch = node_status_patch(status, story.facts, self._clock(), story.conditions)
            story.conditions = {entry["type"]: entry for entry in patch["status"]["conditions"]}
            await self._client.patch(
                NODES, story.facts.name, patch,
                subresource="status", content_type=STRATEGIC_MERGE_PATCH,
            )  # fmt: skip

    async def _put(self, story: _Story, status: Object) -> None:
        body = {**story.stored, "status": status}
        story.stored = await self._client.update_status(GPU_NODE_HEALTHS, body)

    async def _object(self, facts: NodeFacts) -> Object:
        try:
            return await self._client.get(GPU_NODE_HEALTHS, facts.name)
        except ApiError as error:
            if error.code != 404:
                raise
            return await self._client.create(GPU_NODE_HEALTHS, health_object(facts))


def facts_of(node: Object) -> NodeFacts:
    """What the scripted agent reads off its Node object."""
    meta, status = node["metadata"], node["status"]
    return NodeFacts(
        name=meta["name"],
        uid=meta["uid"],
        boot_id=status["nodeInfo"]["bootID"],
        gpus=int((status.get("capacity") or {}).get(GPU, 0)),
        product=(meta.get("labels") or {}).get("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
    )


def health_object(facts: NodeFacts) -> Object:
    """The GPUNodeHealth without its status, owned by the node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": facts.name, "uid": facts.uid}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUNodeHealth",
        "metadata": {"name": facts.name, "ownerReferences": [owner]},
    }
