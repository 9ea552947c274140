"""Holds what judgement remembers, feeds it facts in order, and says what to publish.

Owned by the main loop, used from its thread only. Everything is decided in `rules`; here is only
the order of things: the past is restored before anything is published, and facts that arrived
while it was still being read are judged again on top of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec
from msgspec import structs

from rules.api.health import HealthStatus
from rules.catalog.thresholds import Thresholds
from rules.judge import observation as facts
from rules.judge.judge import Change, judge, next_deadline, wants_another_look, wants_reread
from rules.judge.restore import restore
from rules.judge.state import NodeState, initial

KEPT_LINES = 4096
KEPT_OTHERS = 512
"""Facts kept while the past cannot be read: an API server may be away for an hour. Kernel lines
are said once, everything else is said again."""


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """What judgement is told about the node by configuration."""

    node_name: str
    expected_gpus: int | None
    boot_id: str


class Judgement:
    """The state of the node's health. `wall` gives the time facts are judged at."""

    def __init__(self, who: Who, rules: Thresholds, wall: Callable[[], float]) -> None:
        self._who = who
        self._rules = rules
        self._wall = wall
        self._started_at = wall()
        self.state: NodeState = initial(
            self._started_at,
            boot_id=who.boot_id,
            configured=who.expected_gpus,
            node_name=who.node_name,
        )
        self.knows_past = False
        self._lines: deque[tuple[int, float, facts.Observation]] = deque(maxlen=KEPT_LINES)
        self._others: deque[tuple[int, float, facts.Observation]] = deque(maxlen=KEPT_OTHERS)
        self._taken = 0

    def observe(self, observation: facts.Observation) -> tuple[Change, ...]:
        """Judge one fact; what changed by it."""
        now = self._wall()
        if not self.knows_past:
            said_once = isinstance(
                observation, facts.KernelLineSeen | facts.WorkloadSeen | facts.KernelGap
            )
            kept = self._lines if said_once else self._others
            kept.append((self._taken, now, observation))
            self._taken += 1
        self.state, changes = judge(self.state, observation, now, self._rules)
        return changes

    def remember(self, published: HealthStatus | None) -> None:
        """The past is known: what this node's GPUNodeHealth held, or None. Called once."""
        self.knows_past = True
        if published is not None:
            before = self.state
            self.state = restore(
                published,
                self._started_at,
                boot_id=self._who.boot_id,
                node_uid=self.state.node.uid,
                configured=self._who.expected_gpus,
                node_name=self._who.node_name,
                thresholds=self._rules,
            )
            read = bool(before.node.uid)
            if read and not any(isinstance(kept, facts.NodeSeen) for _, _, kept in self._others):
                # It was read too long ago to be kept, and is said again only when it changes.
                self.state = structs.replace(
                    self.state, node=before.node, stand_down=before.stand_down
                )
            for _, at, observation in sorted(
                (*self._lines, *self._others), key=lambda kept: kept[0]
            ):
                if not _judged_before(published, observation):
                    self.state, _ = judge(self.state, observation, at, self._rules)
        self._lines.clear()
        self._others.clear()

    @property
    def deadline(self) -> float | None:
        """Wall time at which time alone changes something."""
        return next_deadline(self.state)

    @property
    def wants_reread(self) -> bool:
        """Whether NVML should be read again at once."""
        return wants_reread(self.state)

    @property
    def wants_another_look(self) -> bool:
        """Whether another look at everything may change the verdict."""
        return wants_another_look(self.state)


def _judged_before(published: HealthStatus, observation: facts.Observation) -> bool:
    """Whether an earlier run of the agent has judged this kernel line."""
    return (
        isinstance(observation, facts.KernelLineSeen)
        and observation.boot_id == published.cursor.boot_id
        and 0 <= observation.sequence <= published.cursor.kmsg_seq
    )
