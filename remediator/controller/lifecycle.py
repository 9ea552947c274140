"""Write the Node lifecycle conditions of drains (`rules.session.lifecycle`) on the leader."""

from remediator.kube.answer import Result
from remediator.world import Edge, EdgePart
from rules.api.nodes import NodeView
from rules.api.writes import SetDrainConditions
from rules.policy import policy
from rules.session import lifecycle

_SWEEP_S = 2.0
_REFUSED_S = 60.0


class DrainConditions(EdgePart):
    """The drain conditions on nodes, by the sessions of one process."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge)
        self._set: set[str] | None = None
        """Nodes with conditions of gpuward; None before all nodes were checked."""
        self._refused: dict[str, float] = {}
        """When the API server last refused a write (CLOCK_BOOTTIME), by node."""

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            if self._may_act():
                with self._isolation.guard("lifecycle", "drain conditions"):
                    await self.sweep()
            else:
                self._set = None

    async def sweep(self) -> None:
        """Write what changed: on nodes with sessions if the policy asks for it, and on nodes with
        conditions of gpuward. The first sweep checks all nodes.
        """
        if self._set is None:
            self._set = {n for n, o in self._world.snapshot().nodes.items() if lifecycle.ours(o)}
        asked = any(one.drain.node_conditions for one in self._policy().policies)
        names = {*self._set, *(self._world.nodes_with_open_sessions() if asked else ())}
        for name in names:
            node = self._world.snapshot().nodes.get(name)
            write = self._change(node) if node is not None else None
            if write is not None:
                await self._send(write)
            elif node is None or not lifecycle.ours(node):
                self._set.discard(name)

    def _change(self, node: NodeView) -> SetDrainConditions | None:
        if policy.by_accident(self._world.policy_of(node.name)):
            return None
        session = next(iter(self._world.open_sessions(node.name)), None)
        snapshot, wanted = self._world.snapshot(), frozenset[str]()
        if session is not None:
            active_at = self._world.active.get(session.metadata.uid)
            wanted = lifecycle.observed(session, node, snapshot, active_at)
        return lifecycle.change(node, session, wanted, snapshot.now)

    async def _send(self, write: SetDrainConditions) -> None:
        now = self._clock.elapsed()
        if now - self._refused.get(write.node, float("-inf")) < _REFUSED_S:
            return
        sent = await self._gateway.send(write)
        if sent.result is Result.REFUSED:
            self._refused[write.node] = now
        if sent.done and sent.answer is not None and self._set is not None:
            self._refused.pop(write.node, None)
            self._gateway.forget(write.node)
            self._world.learn_node(sent.answer.decode(NodeView))
            self._set.add(write.node)
