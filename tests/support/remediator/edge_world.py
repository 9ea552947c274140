"""A world of caches and a gateway around the simulated API server, for parts that need both."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from remediator.controller.node_cycle import CycleReads, NodeCycle
from remediator.controller.node_reads import NodeReads
from remediator.kube.caches import Caches, Listeners, PublisherPods
from remediator.kube.elector import Elector
from remediator.kube.gateway import Gateway, Recheck
from remediator.kube.isolation import Isolation
from remediator.kube.other_apis import ApiGroups, RepairObjects
from remediator.kube.refusals import EventSender
from remediator.world import Edge, World
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode
from rules.drain.drain_plan import DrainPlan
from rules.drain.memory import DrainMemory
from rules.policy.policy import Policy
from rules.session.observation import Permit
from tests.support.cluster.made import made
from tests.support.remediator.edge import QUARANTINES
from tests.support.remediator.scripted_server import until


def some_edge(clock: Any, **parts: Any) -> Edge:
    """What is not named is not there; it leads, and surprises are counted nowhere."""
    nothing: dict[str, Any] = dict.fromkeys(Edge.__slots__)
    given = {"may_act": lambda: True, "isolation": Isolation(clock), **parts}
    return Edge(**{**nothing, **given, "clock": clock})


class Leader(Elector):
    """A replica with leadership set by a test."""

    def __init__(self, *, write=True, disruption=True):
        self.write, self.disruption = write, disruption

    def may_write(self):
        return self.write

    def may_disrupt(self):
        return self.disruption


class EdgeWorld:
    """The caches of one replica that leads, and its gateway."""

    def __init__(
        self,
        cluster,
        policy: Policy,
        pdb=lambda key: None,
        gateway: type[Gateway] = Gateway,
        recheck: Recheck = lambda write, node: "",
    ):
        """`pdb` hears of changed PodDisruptionBudgets."""
        self.cluster, self.client, self.policy = cluster, cluster.client, policy
        listeners = Listeners(
            health=lambda name, health: self.world.health_changed(name, health),
            session=self._session_changed,
            pdb=pdb,
        )
        self.caches = Caches(
            cluster.api, cluster.clock, node_selector="", namespace="gpuward", to=listeners
        )
        self.world = World(
            self.caches,
            cluster.clock,
            policy=lambda: self.policy,
            own_node="",
            own_namespace="gpuward",
        )
        self.gateway = gateway(
            cluster.api,
            cluster.clock,
            Leader(),
            cluster.metrics,
            mode=lambda _: Mode.ENFORCE,
            recheck=recheck,
        )

    def _session_changed(
        self, before: QuarantineView | None, after: QuarantineView | None
    ) -> None:
        self.world.session_changed(before, after)

    def edge(self, counted: Callable[[str], None] = lambda _: None) -> Edge:
        """What a part of this replica works at; `counted` takes surprises."""
        cluster = self.cluster
        return some_edge(
            cluster.clock,
            api=cluster.api,
            gateway=self.gateway,
            events=EventSender(self.gateway, cluster.clock),
            world=self.world,
            metrics=cluster.metrics,
            policy=lambda: self.policy,
            isolation=Isolation(cluster.clock, counted),
        )


@asynccontextmanager
async def edge_world(cluster, policy: Policy):
    """Its caches follow the server until the end of the block."""
    found = EdgeWorld(cluster, policy)
    tasks = [asyncio.create_task(cache.run()) for cache in found.caches.all]
    try:
        await until(lambda: not found.caches.problem())
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def open_session(setting: EdgeWorld, node: str) -> None:
    """An operator asks for a node; returns when the caches know."""
    cause = {"source": "Human", "reason": "Requested", "by": "ada"}
    spec = {"nodeName": node, "causes": [cause]}
    await made(setting.client, QUARANTINES, f"s-{node}", spec=spec)
    await until(lambda: setting.world.open_sessions(node))


def cycle_of(setting: EdgeWorld, counted: list[str], **options: Any) -> NodeCycle:
    """The checks of a replica whose fleet rules allow everything; `counted` takes surprises."""
    cluster = setting.cluster
    edge = setting.edge(counted.append)
    return NodeCycle(
        edge,
        reads=NodeReads(edge, PublisherPods(cluster.api, cluster.clock, setting.caches)),
        objects=RepairObjects(cluster.api, ApiGroups(cluster.api, cluster.clock), cluster.clock),
        collectors=CycleReads(
            permit=lambda name: Permit(start=True, drain=True, unjudged=None),
            judged=lambda session: True,
            fleet_changed=lambda: None,
            plan=lambda node: DrainPlan(memory=DrainMemory()),
        ),
        **options,
    )
