"""The real session and fleet rules over the past, in virtual time, under one policy.

Faults begin and end when they did, people act as they did, drains take as long as they took; every
decision is `rules.session.decide` on what `rules.fleet.turns` allows. Between two events only the
rules' own clocks pass, so a month takes seconds.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rules.api import writes as d
from rules.api.health import HealthStatus, PublisherPod
from rules.api.metadata import ObjectMeta
from rules.api.nodes import FreshNode, HealthView, NodeView, QuarantineView
from rules.api.quarantine import Phase, QuarantineSpec, QuarantineStatus, ReleaseRequest
from rules.api.timestamps import format_time, parse_time
from rules.backtest.archive import node_object
from rules.backtest.objects import agent_of, as_it_was, patched
from rules.backtest.past import Past, PastFault, PersonAct
from rules.drain.gangs import Gang
from rules.drain.memory import DrainMemory
from rules.drain.plan import DrainPlan
from rules.fleet.remembered import FleetMemory
from rules.fleet.turns import FleetVerdict, judge_fleet
from rules.policy.policy import Policy, Repair
from rules.session.causes import DELETED_BY
from rules.session.decide import decide
from rules.session.observation import Permit, is_open, observe
from rules.session.snapshot import FleetSnapshot

ROUNDS: Final = 12
RESTS_S: Final[Mapping[str, float]] = {
    Phase.PENDING: 3600.0,
    Phase.MARKED: 3600.0,
    Phase.QUARANTINED: 3600.0,
}
"""Phases that only events or a permit end are decided so rarely, the others once a minute."""
_ASKS: Final = frozenset({"", Phase.PENDING, Phase.MARKED})
"""Phases in which a session goes by what the fleet rules allow."""
MATE_S: Final = 3600.0
"""A real session of the node that began within this time tells how long its drain takes."""


@dataclass(slots=True)
class Replayed:
    """What one policy did."""

    policy: Policy
    sessions: dict[str, QuarantineView] = field(default_factory=dict)
    waits: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that a session waited to begin, by its name and what was in the way."""
    said: dict[tuple[str, str], str] = field(default_factory=dict)
    """One sentence for each of these."""


class RestlessReplayError(RuntimeError):
    """The rules do not come to rest on one node: a fault of ours."""


class Engine:
    """One policy over one past."""

    def __init__(self, past: Past, policy: Policy) -> None:
        self._past = past
        # What repairs would have done is not on record: faults end when they ended.
        self._policy = msgspec.structs.replace(policy, repair=Repair())
        self._now = past.began
        self._nodes = {n.name: as_it_was(node_object(n)) for n in past.nodes}
        self._boots: dict[str, int] = dict.fromkeys(self._nodes, 0)
        self._agents = {f"agent-{n}": agent_of(n) for n in self._nodes}
        self._faults: dict[str, dict[str, PastFault]] = defaultdict(dict)
        self._healths: dict[str, HealthView] = {}
        self._gangs: dict[str, tuple[Gang, ...]] = dict.fromkeys(self._nodes, ())
        self._of_node: dict[str, list[str]] = defaultdict(list)
        self._verdict = FleetVerdict()
        self._memory = FleetMemory()
        self._dirty = True
        """Something that the fleet rules read has changed since they were asked."""
        self._heap: list[tuple[float, str]] = []
        self._wakes: dict[str, float] = {}
        self._events: dict[float, list[PastFault | PersonAct | str]] = defaultdict(list)
        self._used: dict[str, Permit | None] = {}
        """The permit that each session was decided on last."""
        self._waiting: dict[str, tuple[str, float]] = {}
        self._serial = 1
        self.result = Replayed(policy=policy)

    def run(self) -> Replayed:
        """From the first event to the end of the records."""
        for fault in self._past.faults:
            self._events[fault.began].append(fault)
            if fault.ended is not None and fault.ended > fault.began:
                self._events[fault.ended].append(fault)
        for act in self._past.acts:
            self._events[act.at].append(act)
        for at, node in self._past.reboots:
            self._events[at].append(node)
        for at in self._events:
            heapq.heappush(self._heap, (at, ""))
        while self._heap and self._heap[0][0] <= self._past.ended:
            self._now = self._heap[0][0]
            due: set[str] = set()
            while self._heap and self._heap[0][0] <= self._now:
                at, node = heapq.heappop(self._heap)
                if not node:
                    self._dirty = True
                elif self._wakes.get(node) == at:
                    due.add(node)
            due |= self._happened(self._events.pop(self._now, []))
            self._settle(due)
        self._now = self._past.ended
        for name in list(self._waiting):
            self._waited(name, "", "")
        return self.result

    # ------------------------------------------------------------------ what happens

    def _happened(self, events: list[PastFault | PersonAct | str]) -> set[str]:
        due = set()
        for event in events:
            if isinstance(event, str):
                self._reboot(event)
                due.add(event)
                continue
            if event.node not in self._nodes:
                continue
            due.add(event.node)
            if isinstance(event, PastFault):
                self._faults[event.node][event.incident.id] = event
            else:
                self._act(event)
        for name in due & self._nodes.keys():
            self._publish(name)
        return due

    def _reboot(self, name: str) -> None:
        if name in self._nodes:
            self._boots[name] += 1
            raw = msgspec.to_builtins(self._nodes[name])
            raw["status"]["nodeInfo"] = {"bootID": self._boot(name)}
            self._nodes[name] = msgspec.convert(raw, NodeView)

    def _boot(self, name: str) -> str:
        return f"boot-{self._boots[name]}"

    def _publish(self, name: str) -> None:
        incidents = []
        for fault in self._faults[name].values():
            active = fault.ended is None or fault.ended > self._now
            closed = "" if active or fault.ended is None else format_time(fault.ended)
            incidents.append(
                msgspec.structs.replace(fault.incident, active=active, closed_at=closed)
            )
        versions = self._past.versions.get(name, ("", "", ""))
        status = HealthStatus(
            publisher=PublisherPod(pod=f"gpuward/{name}", pod_uid=f"agent-{name}"),
            node_uid=self._nodes[name].uid,
            boot_id=self._boot(name),
            observed_at=format_time(self._now),
            driver_version=versions[0],
            agent_version=versions[1],
            rules_version=versions[2],
            health="Unhealthy" if any(i.active for i in incidents) else "Healthy",
            incidents=tuple(incidents),
        )
        self._healths[name] = HealthView(metadata=ObjectMeta(name=name), status=status)

    def _act(self, act: PersonAct) -> None:
        if act.asks is not None:
            self._create(act.name or f"person-{act.node}-{act.at:.0f}", act.asks)
            return
        for session in self._open(act.node):
            by = DELETED_BY if act.ends == Phase.CANCELLED else act.by or "a person"
            spec = msgspec.structs.replace(session.spec, release=ReleaseRequest(by=by))
            self._store(msgspec.structs.replace(session, spec=spec))

    # ------------------------------------------------------------------ decisions

    def _settle(self, due: set[str]) -> None:
        """Everything that follows at this moment: fleet, nodes, and again while something
        moved.
        """
        for _ in range(ROUNDS):
            if self._dirty:
                self._judge()
                permits = self._verdict.permits
                for name, session in self.result.sessions.items():
                    if session.status.phase in _ASKS and self._used.get(name) != permits.get(name):
                        due.add(session.spec.node_name)
            if not due:
                return
            moved = [name for name in sorted(due) if self._look(name)]
            due = set()
            if not moved:
                return

    def _look(self, name: str) -> bool:
        """Do all that can be done about a node now; whether anything was."""
        moved = False
        for _ in range(ROUNDS):
            wrote = False
            sessions: list[QuarantineView] | list[None] = self._open(name) or [None]
            for session in sessions:
                decision = self._decide(name, session)
                for write in decision.writes:
                    wrote = self._apply(write) or wrote
                self._follow(name, session, decision)
            if not wrote:
                return moved
            moved = True
        raise RestlessReplayError(f"{name} does not come to rest at {format_time(self._now)}")

    def _decide(self, name: str, session: QuarantineView | None) -> d.Decision:
        if self._dirty and session is not None and session.status.phase in _ASKS:
            self._judge()
        snapshot = self._snapshot()
        permit = self._verdict.permits.get(session.name, Permit()) if session else Permit()
        if session is not None:
            self._used[session.name] = self._verdict.permits.get(session.name)
        fresh: NodeView | None = None
        decision = d.Decision(step="")
        for _ in range(2):
            seen = observe(
                snapshot,
                name,
                permit=permit,
                sessions={name: self._sessions(name)},
                session=session,
                node=fresh,
                plan=self._plan(session) if session is not None else None,
                last_active_at=self._now,
            )
            decision = decide(session, seen, self._now, self._policy)
            if not decision.needs_fresh_node or name not in self._nodes:
                break
            fresh = msgspec.convert(msgspec.to_builtins(self._nodes[name]), FreshNode)
        return decision

    def _plan(self, session: QuarantineView) -> DrainPlan | None:
        """The drain as it went then, or at once: two equal lists, `settle` apart."""
        status = session.status
        if status.phase == Phase.MARKED:
            return DrainPlan(memory=DrainMemory(), probed=True)
        if status.phase != Phase.DRAINING:
            return None
        ends = self._drained_at(session)
        return DrainPlan(memory=DrainMemory(), drained=self._now >= ends, wake_at=ends)

    def _drained_at(self, session: QuarantineView) -> float:
        began = _since(session) or self._now
        took: float = self._policy.drain.settle_s
        near = [
            real
            for real in self._past.sessions
            if real.node == session.spec.node_name
            and real.drain_s is not None
            and abs(real.opened - session.metadata.created_at) <= MATE_S
        ]
        if near:
            closest = min(near, key=lambda r: abs(r.opened - session.metadata.created_at))
            took = closest.drain_s or 0.0
        return began + took

    def _follow(self, name: str, session: QuarantineView | None, decision: d.Decision) -> None:
        if decision.wake_at is not None:
            status = decision.status
            rest = RESTS_S.get(status.phase if status is not None else "", 0.0)
            if status is not None and status.phase == Phase.DRAINING and session is not None:
                current = self.result.sessions[session.name]
                if current.status.phase == Phase.DRAINING:
                    rest = max(0.001, self._drained_at(current) - self._now)
            wake = decision.wake_at if not rest else self._now + rest
            self._wake(name, max(wake, self._now + 0.001))
        if session is None or decision.status is None:
            return
        pending = decision.status.phase == Phase.PENDING
        reason = str(decision.blocked_by or "") if pending else ""
        self._waited(session.name, reason, decision.because)

    def _wake(self, name: str, at: float) -> None:
        if self._wakes.get(name, 0.0) <= self._now or at < self._wakes[name]:
            self._wakes[name] = at
            heapq.heappush(self._heap, (at, name))

    def _waited(self, name: str, reason: str, why: str) -> None:
        """Book what a session has waited for up to now."""
        before, since = self._waiting.pop(name, ("", self._now))
        if before:
            self.result.waits[name, before] += self._now - since
        if reason:
            self._waiting[name] = (reason, self._now)
            self.result.said[name, reason] = why

    # ------------------------------------------------------------------ objects

    def _snapshot(self) -> FleetSnapshot:
        return FleetSnapshot(
            now=self._now,
            policy=self._policy,
            nodes=self._nodes,
            healths=self._healths,
            quarantines=self.result.sessions,
            agents=self._agents,
            observing_since=self._past.began - 86_400.0,
            acting_since=self._past.began - 86_400.0,
            gangs=self._gangs,
        )

    def _open(self, node: str) -> list[QuarantineView]:
        return [session for session in self._sessions(node) if is_open(session)]

    def _sessions(self, node: str) -> list[QuarantineView]:
        """All of the node, oldest first."""
        found = [self.result.sessions[name] for name in self._of_node.get(node, ())]
        return sorted(found, key=lambda s: (s.metadata.created_at, s.name))

    def _judge(self) -> None:
        self._dirty = False
        self._verdict = judge_fleet(self._snapshot(), self._memory)

    def _ask_again(self) -> None:
        """When the fleet rules' windows over what just happened end."""
        budget = self._policy.budget
        windows = (budget.per_reason.window_s, budget.max_new.window_s, budget.cooldown_s)
        for after in (*windows, budget.max_new.window_s + budget.cooldown_s):
            # Whole seconds are compared: a moment later it is certainly over.
            heapq.heappush(self._heap, (self._now + after + 1.0, ""))

    def _apply(self, write: d.Write) -> bool:
        """Whether it is one that the next decision waits for."""
        match write:
            case d.CreateSession():
                self._create(write.name, write.spec)
            case d.PatchSessionSpec():
                self._patch_spec(write)
            case d.WriteSessionStatus():
                session = self.result.sessions[write.name]
                self._store(msgspec.structs.replace(session, status=write.status))
            case d.MarkNode() | d.UnmarkNode() | d.RelabelNode():
                self._patch_node(write.node, write.patch)
            case _:
                return False
        return True

    def _create(self, name: str, spec: QuarantineSpec) -> None:
        meta = ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="1",
            creation_timestamp=format_time(self._now),
        )
        self._store(QuarantineView(metadata=meta, spec=spec, status=QuarantineStatus()))

    def _patch_spec(self, write: d.PatchSessionSpec) -> None:
        session = self.result.sessions[write.name]
        changes = {
            "node_uid": write.node_uid,
            "boot_id": write.boot_id,
            "causes": write.causes,
            "level": write.level,
        }
        given = {key: value for key, value in changes.items() if value is not None}
        spec = msgspec.structs.replace(session.spec, **given)
        self._store(msgspec.structs.replace(session, spec=spec))

    def _store(self, session: QuarantineView) -> None:
        self._serial += 1
        self._dirty = True
        before = self.result.sessions.get(session.name)
        if before is None:
            self._of_node[session.spec.node_name].append(session.name)
        if before is None or before.status.phase != session.status.phase:
            self._ask_again()
        meta = msgspec.structs.replace(session.metadata, resource_version=str(self._serial))
        self.result.sessions[session.name] = msgspec.structs.replace(session, metadata=meta)

    def _patch_node(self, name: str, patch: Mapping[str, Any]) -> None:
        if name in self._nodes:
            self._serial += 1
            self._dirty = True
            self._nodes[name] = patched(self._nodes[name], patch, self._serial)


def _since(session: QuarantineView) -> float | None:
    return parse_time(session.status.phase_since)


def replay(past: Past, policy: Policy) -> Replayed:
    """What `policy` would have done."""
    return Engine(past, policy).run()
