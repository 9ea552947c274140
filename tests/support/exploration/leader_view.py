"""What the leader observes of a state: caches, fresh reads, health statuses, the fleet."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rules.api import writes as d
from rules.api.nodes import FreshNode, NodeView, PauseView, QuarantineView
from rules.drain.gangs import Gang
from rules.fleet.turns import FleetAssessment, judge_fleet
from rules.policy.policy import Policy
from rules.session.decide import decide
from rules.session.observation import FleetSnapshot
from rules.session.recheck import recheck
from tests.support.exploration.packing import NODES, NOW
from tests.support.exploration.state import (
    State,
    health_view,
    node_view,
    session_view,
)

PAUSE = msgspec.convert(
    {"metadata": {"name": "stop"}, "spec": {"scope": {"all": True}, "reason": "42", "by": "ada"}},
    PauseView,
)
GANG_OWNER = ("jobset.x-k8s.io/v1alpha2", "JobSet", "train")
REPLICA_SET = ("apps/v1", "ReplicaSet", "web")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What stays the same during one exploration."""

    policy: Policy
    skipping: Policy
    """The policy with a rule that leaves the pods alone."""
    gang: bool = False
    standby_reads: bool = True
    """Every replica knows the gangs; otherwise a new leader has to read them first."""
    asks_again: bool = True
    """Session, plan and policy are asked once more before a chosen eviction is sent."""
    decide: Callable[..., d.Decision] = decide
    recheck: Callable[..., str] = recheck
    judge: Callable[[FleetSnapshot], FleetAssessment] = judge_fleet


@dataclass(frozen=True)
class LeaderView:
    """The views of one setting."""

    setting: Setting
    _judged: dict[Any, FleetAssessment] = field(init=False, default_factory=dict)

    def policy(self, state: State) -> Policy:
        return self.setting.skipping if state.skips else self.setting.policy

    def cached_node(self, state: State, index: int) -> NodeView | None:
        bundle = state.bundles[index]
        node = bundle.lagging[0] if bundle.lagging else bundle.node
        if node is None:
            return None
        return node_view(node, index, "1" if node == bundle.node else "0", fresh=False)

    def fresh_node(self, state: State, index: int) -> FreshNode | None:
        node = state.bundles[index].node
        view = None if node is None else node_view(node, index, "1", fresh=True)
        assert view is None or isinstance(view, FreshNode)
        return view

    def cached_sessions(self, state: State, index: int) -> list[QuarantineView]:
        bundle = state.bundles[index]
        true = {session.name: session for session in bundle.sessions}
        cached = bundle.lagging[1] if bundle.lagging else bundle.sessions
        views = [session_view(s, index, "1" if true.get(s.name) == s else "0") for s in cached]
        return sorted(views, key=lambda view: (view.metadata.created_at, view.name))

    def gangs(self, state: State, index: int) -> tuple[Gang, ...]:
        """The gangs that really run on the node."""
        there = any(pod.node == index and not pod.leaving for pod in state.pods)
        if not (self.setting.gang and there):
            return ()
        return (Gang(kind="JobSet", namespace="team", name="train", topology_aware=True),)

    def snapshot(self, state: State) -> FleetSnapshot:
        nodes = {NODES[i]: view for i in (0, 1) if (view := self.cached_node(state, i))}
        return FleetSnapshot(
            now=float(NOW),
            policy=self.policy(state),
            nodes=nodes,
            healths={
                NODES[i]: health_view(b.health, b.node.uid, i)
                for i, b in enumerate(state.bundles)
                if b.node is not None
            },
            quarantines={s.name: s for i in (0, 1) for s in self.cached_sessions(state, i)},
            pauses={"stop": PAUSE} if state.paused else {},
            observing_since=float(NOW + state.took_over.at),
            acting_since=float(NOW + state.took_over.at),
            gangs={
                NODES[i]: gangs
                for i in (0, 1)
                if (gangs := self.gangs_known(state, i)) is not None
            },
        )

    def gangs_known(self, state: State, index: int) -> tuple[Gang, ...] | None:
        """The gangs as the leader knows them; None where it has not read them."""
        known = state.bundles[index].memory.gangs_read or not self.setting.gang
        return self.gangs(state, index) if known else None

    def _assessment(self, state: State) -> FleetAssessment:
        seen = tuple((b.node, b.health, b.sessions, b.lagging) for b in state.bundles)
        gangs = tuple(self.gangs_known(state, i) for i in (0, 1))
        key = (seen, state.paused, state.skips, gangs, state.took_over)
        if key not in self._judged:
            self._judged[key] = self.setting.judge(self.snapshot(state))
        return self._judged[key]
