"""What every view starts from: the fleet at one moment, the fleet rules' verdict on it, and who
asks.

`live` makes it from the remediator's caches; tests make it from values. The maps in it are copies,
so that a page may be made in another thread while the watches go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from remediator.view.grouping import GroupKeys
from remediator.view.shapes import ReplicaShown
from rules.api.nodes import AgentPod, HealthView, NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.timestamps import format_time, parse_time
from rules.fleet.common import CommonCause
from rules.fleet.health_now import HealthNow, health_now, health_unread
from rules.fleet.turns import FleetVerdict
from rules.session.observation import is_open
from rules.session.snapshot import FleetSnapshot

_AGENTS_ON: Final = "agents by node"
"""In `FleetSnapshot.memo`, among names of nodes: none has a blank in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The fleet as pages show it."""

    snapshot: FleetSnapshot
    verdict: FleetVerdict = field(default_factory=FleetVerdict)
    common: tuple[CommonCause, ...] = ()
    """What nodes with the same fault share, of the nodes that the verdict counted."""
    identity: str = ""
    leading: bool = False
    problem: str = ""
    leader_problem: str = ""
    policy_problem: str = ""
    keys: GroupKeys = field(default_factory=GroupKeys)
    by_node: Mapping[str, tuple[QuarantineView, ...]] = field(default_factory=dict)
    """Sessions by node, oldest first."""
    read: Mapping[str, HealthView] = field(default_factory=dict)
    """Verdicts of healthy nodes that were read because somebody looks at them."""

    @property
    def now(self) -> float:
        """The moment it shows, on the API server's clock."""
        return self.snapshot.now

    def replica(self) -> ReplicaShown:
        """Who answers."""
        return ReplicaShown(
            identity=self.identity,
            leading=self.leading,
            mode=str(self.snapshot.policy.mode),
            problem=self.problem,
            leader_problem="" if self.problem else self.leader_problem,
            policy_problem=self.policy_problem,
            at=format_time(self.now),
        )

    def health(self, node: str) -> HealthView | None:
        """The verdict of a node that is sick or has a session."""
        return self.snapshot.healths.get(node)

    def known(self, node: str) -> HealthView | None:
        """The verdict of a node, watched or read."""
        return self.health(node) or self.read.get(node)

    def health_now(self, node: NodeView) -> HealthNow:
        """How the node's GPUs are, by its verdict where that was read."""
        verdict = self.known(node.name)
        if verdict is not None:
            return health_now(node, verdict, self.snapshot.agents, self.now)
        return health_unread(node, self._agents_on(node.name))

    def _agents_on(self, node: str) -> Sequence[AgentPod]:
        """The agents' pods on one node; indexed once for all nodes of a page."""
        index: dict[str, list[AgentPod]] | None = self.snapshot.memo.get(_AGENTS_ON)
        if index is None:
            index = {}
            for pod in self.snapshot.agents.values():
                index.setdefault(pod.node, []).append(pod)
            self.snapshot.memo[_AGENTS_ON] = index
        return index.get(node, ())

    def open_session(self, node: str) -> QuarantineView | None:
        """The node's session that has not ended."""
        return next((s for s in reversed(self.by_node.get(node, ())) if is_open(s)), None)


def sessions_by_node(
    sessions: Mapping[str, QuarantineView],
) -> dict[str, tuple[QuarantineView, ...]]:
    """Index of all sessions, each node's oldest first."""
    found: dict[str, list[QuarantineView]] = {}
    for session in sorted(sessions.values(), key=lambda s: (s.metadata.created_at, s.name)):
        found.setdefault(session.spec.node_name, []).append(session)
    return {node: tuple(its) for node, its in found.items()}


def phase_of(session: QuarantineView) -> str:
    """A session without status has not begun: it is Pending."""
    return session.status.phase or Phase.PENDING.value


def mode_of(session: QuarantineView) -> str:
    """A session without a mode touches nothing yet."""
    return session.status.mode or Mode.SHADOW.value


def seconds_between(start: str, end: str) -> float | None:
    """Seconds from one time to the other; None where one of them is no time."""
    begun, ended = parse_time(start), parse_time(end)
    return None if begun is None or ended is None else ended - begun
