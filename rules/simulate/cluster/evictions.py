"""Evictions of simulated pods through the real queue of budgets, answered as the API server
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rules.api.budgets import PdbView
from rules.api.metadata import ObjectMeta
from rules.api.pods import OwnerView
from rules.api.writes import EvictPod
from rules.drain import queue as pdb_queue
from rules.drain.budget import matching
from rules.drain.eviction import EvictionOutcome, classify, no_answer
from rules.drain.memory import DrainMemory, answered, forced
from rules.drain.plan import DrainPlan, OwnerWanted
from rules.fleet.at_hand import as_read
from rules.policy.policy import Policy
from rules.session.recheck import recheck
from rules.session.snapshot import FleetSnapshot
from rules.simulate.cluster.objects import (
    EVICTED,
    GONE,
    NAMESPACE,
    REFUSED,
    pdb_view,
    pod_view,
)

if TYPE_CHECKING:
    from rules.simulate.cluster.sim_node import SimNode
    from rules.simulate.cluster.world import World


class Evictions:
    """What the drains of one controller ask for."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        snapshot: Callable[[], FleetSnapshot],
        on_record: Callable[[str], bool],
    ) -> None:
        self._world = world
        self._policy = policy
        self._snapshot = snapshot
        self._on_record = on_record
        self._queue = pdb_queue.PdbQueue()

    def budgets(self, node: SimNode) -> tuple[PdbView, ...]:
        """The budgets that protect what runs on the node."""
        if node.pod is None:
            return ()
        work = node.pod.owner
        view = pdb_view(work, self._world.work.healthy(work))
        return () if view is None else (view,)

    def owners(self, wanted: Iterable[OwnerWanted]) -> dict[str, OwnerView]:
        """The owners that a plan asks for."""
        return {
            one.uid: OwnerView(
                api_version=one.api_version,
                kind=one.kind,
                metadata=ObjectMeta(name=one.name, namespace=NAMESPACE, uid=one.uid),
            )
            for one in wanted
        }

    def offer(self, node: SimNode, plan: DrainPlan, memory: DrainMemory) -> DrainMemory:
        """Send what is due of a plan; the memory with the answers."""
        now = self._world.now
        for _, delete in plan.force:
            if node.pod is not None and node.pod.uid == delete.uid:
                self._world.drains(node)
                self._world.evict(node.pod, force=True)
                gone = EvictPod(
                    node=node.name, namespace=delete.namespace, name=delete.name, uid=delete.uid
                )
                memory = forced(memory, gone)
        wanted = [
            eviction
            for eviction in plan.evict
            if (eviction.dry_run or self._on_record(eviction.node))
            and not _is_answered(memory, eviction)
        ]
        self._queue, send = pdb_queue.due(self._queue, wanted, now)
        for eviction in send:
            outcome = self._ask(node, eviction)
            backoff = self._policy.drain.backoff
            self._queue = pdb_queue.answered(self._queue, eviction, outcome, backoff, now, 0.5)
            memory = answered(memory, eviction, outcome)
        return memory

    def _ask(self, node: SimNode, eviction: EvictPod) -> EvictionOutcome:
        if eviction.harmful and (held := recheck(eviction, as_read(node.view), self._snapshot())):
            return no_answer(held)
        pod, budgets = node.pod, self.budgets(node)
        if pod is None or pod.uid != eviction.uid:
            gone = pod_view(pod) if pod is not None else None
            if gone is None:
                return no_answer("the pod is gone")
            return classify(404, {}, GONE, gone, budgets, self._world.now)
        view = pod_view(pod)
        found = matching(view, budgets)
        if eviction.dry_run:
            allowed = self._world.work.allows(pod)
        else:
            self._world.drains(node)
            allowed = self._world.evict(pod)
        code, body = (201, EVICTED) if allowed else (429, REFUSED)
        return classify(code, {}, body, view, found, self._world.now)


def _is_answered(memory: DrainMemory, eviction: EvictPod) -> bool:
    outcome = memory.outcomes.get(eviction.uid)
    return outcome is not None and (outcome.done or eviction.dry_run)
