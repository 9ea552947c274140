"""Puts a described fleet into an API server, its pods already in place.

Two ways. `load` makes pods straight from the controllers' own functions, bound to nodes and
running, so that controllers that start afterwards find nothing to do: fast, for big fleets; no
controller may run meanwhile. `apply_fleet` makes nodes and owners only and leaves the pods to the
controllers and the scheduler that run, ours or real ones.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from hack.sim.cluster.clients.client import STRATEGIC_MERGE_PATCH, ApiError, Client, Object
from hack.sim.cluster.controllers.nodes.kubelet import KubeletSettings, PodMemory, act
from hack.sim.cluster.controllers.nodes.node_objects import node_object
from hack.sim.cluster.controllers.nodes.placement import NodeRoom, pinned_node
from hack.sim.cluster.controllers.nodes.scheduler import choose
from hack.sim.cluster.controllers.pods import resource_requests
from hack.sim.cluster.controllers.workloads import (
    daemonset,
    deployment,
    job,
    replicaset,
)
from hack.sim.cluster.controllers.writes import (
    Create,
    Outcome,
    UpdateStatus,
    random_suffix,
)
from hack.sim.cluster.fleet.fleet import (
    POOL_LABEL,
    RACK_LABEL,
    Daemon,
    Fleet,
    Gang,
    Pool,
    Serving,
    Workload,
    budget_manifest,
    manifest,
    node_names,
    rack_of,
)
from hack.sim.cluster.resource import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    Resource,
)

S = TypeVar("S")
T = TypeVar("T")
Bulk = Callable[[Resource, Iterable[Object]], object]
PARALLEL = 32


async def load(client: Client, fleet: Fleet, now: datetime, *, bulk: Bulk, seed: int = 0) -> None:
    """Create namespaces, nodes, workloads and their running pods, before any controller runs.

    `bulk` stores finished objects with their status at once (the simulated engine's `load`).
    """
    with collection_paused():
        nodes = await _load_nodes(client, fleet, now, bulk)
        loader = _Loader(client, nodes, now, bulk, seed)
        for workload in fleet.workloads:
            await loader.load(workload)


@contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage collection inside: a fleet is millions of objects of which none is garbage.

    Looking through them again and again took more than half of the loading time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def apply_fleet(client: Client, fleet: Fleet, now: datetime) -> None:
    """Create namespaces, nodes and workloads; pods come from the running controllers."""
    await _load_nodes(client, fleet, now, None)
    for workload in fleet.workloads:
        await _create(client, resource_of(workload), manifest(workload))
        await _create_budget(client, workload)


def resource_of(workload: Workload) -> Resource:
    """The collection of the object that owns the workload's pods."""
    match workload:
        case Serving():
            return DEPLOYMENTS
        case Gang():
            return JOBS
        case Daemon():
            return DAEMON_SETS


async def _load_nodes(
    client: Client, fleet: Fleet, now: datetime, bulk: Bulk | None
) -> list[Object]:
    await _each(fleet.namespaces(), lambda name: _ensure_namespace(client, name))
    nodes = [node for pool in fleet.pools for node in pool_nodes(pool, now)]
    if bulk is None:
        await _each(nodes, lambda node: create_node(client, node))
    else:
        bulk(NODES, nodes)
    return nodes


def pool_nodes(pool: Pool, now: datetime) -> list[Object]:
    """The Node objects of a pool."""
    return [
        node_object(
            name,
            now=now,
            gpus=pool.gpus,
            labels={POOL_LABEL: pool.name, RACK_LABEL: rack_of(pool, number), **pool.labels},
        )
        for number, name in enumerate(node_names(pool))
    ]


async def create_node(client: Client, node: Object) -> Object:
    """Register a node as a kubelet does: the object, then a patch of its status.

    Others write to a new node too (its taint, its pod range): an update would meet a conflict.
    """
    name = node["metadata"]["name"]
    await client.create(NODES, node)
    return await client.patch(
        NODES,
        name,
        {"status": node["status"]},
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
    )


class _Loader:
    def __init__(
        self,
        client: Client,
        nodes: list[Object],
        now: datetime,
        bulk: Bulk,
        seed: int,
    ) -> None:
        self._client = client
        self._bulk = bulk
        self._nodes = nodes
        self._now = now
        self._suffix = random_suffix(random.Random(f"fleet {seed}"))
        self._rooms = {node["metadata"]["name"]: NodeRoom.of(node) for node in nodes}
        self._pools: dict[str, list[NodeRoom]] = {}
        for room in self._rooms.values():
            pool = room.node["metadata"]["labels"].get(POOL_LABEL, "")
            self._pools.setdefault(pool, []).append(room)
        self._start: dict[str, int] = {}
        self._names: set[str] = set()

    async def load(self, workload: Workload) -> None:
        stored = await _create(self._client, resource_of(workload), manifest(workload))
        match workload:
            case Serving():
                sets = _created(deployment.reconcile(stored, [], self._now), REPLICA_SETS)
                for replica_set in sets:
                    made = await _create(self._client, REPLICA_SETS, replica_set)
                    await self._pods(workload.pool, self._step(replicaset.reconcile, made))
            case Gang():
                await self._pods(workload.pool, self._step(job.reconcile, stored))
            case Daemon():
                await self._pods(
                    "", lambda have: daemonset.reconcile(stored, have, self._nodes, self._now)
                )
        await _create_budget(self._client, workload)

    def _step(
        self, reconcile: Callable[[Object, list[Object], datetime], Outcome], owner: Object
    ) -> Callable[[list[Object]], Outcome]:
        return lambda have: reconcile(owner, have, self._now)

    async def _pods(self, pool: str, step: Callable[[list[Object]], Outcome]) -> None:
        """Take the owner's steps until it wants no more pods, placing and creating each."""
        have: list[Object] = []
        while wanted := _created(step(have), PODS):
            made = [self._running(self._placed(pod, pool)) for pod in wanted]
            have += made
            self._bulk(PODS, [_without_uid(pod) for pod in made])

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
            pod = {**pod, "metadata": {**meta, "name": self._free_name(meta["generateName"])}}
        if room is None:
            return pod
        room.reserve(f"{meta['namespace']}/{pod['metadata']['name']}", resource_requests(pod))
        return {**pod, "spec": {**pod["spec"], "nodeName": room.node["metadata"]["name"]}}

    def _free_name(self, prefix: str) -> str:
        """A name nobody has: among thousands of pods five letters do collide."""
        while (name := prefix + self._suffix()) in self._names:
            continue
        self._names.add(name)
        return name

    def _running(self, pod: Object) -> Object:
        """The pod as its kubelet shows it once it runs; a stand-in UID until the API gives one."""
        meta = pod["metadata"]
        pod = {**pod, "metadata": {**meta, "uid": f"{meta['namespace']}/{meta['name']}"}}
        if not pod["spec"].get("nodeName"):
            return pod
        memory = PodMemory(seen_at=self._now, boot=0)
        outcome, _ = act(pod, memory, 0, KubeletSettings(), self._now)
        (write,) = [write for write in outcome.writes if isinstance(write, UpdateStatus)]
        return write.body


def _without_uid(pod: Object) -> Object:
    return {**pod, "metadata": {k: v for k, v in pod["metadata"].items() if k != "uid"}}


async def _create(client: Client, resource: Resource, body: Object) -> Object:
    return await client.create(resource, body, body["metadata"]["namespace"])


async def _create_budget(client: Client, workload: Workload) -> None:
    budget = budget_manifest(workload)
    if budget is not None:
        await _create(client, POD_DISRUPTION_BUDGETS, budget)


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
