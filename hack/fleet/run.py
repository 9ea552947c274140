"""Play a fleet through its faults under a policy, in virtual time.

Agents are `hack.fleet.machine`, the remediator is `rules.fleet.forecast`: what it foresees at a
moment is what happens. Nodes have no pods. Operators repair a node that is quarantined and empty.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hack.fleet.kinds import HEALTHY, Kind
from hack.fleet.machine import DRIVER, GPUS, Machine
from hack.fleet.score import Score
from hack.fleet.signs import SIGNS
from hack.fleet.year import DAY_S, Fault, Plants, draw_year
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import (
    AgentPod,
    HealthView,
    NodeCondition,
    NodeInfo,
    NodeStatus,
    NodeView,
    QuarantineView,
)
from rules.api.quarantine import Phase
from rules.api.timestamps import format_time
from rules.drain.memory import DrainMemory
from rules.drain.plan import DrainPlan
from rules.fleet.forecast import Forecast
from rules.fleet.remembered import FleetMemory
from rules.policy.policy import Policy
from rules.session.observation import is_open
from rules.session.snapshot import FleetSnapshot

BEGIN: Final = 1_790_000_000.0
RACK_SIZE: Final = 16
_POLLS: Final = 24
"""Polls after a fault or a repair, 15 s apart: more than the slowest check looks at."""
_HOST_POLLS: Final = 8
"""Further ones a minute apart: a network port has to stay down for four."""
_STEP_S: Final = 60.0
"""How often the fleet is decided while a session moves."""
_WAIT_S: Final = 1800.0
"""The same while all sessions wait for a turn or a repair."""
_WAITING: Final = frozenset({Phase.PENDING, Phase.MARKED, Phase.QUARANTINED})
_NOTICED_S: Final = 6 * 3600.0
"""When operators take a node whose fault the policy does not act on (assumed)."""
_EMPTY: Final = DrainPlan(memory=DrainMemory(), drained=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is played."""

    nodes: int
    days: float
    seed: int
    policy: Policy
    plants: Plants | None = None


class _Node:
    """One node: its machine, its fault, and since when it is taken."""

    def __init__(self, number: int) -> None:
        self.name = f"node-{number:04d}"
        self.machine = Machine(
            number=number, name=self.name, uid=f"uid-{self.name}", made_at=BEGIN
        )
        self.fault: Fault | None = None
        self.began_at = 0.0
        self.taken_at: float | None = None
        self.under_repair = False

    def view(self) -> NodeView:
        """The Node at the beginning."""
        labels = {
            "gpuward.io/gpus": str(GPUS),
            "gpuward.io/driver": DRIVER,
            "topology.kubernetes.io/rack": f"rack-{self.machine.number // RACK_SIZE}",
        }
        up = NodeCondition(
            type="Ready", status="True", last_transition_time=format_time(BEGIN - DAY_S)
        )
        made = format_time(BEGIN - 30 * DAY_S)
        return NodeView(
            metadata=ObjectMeta(
                name=self.name,
                uid=self.machine.uid,
                resource_version="1",
                creation_timestamp=made,
                labels=labels,
            ),
            status=NodeStatus(conditions=(up,), node_info=NodeInfo(boot_id=self.machine.boot_id)),
        )


class Fleet:
    """All nodes, their sessions and the clock."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.score = Score()
        self._nodes = [_Node(number) for number in range(run.nodes)]
        self._by_name = {node.name: node for node in self._nodes}
        self._views = {node.name: node.view() for node in self._nodes}
        self._healths: dict[str, HealthView] = {}
        self._sessions: dict[str, QuarantineView] = {}
        self._memory = FleetMemory()
        self.now = BEGIN
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._step_at = 0.0

    def play(self) -> Score:
        """Play all of it."""
        year = draw_year(
            random.Random(self._run.seed), self._run.nodes, self._run.days, self._run.plants
        )
        for fault in year:
            self._at(BEGIN + fault.start, lambda fault=fault: self._begins(fault))  # type: ignore[misc]
        end = BEGIN + self._run.days * DAY_S
        while self._queue and self._queue[0][0] < end:
            self.now, _, event = heapq.heappop(self._queue)
            event()
        for node in self._nodes:
            if node.taken_at is not None:
                self.score.out_s += end - node.taken_at
        self.score.ended.update(str(s.status.phase) for s in self._sessions.values())
        return self.score

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (max(when, self.now), self._serial, event))

    # ------------------------------------------------------------------ nodes

    def _begins(self, fault: Fault) -> None:
        node = self._nodes[fault.node]
        if node.fault is not None or node.taken_at is not None:
            return
        node.fault, node.began_at = fault, self.now
        self.score.faults[fault.kind] += 1
        node.machine.show(SIGNS[fault.kind], fault.gpu, self.now)
        self._polls(node)
        if fault.kind is Kind.BAD_DRIVER:
            self._at(self.now + fault.hours * 3600.0, lambda: self._repaired(node))
        else:
            self._at(self.now + _NOTICED_S, lambda: self._noticed(node, fault))

    def _polls(self, node: _Node) -> None:
        each = [15.0 * n for n in range(1, _POLLS + 1)]
        each += [each[-1] + 60.0 * n for n in range(1, _HOST_POLLS + 1)]
        for after in each:
            self._at(self.now + after, lambda: self._poll(node))

    def _poll(self, node: _Node) -> None:
        node.machine.poll(self.now)
        if node.machine.publish(self.now) and node.machine.published is not None:
            meta = TimedMeta(name=node.name)
            status = node.machine.published.status
            self._healths[node.name] = HealthView(metadata=meta, status=status)
            self._step_after(1.0)

    def _noticed(self, node: _Node, fault: Fault) -> None:
        """The policy did not act on it; operators repair it without a session."""
        if node.fault is fault and not node.under_repair and node.taken_at is None:
            self._hand_over(node)

    def _hand_over(self, node: _Node) -> None:
        if node.under_repair:
            return
        node.under_repair = True
        hours = node.fault.hours if node.fault is not None else 1.0
        self._at(self.now + hours * 3600.0, lambda: self._repaired(node))

    def _repaired(self, node: _Node) -> None:
        node.fault, node.under_repair = None, False
        node.machine.repaired(self.now)
        old = self._views[node.name]
        info = NodeInfo(boot_id=node.machine.boot_id)
        status = NodeStatus(conditions=old.status.conditions, node_info=info)
        self._views[node.name] = NodeView(metadata=old.metadata, spec=old.spec, status=status)
        self._polls(node)

    # ------------------------------------------------------------------ the remediator

    def _step(self) -> None:
        """Everything that the remediator does at this moment."""
        forecast = Forecast(self._snapshot(), memory=self._memory, drained=_EMPTY)
        forecast.judged({})
        after = forecast.snapshot
        self._views, self._sessions = dict(after.nodes), dict(after.quarantines)
        self._count()
        opened = [s for s in self._sessions.values() if is_open(s)]
        if not opened:
            return
        for session in opened:
            if session.status.phase == Phase.QUARANTINED:
                self._hand_over(self._by_name[session.spec.node_name])
        moving = any(s.status.phase not in _WAITING for s in opened)
        self._step_after(_STEP_S if moving else _WAIT_S)

    def _step_after(self, seconds: float) -> None:
        due = self.now + seconds
        if self._step_at <= self.now or due < self._step_at:
            self._step_at = due
            self._at(due, lambda: self._due(due))

    def _due(self, when: float) -> None:
        if self._step_at == when:
            self._step()

    def _snapshot(self) -> FleetSnapshot:
        agents = {
            node.machine.pod_uid: AgentPod(
                uid=node.machine.pod_uid,
                node=node.name,
                ready=True,
                ready_changed_at=BEGIN - DAY_S,
            )
            for node in self._nodes
        }
        return FleetSnapshot(
            now=self.now,
            policy=self._run.policy,
            nodes=self._views,
            healths=self._healths,
            quarantines=self._sessions,
            agents=agents,
            observing_since=BEGIN,
            acting_since=BEGIN,
        )

    def _count(self) -> None:
        taken = {
            name
            for name, view in self._views.items()
            if any(taint.key == "gpuward.io/quarantine" for taint in view.spec.taints)
        }
        self.score.most_out = max(self.score.most_out, len(taken))
        for node in self._nodes:
            if node.name in taken and node.taken_at is None:
                node.taken_at = self.now
                kind = node.fault.kind if node.fault is not None else None
                self.score.taken(kind, self.now - node.began_at)
                if kind in HEALTHY:
                    self._hand_over(node)
            elif node.name not in taken and node.taken_at is not None:
                self.score.out_s += self.now - node.taken_at
                node.taken_at = None
