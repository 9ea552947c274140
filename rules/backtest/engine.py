"""The real session and fleet rules over the past, in virtual time, under one policy.

Faults begin and end when they did, people act as they did, drains and repair steps take as long as
they took; every decision is `rules.session.decide` on what `rules.fleet.turns` allows. Between two
events only the rules' own clocks pass, so a month takes seconds.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from rules.api import writes as d
from rules.api.metadata import ObjectMeta
from rules.api.nodes import FreshNode, QuarantineView
from rules.api.quarantine import Phase, QuarantineSpec, QuarantineStatus, ReleaseRequest
from rules.api.repair.writes import CreateTestJob, SetRepairCondition
from rules.api.timestamps import format_time, utc
from rules.backtest.acts import PersonAct
from rules.backtest.looks import Looks
from rules.backtest.outcomes import stood_in
from rules.backtest.past import Past
from rules.backtest.repairs import Repairs
from rules.backtest.said import PastSaid, heard_by
from rules.backtest.stage import Stage
from rules.drain.gangs import Gang
from rules.fleet.at_hand import decide_at_hand
from rules.fleet.remembered import FleetMemory
from rules.fleet.turns import FleetVerdict, judge_fleet
from rules.policy.policy import Policy, with_installed
from rules.session.causes import DELETED_BY
from rules.session.observation import NodeObservation, Permit, is_open, observe
from rules.session.snapshot import FleetSnapshot

ROUNDS: Final = 100
"""Passes at one moment: a budget lets nodes in one by one."""
RESTS_S: Final[Mapping[str, float]] = {
    Phase.PENDING: 3600.0,
    Phase.MARKED: 3600.0,
    Phase.QUARANTINED: 3600.0,
}
"""Phases that only events or a permit end are decided so rarely, the others once a minute."""
_SOON_S: Final = 59.0
"""A decision that wants to be made again sooner than every minute waits for something."""
_ASKS: Final = frozenset({"", Phase.PENDING, Phase.MARKED})
"""Phases in which a session goes by what the fleet rules allow."""
_REPAIRED: Final = frozenset({Phase.QUARANTINED, Phase.REPAIRING})
"""Phases in which it does where the policy repairs."""


@dataclass(slots=True)
class Replayed:
    """What one policy did."""

    policy: Policy
    sessions: dict[str, QuarantineView] = field(default_factory=dict)
    waits: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that a session waited to begin or to be repaired, by its name and what was in the
    way."""
    waited_since: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each of these began for the first time."""
    said: dict[tuple[str, str], str] = field(default_factory=dict)
    """One sentence for each of these."""
    unheard: list[PastSaid] = field(default_factory=list)
    """What others said that this policy has no trigger for."""
    guessed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By session, the steps and tests of whose outcome nothing is on record."""


class RestlessReplayError(RuntimeError):
    """The rules do not come to rest on one node: a fault of ours."""


class Engine:
    """One policy over one past."""

    def __init__(self, past: Past, policy: Policy) -> None:
        self._past = past
        self._policy = stood_in(with_installed(policy, builtin=past.builtin))
        self._stage = Stage(past, self._policy)
        self._gangs: dict[str, tuple[Gang, ...]] = {n.name: () for n in past.nodes}
        self._of_node: dict[str, list[str]] = defaultdict(list)
        self._verdict = FleetVerdict()
        self._memory = FleetMemory()
        self._dirty = True
        """Something that the fleet rules read has changed since they were asked."""
        self._heap: list[tuple[float, str]] = []
        self._wakes: dict[str, float] = {}
        self._events: dict[float, list[tuple[str, Callable[[], None]]]] = defaultdict(list)
        self._used: dict[str, Permit | None] = {}
        """The permit that each session was decided on last."""
        self._waiting: dict[str, tuple[str, float]] = {}
        self._serial = 1
        self.result = Replayed(policy=policy)
        self._looks = Looks(past, self._policy, self._stage)
        self._repairs = Repairs(past, self._stage, self._at, self.result.guessed)
        repairs = self._policy.repair.mode != "Off"
        self._turned = _ASKS | _REPAIRED if repairs else _ASKS

    @property
    def _now(self) -> float:
        return self._stage.now

    def run(self) -> Replayed:
        """From the first event to the end of the records."""
        self._script()
        while self._heap and self._heap[0][0] <= self._past.ended:
            self._stage.now = self._heap[0][0]
            due: set[str] = set()
            while self._heap and self._heap[0][0] <= self._now:
                at, node = heapq.heappop(self._heap)
                if not node:
                    self._dirty = True
                elif self._wakes.get(node) == at:
                    due.add(node)
            for node, happens in self._events.pop(self._now, []):
                happens()
                due.add(node)
            self._settle(due)
        self._stage.now = self._past.ended
        for name in list(self._waiting):
            self._waited(name, "", "")
        return self.result

    # ------------------------------------------------------------------ what happens

    def _script(self) -> None:
        """Everything that happens whatever the policy does."""
        stage, past = self._stage, self._past
        for fault in past.faults:
            # Records count whole seconds: what begins within one has no order.
            self._at(math.ceil(fault.began), fault.node, partial(stage.fault, fault))
            if fault.ended is not None and fault.ended > fault.began:
                self._at(fault.ended, fault.node, partial(stage.fault, fault))
        for said in past.said:
            self._hears(said)
        for act in past.acts:
            self._at(act.at, act.node, partial(self._act, act))
        for at, node in past.reboots:
            self._at(at, node, partial(self._boots, node))
        created = {node.name: node.created for node in past.nodes}
        for went in past.went:
            self._at(went.at, went.node, partial(stage.goes, went.node))
            back = created.get(went.node)
            if back is not None:
                at = max(back, went.at + 1.0)
                self._at(at, went.node, partial(stage.comes, went.node))

    def _at(self, at: float, node: str, happens: Callable[[], None]) -> None:
        """Let it happen then; the node is looked at after it."""
        if at not in self._events:
            heapq.heappush(self._heap, (at, ""))
        self._events[at].append((node, happens))

    def _hears(self, said: PastSaid) -> None:
        trigger = heard_by(said, self._policy)
        if trigger is None:
            self.result.unheard.append(said)
            return
        stage = self._stage
        self._at(said.began, said.node, lambda: stage.says(said, trigger, stands=True))
        if said.ended is not None and said.ended > said.began:
            self._at(said.ended, said.node, lambda: stage.says(said, trigger, stands=False))

    def _boots(self, name: str) -> None:
        self._stage.boots(name)
        self._stage.publish(name)

    def _act(self, act: PersonAct) -> None:
        if act.asks is not None:
            if not act.idle or self._policy.validate.of_idle_nodes() is not None:
                self._create(act.name or f"person-{act.node}-{act.at:.0f}", act.asks)
            return
        for session in self._open(act.node):
            spec = session.spec
            if act.lets_go is not None:
                spec = msgspec.structs.replace(spec, repair=act.lets_go)
            elif act.holds:
                spec = msgspec.structs.replace(spec, hold=True)
            else:
                by = DELETED_BY if act.ends == Phase.CANCELLED else act.by or "a person"
                spec = msgspec.structs.replace(spec, release=ReleaseRequest(by=by))
            self._store(msgspec.structs.replace(session, spec=spec))

    # ------------------------------------------------------------------ decisions

    def _settle(self, due: set[str]) -> None:
        """Everything that follows at this moment, one decision per node and pass.

        The fleet is judged between two passes, on all that the last one wrote: faults that come
        together are one cause, whichever node is looked at first.
        """
        for _ in range(ROUNDS):
            if self._dirty:
                self._judge()
                permits = self._verdict.permits
                for name, session in self.result.sessions.items():
                    turned = session.status.phase in self._turned
                    if turned and self._used.get(name) != permits.get(name):
                        due.add(session.spec.node_name)
            due = {name for name in sorted(due) if self._look(name)}
            if not due and not self._dirty:
                return
        restless = ", ".join(sorted(due)[:5]) or "the fleet"
        raise RestlessReplayError(f"{restless} does not come to rest at {utc(self._now)}")

    def _look(self, name: str) -> bool:
        """Decide once on each session of a node; whether anything was written."""
        wrote = False
        sessions: list[QuarantineView] | list[None] = self._open(name) or [None]
        for session in sessions:
            decision = self._decide(name, session)
            for write in decision.writes:
                wrote = self._apply(write) or wrote
            self._follow(name, session, decision)
        return wrote

    def _decide(self, name: str, session: QuarantineView | None) -> d.Decision:
        snapshot = self._snapshot()
        permit = self._verdict.permits.get(session.name, Permit()) if session else Permit()
        if session is not None:
            self._used[session.name] = self._verdict.permits.get(session.name)

        def look(read: FreshNode | None) -> NodeObservation:
            return observe(
                snapshot,
                name,
                permit=permit,
                sessions={name: self._sessions(name)},
                session=session,
                node=read,
                plan=self._looks.plan(session) if session is not None else None,
                last_active_at=self._now,
                job=self._looks.job(session) if session is not None else None,
                evidence=self._looks.evidence(session) if session is not None else None,
            )

        node = self._stage.nodes.get(name)
        return decide_at_hand(session, look, node, self._now, self._policy)

    def _follow(self, name: str, session: QuarantineView | None, decision: d.Decision) -> None:
        status = decision.status
        again_at = decision.wake_at
        if session is not None:
            current = self.result.sessions[session.name]
            sooner = self._looks.follow(current, decision)
            draining = current.status.phase == Phase.DRAINING
            wakes = (sooner,) if draining else (again_at, sooner)
            again_at = min((at for at in wakes if at is not None), default=None)
        if again_at is not None:
            phase = status.phase if status is not None else ""
            rest = RESTS_S.get(phase, 0.0) if again_at - self._now >= _SOON_S else 0.0
            self._wake(name, max(self._now + rest if rest else again_at, self._now + 0.001))
        if session is None or status is None:
            return
        waits = status.phase == Phase.PENDING or (
            self._turned is not _ASKS and status.phase in _REPAIRED
        )
        self._waited(
            session.name, str(decision.blocked_by or "") if waits else "", decision.because
        )

    def _wake(self, name: str, at: float) -> None:
        if self._wakes.get(name, 0.0) <= self._now or at < self._wakes[name]:
            self._wakes[name] = at
            heapq.heappush(self._heap, (at, name))

    def _waited(self, name: str, reason: str, why: str) -> None:
        """Book what a session has waited for up to now."""
        before, since = self._waiting.pop(name, ("", self._now))
        if before:
            self.result.waits[name, before] += self._now - since
            self.result.waited_since.setdefault((name, before), since)
        if reason:
            self._waiting[name] = (reason, self._now)
            self.result.said[name, reason] = why

    # ------------------------------------------------------------------ objects

    def _snapshot(self) -> FleetSnapshot:
        return FleetSnapshot(
            now=self._now,
            policy=self._policy,
            nodes=self._stage.nodes,
            healths=self._stage.healths,
            quarantines=self.result.sessions,
            agents=self._stage.agents,
            external_seen=self._stage.external_seen,
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
                self._repairs.recorded(self.result.sessions[write.name])
            case d.MarkNode() | d.UnmarkNode() | d.RelabelNode():
                self._dirty = True
                self._stage.patch(write.node, write.patch)
            case SetRepairCondition():
                self._stage.asked_by(write)
                if write.asks:
                    self._repairs.asked(self.result.sessions[write.session])
            case CreateTestJob():
                self._repairs.tested(self.result.sessions[write.session], write.name)
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


def replay(past: Past, policy: Policy) -> Replayed:
    """What `policy` would have done."""
    return Engine(past, policy).run()
