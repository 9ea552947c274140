"""Puts a described fleet into an API server, its pods already in place.

Owners are made first, then their pods straight from the controllers' own functions and bound to
nodes, so that the controllers find nothing to do. Kubelets make the pods run; with
`running=True` the loader writes that state itself, for clusters without kubelets.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import TypeVar

from hack.sim.cluster.client import ApiError, Client, Object
from hack.sim.cluster.controllers import daemonset, deployment, job, replicaset, statefulset
from hack.sim.cluster.controllers.kubelet import KubeletSettings, PodMemory, act
from hack.sim.cluster.controllers.node_objects import node_object
from hack.sim.cluster.controllers.placement import NodeRoom, pinned_node
from hack.sim.cluster.controllers.pods import resource_requests
from hack.sim.cluster.controllers.scheduler import choose
from hack.sim.cluster.controllers.writes import (
    Create,
    Outcome,
    UpdateStatus,
    random_suffix,
    with_status,
)
from hack.sim.cluster.fleet import (
    POOL_LABEL,
    RACK_LABEL,
    Daemon,
    Fleet,
    Gang,
    Pool,
    Serving,
    Stateful,
    Workload,
    node_names,
    rack_of,
)
from hack.sim.cluster.fleet_workloads import budget_manifest, manifest
from hack.sim.cluster.resource import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

S = TypeVar("S")
T = TypeVar("T")
PARALLEL = 32


async def load(
    client: Client, fleet: Fleet, now: datetime, *, running: bool = False, seed: int = 0
) -> None:
    """Create namespaces, nodes, workloads and pods of the fleet."""
    await _each(fleet.namespaces(), lambda name: _ensure_namespace(client, name))
    nodes = [node for pool in fleet.pools for node in pool_nodes(pool, now)]
    stored = await _each(nodes, lambda node: create_node(client, node))
    loader = _Loader(client, stored, now, running=running, seed=seed)
    for workload in fleet.workloads:
        await loader.load(workload)


def pool_nodes(pool: Pool, now: datetime) -> list[Object]:
    """The Node objects of a pool."""
    return [
        node_object(
            name,
            now=now,
            gpus=pool.gpus,
            product=pool.product,
            instance_type=pool.instance_type,
            zone=pool.zones[number // pool.rack_size % len(pool.zones)],
            labels={POOL_LABEL: pool.name, RACK_LABEL: rack_of(pool, number), **pool.labels},
            taints=list(pool.taints),
        )
        for number, name in enumerate(node_names(pool))
    ]


async def create_node(client: Client, node: Object) -> Object:
    """Register a node as a kubelet does: the object, then its status."""
    created = await client.create(NODES, node)
    return await client.update_status(NODES, with_status(created, node["status"]))


class _Loader:
    def __init__(
        self, client: Client, nodes: list[Object], now: datetime, *, running: bool, seed: int
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._now = now
        self._running = running
        self._suffix = random_suffix(random.Random(f"fleet {seed}"))
        self._rooms = {node["metadata"]["name"]: NodeRoom.of(node) for node in nodes}
        self._pools: dict[str, list[NodeRoom]] = {}
        for room in self._rooms.values():
            pool = room.node["metadata"]["labels"].get(POOL_LABEL, "")
            self._pools.setdefault(pool, []).append(room)
        self._start: dict[str, int] = {}

    async def load(self, workload: Workload) -> None:
        owner = manifest(workload)
        match workload:
            case Serving():
                stored = await self._create(DEPLOYMENTS, owner)
                sets = _created(deployment.reconcile(stored, [], self._now), REPLICA_SETS)
                for replica_set in sets:
                    made = await self._create(REPLICA_SETS, replica_set)
                    await self._pods(workload.pool, self._step(replicaset.reconcile, made))
            case Gang():
                stored = await self._create(JOBS, owner)
                await self._pods(workload.pool, self._step(job.reconcile, stored))
            case Daemon():
                stored = await self._create(DAEMON_SETS, owner)
                await self._pods(
                    "", lambda have: daemonset.reconcile(stored, have, self._nodes, self._now)
                )
            case Stateful():
                stored = await self._create(STATEFUL_SETS, owner)
                await self._pods(workload.pool, self._step(statefulset.reconcile, stored))
        budget = budget_manifest(workload)
        if budget is not None:
            await self._create(POD_DISRUPTION_BUDGETS, budget)

    def _step(
        self, reconcile: Callable[[Object, list[Object], datetime], Outcome], owner: Object
    ) -> Callable[[list[Object]], Outcome]:
        return lambda have: reconcile(owner, have, self._now)

    async def _pods(self, pool: str, step: Callable[[list[Object]], Outcome]) -> None:
        """Take the owner's steps until it wants no more pods, placing and creating each."""
        have: list[Object] = []
        while wanted := _created(step(have), PODS):
            placed = [self._placed(pod, pool) for pod in wanted]
            have += await _each(placed, self._make_pod)

    def _placed(self, pod: Object, pool: str) -> Object:
        """The pod with a name, bound to a node with room; unbound where none has."""
        name = pinned_node(pod["spec"])
        if name is not None:
            room: NodeRoom | None = self._rooms.get(name)
        else:
            rooms = self._pools.get(pool) or list(self._rooms.values())
            room, self._start[pool], _ = choose(pod, rooms, self._start.get(pool, 0))
        meta = pod["metadata"]
        if "name" not in meta:
            pod = {**pod, "metadata": {**meta, "name": meta["generateName"] + self._suffix()}}
        if room is None:
            return pod
        room.reserve(f"{meta['namespace']}/{pod['metadata']['name']}", resource_requests(pod))
        return {**pod, "spec": {**pod["spec"], "nodeName": room.node["metadata"]["name"]}}

    async def _make_pod(self, pod: Object) -> Object:
        """Create the pod; returns it as it will be once its kubelet has started it."""
        stored = await self._client.create(PODS, pod, pod["metadata"]["namespace"])
        memory = PodMemory(seen_at=self._now, boot=0)
        outcome, _ = act(stored, memory, 0, KubeletSettings(), self._now)
        for write in outcome.writes:
            if isinstance(write, UpdateStatus) and stored["spec"].get("nodeName"):
                if self._running:
                    await self._client.update_status(PODS, write.body)
                return write.body
        return stored

    async def _create(self, resource: Resource, body: Object) -> Object:
        return await self._client.create(resource, body, body["metadata"]["namespace"])


def _created(outcome: Outcome, resource: Resource) -> list[Object]:
    return [
        write.body
        for write in outcome.writes
        if isinstance(write, Create) and write.resource == resource
    ]


async def _ensure_namespace(client: Client, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.create(NAMESPACES, body)
    except ApiError as error:
        if error.code != 409:
            raise


async def _each(items: Iterable[S], work: Callable[[S], Awaitable[T]]) -> list[T]:
    """The results of the work on every item, `PARALLEL` at a time."""
    gate = asyncio.Semaphore(PARALLEL)

    async def one(item: S) -> T:
        async with gate:
            return await work(item)

    return list(await asyncio.gather(*(one(item) for item in items)))
