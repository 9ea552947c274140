"""The drains of simulated sessions: list, plan, offer, again; as `remediator.drain` does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api import writes as d
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import DrainStatus
from rules.api.timestamps import parse_time
from rules.drain.arrivals import plan_watch
from rules.drain.drain_input import DrainInput
from rules.drain.gangs import Gang, gangs_of
from rules.drain.memory import DrainMemory
from rules.drain.plan import DrainPlan, plan_drain
from rules.policy.policy import Policy
from rules.session.causes import causes_in_effect, worst
from rules.session.snapshot import FleetSnapshot
from rules.simulate.cluster.evictions import Evictions
from rules.simulate.cluster.objects import pod_view
from rules.simulate.cluster.sim_node import SimNode
from rules.simulate.cluster.work import Pod
from rules.simulate.cluster.world import HOUR_S, World

_NEEDS_S: Final = HOUR_S
"""How long people take for a drain that needs one (assumed)."""
_LEAVING_S: Final = 1.0
_LONGEST_S: Final = 60.0
"""A pass that finds what the one before it found is made again ever more rarely."""


@dataclass(slots=True, eq=False)
class _SimDrain:
    session: str
    memory: DrainMemory
    steered: d.Evicting
    plan: DrainPlan | None = None
    rest_s: float = field(default=_LEAVING_S)


class SimDrains:
    """All drains of one controller."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        *,
        sessions: Mapping[str, QuarantineView],
        snapshot: Callable[[], FleetSnapshot],
        on_record: Callable[[str], bool],
        wake: Callable[[SimNode, float], None],
    ) -> None:
        self._world = world
        self._policy = policy
        self._sessions = sessions
        self._snapshot = snapshot
        self._wake = wake
        self._evictions = Evictions(world, policy, snapshot, on_record)
        self._drains: dict[str, _SimDrain] = {}

    def plan(self, node: SimNode, session: QuarantineView) -> DrainPlan | None:
        """The plan as of the last list."""
        drain = self._drains.get(node.name)
        return drain.plan if drain is not None and drain.session == session.name else None

    def steer(self, node: SimNode, session: QuarantineView | None, evicting: d.Evicting) -> None:
        """Start, go on with, or stop the node's drain."""
        drain = self._drains.get(node.name)
        if session is None or evicting is d.Evicting.NO:
            if drain is not None and (session is None or drain.session == session.name):
                del self._drains[node.name]
            return
        if drain is None or (drain.session, drain.steered) != (session.name, evicting):
            dry = evicting is d.Evicting.PROBE
            memory = DrainMemory.resume(None if dry else session.status.drain)
            begun = _SimDrain(session=session.name, memory=memory, steered=evicting)
            self._drains[node.name] = begun
            self._world.clock.after(0.05, lambda: self._pass(node, begun))

    def pods_changed(self, node: SimNode) -> None:
        """A pod left."""
        drain = self._drains.get(node.name)
        if drain is not None:
            drain.rest_s = _LEAVING_S
            self._world.clock.after(_LEAVING_S, lambda: self._pass(node, drain))

    def _pass(self, node: SimNode, drain: _SimDrain) -> None:
        session = self._sessions.get(drain.session)
        if self._drains.get(node.name) is not drain or session is None:
            return
        if drain.steered in {d.Evicting.WATCH, d.Evicting.LOOK}:
            self._watch(node, drain, session)
            return
        now, before = self._world.now, drain.plan
        plan = self._planned(node, drain, session)
        drain.memory = self._evictions.offer(node, plan, plan.memory)
        drain.plan = replace(plan, memory=drain.memory)
        same = before is not None and (before.evict, before.blocked) == (plan.evict, plan.blocked)
        leaves = node.pod is not None and node.pod.terminating
        drain.rest_s = min(drain.rest_s * 2.0, _LONGEST_S) if same and not leaves else _LEAVING_S
        wait_s = drain.rest_s
        if plan.wake_at is not None:
            wait_s = min(wait_s, max(0.05, plan.wake_at - now))
        if plan.needs_human is not None and node.pod is not None:
            owner = node.pod.owner
            self._world.clock.after(_NEEDS_S, lambda: self._world.work.unguard(owner))
        self._wake(node, 0.05)
        self._world.clock.after(wait_s, lambda: self._pass(node, drain))

    def _planned(self, node: SimNode, drain: _SimDrain, session: QuarantineView) -> DrainPlan:
        now = self._world.now
        causes = causes_in_effect(session, self._snapshot())
        look = DrainInput(
            node=node.name,
            session=session.name,
            pods=pods_on(node),
            pdbs=self._evictions.budgets(node),
            severity=worst(causes),
            reasons=tuple(cause.reason for cause in causes),
            dry_run=drain.steered is d.Evicting.PROBE,
            last_active_at=now - 1.0,
            drain=session.status.drain or DrainStatus(),
        )
        plan = plan_drain(look, self._policy, drain.memory, now)
        if plan.wants_owners:
            # The owners of simulated pods exist and have no owners of their own.
            look = replace(look, owners=self._evictions.owners(plan.wants_owners))
            plan = plan_drain(look, self._policy, drain.memory, now)
        return plan

    def _watch(self, node: SimNode, drain: _SimDrain, session: QuarantineView) -> None:
        """Nobody comes past the simulated scheduler; a repair wants to see the node empty."""
        close = drain.steered is d.Evicting.LOOK
        drain.plan = plan_watch(
            pods_on(node),
            node.name,
            worst(causes_in_effect(session, self._snapshot())),
            self._policy,
            drain.memory,
            since=parse_time(session.status.phase_since) or self._world.now,
            now=self._world.now,
            before=drain.plan,
            certain=close,
        )
        if close:
            self._wake(node, 0.05)
            wait_s = max(1.0, self._policy.drain.settle_s)
            self._world.clock.after(wait_s, lambda: self._pass(node, drain))


class KnownGangs(Mapping[str, tuple[Gang, ...]]):
    """The gangs on every node, each worked out when it is asked for and kept while its pod
    runs.
    """

    def __init__(self, nodes: Mapping[str, SimNode]) -> None:
        self._nodes = nodes
        self._kept: dict[str, tuple[Pod | None, tuple[Gang, ...]]] = {}

    def __getitem__(self, name: str) -> tuple[Gang, ...]:
        node = self._nodes[name]
        known = self._kept.get(name)
        if known is None or known[0] is not node.pod:
            known = self._kept[name] = node.pod, gangs_of(pods_on(node), {})
        return known[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def pods_on(node: SimNode) -> tuple[PodView, ...]:
    """A list of the node's pods."""
    return () if node.pod is None else (pod_view(node.pod),)
