"""GPU health of nodes without an agent, written as an agent would write it.

Demo, benchmarks and tests use it for the nodes on which no real agent runs: GPUNodeHealth with a
heartbeat publisher, the two conditions and the labels. It only states verdicts; it never judges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import structs

from hack.sim.cluster.clients.client import STRATEGIC_MERGE_PATCH, ApiError, Client, Object
from hack.sim.cluster.controllers.pods import GPU
from hack.sim.cluster.controllers.running import Clock
from hack.sim.cluster.controllers.timestamps import stamp, stamp_micro
from hack.sim.cluster.fleet.fleet_health_objects import (
    Fault,
    NodeFacts,
    health_status,
    incident_of,
    node_status_patch,
)
from hack.sim.cluster.resource import NODES, Resource
from rules.api.evidence import digest, session_of
from rules.api.health import IncidentStatus, plain
from rules.api.names import API_VERSION, GROUP, VERSION

GPU_EVIDENCES = Resource(GROUP, VERSION, "gpuevidences", False, "GPUEvidence")
GPU_NODE_HEALTHS = Resource(GROUP, VERSION, "gpunodehealths", False, "GPUNodeHealth")
HEARTBEAT_S = 240.0
PARALLEL = 32


@dataclass(slots=True)
class _Story:
    """What has been said about one node so far."""

    facts: NodeFacts
    incidents: list[IncidentStatus] = field(default_factory=list)
    blind: bool = False
    opened: int = 0
    conditions: dict[str, Object] = field(default_factory=dict)


class FleetHealth:
    """The scripted health of many nodes."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._stories: dict[str, _Story] = {}

    async def healthy(self, node: str) -> None:
        """The node is fine: all incidents closed, verdict published."""
        story = await self._story(node)
        now = self._clock()
        story.blind = False
        story.incidents = [_closed(incident, now, "Reset") for incident in story.incidents]
        await self._publish(story)

    async def all_healthy(self, nodes: Iterable[str]) -> None:
        """`healthy` for many nodes at once."""
        gate = asyncio.Semaphore(PARALLEL)

        async def one(node: str) -> None:
            async with gate:
                await self.healthy(node)

        await asyncio.gather(*(one(node) for node in nodes))

    async def fail(self, node: str, *faults: Fault) -> None:
        """New incidents on the node."""
        story = await self._story(node)
        now = self._clock()
        for fault in faults:
            story.opened += 1
            story.incidents.insert(0, incident_of(fault, story.facts, now, story.opened))
        await self._publish(story)

    async def blind(self, node: str) -> None:
        """The agent lives but its GPU view is down: health Unknown."""
        story = await self._story(node)
        story.blind = True
        await self._publish(story)

    async def recreated(self, node: str) -> None:
        """The node came back under its name or in a new boot: learn it anew and say so."""
        old = self._stories.pop(node, None)
        story = await self._story(node)
        if old is not None:
            now = self._clock()
            story.incidents = [_closed(incident, now, "Reboot") for incident in old.incidents]
            story.opened = old.opened
        await self._publish(story)

    async def keep_evidence(self, node: str) -> str:
        """What an agent does when a mark appears: the digest it wrote, "" while there is no
        mark.
        """
        found = await self._client.get(NODES, node)
        session = session_of(found["metadata"].get("annotations") or {})
        if not session:
            return ""
        spec = {
            "session": session,
            "nodeName": node,
            "nodeUID": found["metadata"]["uid"],
            "takenAt": stamp(self._clock()),
            "kernelLog": "NVRM: scripted",
        }
        spec["sha256"] = digest(spec)
        body = {"apiVersion": API_VERSION, "kind": "GPUEvidence", "metadata": {"name": session}}
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
            story = self._stories[node] = _Story(facts=facts)
        return story

    async def _publish(self, story: _Story, *, node_too: bool = True) -> None:
        status = health_status(story.facts, story.incidents, self._clock(), blind=story.blind)
        await self._put_health(story.facts, plain(status))
        if node_too:
            patch = node_status_patch(status, story.facts, self._clock(), story.conditions)
            story.conditions = {entry["type"]: entry for entry in patch["status"]["conditions"]}
            await self._client.patch(
                NODES,
                story.facts.name,
                patch,
                subresource="status",
                content_type=STRATEGIC_MERGE_PATCH,
            )

    async def _put_health(self, facts: NodeFacts, status: Object) -> None:
        try:
            current = await self._client.get(GPU_NODE_HEALTHS, facts.name)
        except ApiError as error:
            if error.code != 404:
                raise
            current = await self._client.create(GPU_NODE_HEALTHS, health_object(facts))
        await self._client.update_status(GPU_NODE_HEALTHS, {**current, "status": status})


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
        "apiVersion": API_VERSION,
        "kind": "GPUNodeHealth",
        "metadata": {"name": facts.name, "ownerReferences": [owner]},
    }


def _closed(incident: IncidentStatus, now: datetime, by: str) -> IncidentStatus:
    if not incident.active:
        return incident
    return structs.replace(
        incident, active=False, closed_at=stamp(now), closed_by=by, last_seen=stamp_micro(now)
    )
