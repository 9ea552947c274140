"""The parts around `Drains` against the simulated API server, fed with sessions and pods by
hand.
"""

import asyncio
from contextlib import asynccontextmanager

import msgspec

from hack.sim.cluster.resource import POD_DISRUPTION_BUDGETS, PODS
from remediator.controller.drain_reads import DrainReader
from remediator.controller.drains import Drains
from remediator.kube.gateway import Gateway
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode
from rules.api.writes import Write
from rules.policy.policy import Drain, Policy
from rules.policy.section import Seconds
from rules.session.recheck import recheck
from tests.support.cluster.made import made
from tests.support.remediator.edge import QUARANTINES
from tests.support.remediator.edge_world import EdgeWorld
from tests.support.remediator.scripted_server import until

POLICY = Policy(
    mode=Mode.ENFORCE,
    drain=Drain(
        settle_s=Seconds(0.1),
        unmanaged="Evict",
    ),
)

LONG_AGO = "2026-01-01T00:00:00Z"
FORCED = msgspec.structs.replace(
    POLICY, drain=msgspec.structs.replace(POLICY.drain, on_timeout="Force")
)


class Setting(EdgeWorld):
    """The parts around `Drains`, fed with sessions and pods by hand."""

    def __init__(self, cluster, gateway=Gateway, *, rechecks=False, **options):
        """With `rechecks` the gateway applies the rules again before each write."""
        super().__init__(
            cluster,
            POLICY,
            pdb=self._pdb_changed,
            gateway=gateway,
            recheck=self._recheck if rechecks else lambda write, node: "",
        )
        self.woken: list[str] = []
        # Only PDBs are watched here: what is fed by hand does not grow old.
        self.world.doubts.clear()
        self.drains = Drains(
            self.edge(),
            reader=DrainReader(cluster.api, cluster.clock, self.caches),
            wake=self.woken.append,
            **options,
        )

    def _recheck(self, write: Write, node: NodeView) -> str:
        return recheck(write, node, self.world.snapshot())

    def _pdb_changed(self, key: str) -> None:
        self.drains.pdb_changed(key)

    async def add_session(self, node, started_at="", *, on_record=True):
        cause = {"source": "Detector", "reason": "Xid79", "severity": "Fatal", "incident": node}
        # The check at the node writes down that somebody is to go.
        waiting = {"more": 1} if on_record else {}
        drain = {"startedAt": started_at, "waiting": waiting, "scope": "Node"}
        spec = {"nodeName": node, "causes": [cause]}
        status = {"mode": "Enforce", "phase": "Draining", "drain": drain}
        await made(self.client, QUARANTINES, f"s-{node}", spec=spec, status=status)
        view = await self.cluster.api.get(
            f"/apis/gpuward.io/v1alpha1/gpuquarantines/s-{node}", QuarantineView
        )
        self.world.learn_session(view)

    async def add_pod(self, name, node, *, ready=True, started_at=None, **labels):
        meta = {"labels": labels or {"app": name}}
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **({"startTime": started_at} if started_at else {}),
        }
        return await made(self.client, PODS, name, "default", meta=meta, spec=spec, status=status)

    async def add_budget(self, name, allowed, **spec):
        spec = {"selector": {"matchLabels": {"app": name}}, **spec}
        budget = await made(self.client, POD_DISRUPTION_BUDGETS, name, "default", spec=spec)
        await self.allow(name, allowed)
        return budget

    async def allow(self, name, allowed, expected=4, desired=2, healthy=4):
        budget = await self.client.get(POD_DISRUPTION_BUDGETS, name, "default")
        budget["status"] = {
            "observedGeneration": budget["metadata"].get("generation", 1),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
        }
        await self.client.update_status(POD_DISRUPTION_BUDGETS, budget, "default")

    def evictions(self, code=None):
        return self.cluster.server.requests.count(subresource="eviction", code=code)

    def memory(self, node):
        plan = self.drains.plan(node)
        return plan.memory if plan else None


@asynccontextmanager
async def draining(cluster, **options):
    """Options are those of `Setting` and `Drains`."""
    setting = Setting(cluster, **options)
    parts = [setting.world.caches.pdbs.run(), setting.drains.run()]
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await until(lambda: setting.world.caches.pdbs.synced)
        yield setting
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
