"""gpuward itself on the simulated cluster: the real judge, session, fleet, drain and repair rules.

What `remediator.cycle` does with sockets and tasks is done here in virtual time, in the same
order: observe, decide, send, decide again. Nothing of the rules is replaced. Between two changes
the real remediator comes to the same answer each minute; here it does so ever more rarely
(`rests`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.api import writes as d
from rules.api.nodes import FreshNode, NodeCondition, QuarantineView
from rules.api.quarantine import Phase, ReleaseRequest
from rules.api.repair.writes import SetRepairCondition
from rules.api.requests import request
from rules.api.timestamps import format_time
from rules.catalog.reason import Level, level_rank
from rules.drain.memory import announced
from rules.fleet.at_hand import as_read, decide_at_hand
from rules.fleet.remembered import FleetMemory
from rules.fleet.turns import FleetVerdict, judge_fleet
from rules.judge.workload import Workload as Program
from rules.policy.policy import Policy
from rules.repair.ladder import Step
from rules.session.history import outlived
from rules.session.observation import NodeObservation, Permit, is_open, observe, sessions_by_node
from rules.session.recheck import recheck
from rules.session.snapshot import FleetSnapshot
from rules.session.status import is_true
from rules.simulate.cluster.agents import Agents
from rules.simulate.cluster.drains import KnownGangs, SimDrains
from rules.simulate.cluster.objects import merged, newer
from rules.simulate.cluster.records import SimRecords
from rules.simulate.cluster.rests import Rests, turn_of
from rules.simulate.cluster.sessions import Sessions, as_stored
from rules.simulate.cluster.sim_node import SimNode
from rules.simulate.cluster.watched import Watched
from rules.simulate.cluster.world import BEGIN, World

ROUNDS: Final = 12
VERDICT_S: Final = 60.0
"""A verdict on the fleet is not older than this, as in the remediator."""
TURNS_S: Final = 300.0
"""How often the fleet is judged for those who wait though nothing has changed: windows end."""
DAY_S: Final = 86_400.0
STEP_S: Final[dict[str, float]] = {Step.RESET_GPU: 120.0, Step.RESTART_NODE: 1200.0}
"""How long the short steps of a repair take. Source: targets of an operator of 40,000 GPUs."""


class Gpuward:
    """The controller that this project is."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._sessions = Sessions()
        self.quarantines = self._sessions.objects
        self._verdict = FleetVerdict()
        self._memory = FleetMemory()
        self._judged_at = self._turns_at = float("-inf")
        self._dirty = True
        self.opened: list[tuple[str, float]] = []
        """Node and time of every session, in their order."""
        self._seen: set[str] = set()
        """Sessions that were decided before, by name."""
        self.watched = Watched()

    @property
    def _now(self) -> float:
        return self._world.now

    # ------------------------------------------------------------------ what the world tells

    def start(self, world: World) -> None:
        """The fleet is there; every agent runs."""
        self._world = world
        self._rests = Rests(world.clock, self._look)
        self._agents = Agents(world, self._published)
        self.records = SimRecords(
            world.clock, self._agents.healths, lambda name: self._sessions.on(name).values()
        )
        self._drains = SimDrains(
            world,
            self.policy,
            sessions=self.quarantines,
            snapshot=self._snapshot,
            on_record=self._on_record,
            wake=self._wake,
        )
        self._gangs = KnownGangs(world.nodes)
        self._views = {node.name: node.view for node in world.by_number}
        world.clock.after(DAY_S, self._housekeeping)

    def line(self, node: SimNode, text: str, gpu: int, program: Program | None) -> None:
        """The agent reads it."""
        self._agents.line(node, text, gpu, program)

    def reads(self, node: SimNode) -> None:
        """The agent's polls show it."""
        self._agents.reads(node)

    def readiness(self, node: SimNode) -> None:
        """The node's watch shows it."""
        self.changed(node)

    def blind(self, node: SimNode, *, agent: bool, over: bool) -> None:
        """Not seeing is not failing: the rules say what follows."""
        self._agents.blind(node, agent=agent, over=over)
        self.changed(node)

    def emptied(self, node: SimNode) -> None:
        """A node that is only cordoned is repaired once its work is done."""
        self._hand_over_empty(node)
        self._drains.pods_changed(node)

    def repaired(self, node: SimNode) -> None:
        """The agent of the new boot looks."""
        self.changed(node)
        if node.machine.state is not None:
            self._agents.poll(node)
        for after, validating in ((_FOUND_NOTHING_S, False), (_REPLACED_S, True)):
            self._world.clock.after(
                after,
                lambda v=validating: self._people_release(node, validating=v),  # type: ignore[misc]
            )

    def shown(self, node: SimNode) -> None:
        """The watch of nodes brings it, also what this controller wrote itself."""
        self._views[node.name] = node.view
        self._touch()

    def by_hand(self, node: SimNode) -> None:
        """A person's cordon counts in the budget, and may be all that a session waited for."""
        self.changed(node)

    def changed(self, node: SimNode) -> None:
        """There is news of the node."""
        self._touch()
        self._wake(node, 0.0)

    def finish(self) -> None:
        """The books of the session rules and of the records."""
        score = self._world.score
        self.watched.finish(score, self._now)
        score.records = self.records.most
        score.record_writes = self.records.writes
        score.record_bytes = self.records.largest

    def _people_release(self, node: SimNode, *, validating: bool) -> None:
        """People give a node back by hand: where a verdict still accuses what has nothing, and
        where a repeat offender waits for their word that it was repaired.
        """
        for session in self._sessions.open_on(node.name):
            waits = session.status.phase == Phase.VALIDATING
            if node.fault is not None or node.repair_from is not None or waits != validating:
                continue
            release = ReleaseRequest(by="people", reason="repaired, or nothing was found")
            spec = msgspec.structs.replace(session.spec, release=release)
            self._sessions.put(msgspec.structs.replace(session, spec=spec))
            self._wake(node, 0.0)

    def _published(self, node: SimNode) -> None:
        self.records.changed(node)
        self._touch()
        self._wake(node, _SENDS_S)

    # ------------------------------------------------------------------ decisions

    def _touch(self) -> None:
        """Something that the fleet rules read has changed: whoever waits is asked again."""
        if self._dirty:
            return
        self._dirty = True
        self._world.clock.after(1.0, self._wake_waiting)

    def _wake_waiting(self) -> None:
        """Judge the fleet for those who wait, and wake them whose turn came or went."""
        waiting = [s for s in self.quarantines.values() if self._wants_a_turn(s)]
        if not waiting:
            self._dirty, self._judged_at = False, float("-inf")
            self.watched.calm(self._now)
            return
        before = self._verdict.permits
        self._judge_fleet()
        for session in waiting:
            known, permit = (at.get(session.name) for at in (before, self._verdict.permits))
            if session.status.phase in _WAITING and turn_of(known) != turn_of(permit):
                self._wake(self._world.nodes[session.spec.node_name], 0.0)
        if self._turns_at <= self._now:
            self._turns_at = self._now + TURNS_S
            self._world.clock.at(self._turns_at, self._wake_waiting)

    def _wants_a_turn(self, session: QuarantineView) -> bool:
        """Whether the fleet rules have a say in what the session does next."""
        if self.policy.repair.mode != "Off":
            return is_open(session)
        if session.status.phase == Phase.MARKED:
            return level_rank(session.spec.level) >= Level.DRAIN.rank
        return session.status.phase in _JUDGED

    def _permit(self, session: str) -> Permit:
        """A no of a moment ago is still one; a yes is asked for again when anything changed."""
        known = self._verdict.permits.get(session)
        old = self._now - self._judged_at >= VERDICT_S
        if known is None or known.refusal is None or old:
            self._judge_fleet()
        return self._verdict.permits.get(session, Permit())

    def _judge_fleet(self) -> None:
        if not self._dirty and self._now - self._judged_at < VERDICT_S:
            return
        self._dirty = False
        self._judged_at = self._now
        self._verdict = judge_fleet(self._snapshot(), self._memory)
        self.watched.fleet(self._verdict, self.quarantines, self._now)

    def _snapshot(self) -> FleetSnapshot:
        return FleetSnapshot(
            now=self._now,
            policy=self.policy,
            nodes=self._views,
            healths=self._agents.healths,
            quarantines=self.quarantines,
            agents=self._agents.pods,
            records=self.records.objects,
            observing_since=BEGIN,
            acting_since=BEGIN,
            gangs=self._gangs,
        )

    def _wake(self, node: SimNode, seconds: float) -> None:
        self._rests.wake(node, seconds)

    def _look(self, node: SimNode) -> None:
        """Do all that can be done about the node now."""
        decision = d.Decision(step="")
        for _ in range(ROUNDS):
            wrote = False
            opened: list[QuarantineView | None] = [*self._sessions.open_on(node.name)]
            for session in opened or [None]:
                decision = self._decide(node, session)
                self._drains.steer(node, session, decision.evicting)
                for write in decision.writes:
                    if isinstance(write, d.EmitEvent):
                        continue
                    if not self._send(node, write):
                        break
                    wrote = True
            if not wrote:
                break
        else:
            raise RuntimeError(f"{node.name} does not come to rest: {decision}")
        self._rests.rest(node, decision)

    def _decide(self, node: SimNode, session: QuarantineView | None) -> d.Decision:
        permit = Permit()
        if session is not None and self._wants_a_turn(session):
            permit = self._permit(session.name)
        known = session is not None and session.name in self._seen

        def look(read: FreshNode | None) -> NodeObservation:
            return observe(
                self._snapshot(),
                node.name,
                permit=permit,
                sessions=sessions_by_node(self._sessions.on(node.name)),
                session=session,
                node=read,
                plan=self._drains.plan(node, session) if session is not None else None,
                # The remediator looks each minute, also when nothing comes of it.
                last_active_at=self._now - 1.0 if known else None,
            )

        decision = decide_at_hand(session, look, node.view, self._now, self.policy)
        if session is not None:
            self._seen.add(session.name)
        return decision

    # ------------------------------------------------------------------ writes

    def _send(self, node: SimNode, write: d.Write) -> bool:
        match write:
            case d.CreateSession():
                self._sessions.create(write, self._now)
                self.opened.append((node.name, self._now))
                self.records.changed(node)
            case d.PatchSessionSpec():
                self._sessions.patch(write)
                self.records.changed(node)
            case d.WriteSessionStatus():
                if not self._write_status(node, write):
                    return True
            case d.MarkNode() | d.UnmarkNode() | d.RelabelNode():
                return self._patch_node(node, write)
            case SetRepairCondition():
                self._ask_repair(node, write)
            case _:
                return False
        self._touch()
        return True

    def _write_status(self, node: SimNode, write: d.WriteSessionStatus) -> bool:
        """Whether others may be concerned: by a new phase, not by a new sentence."""
        session = self.quarantines[write.name]
        before, after = session.status.phase, write.status.phase
        self._sessions.put(msgspec.structs.replace(session, status=as_stored(write.status)))
        new = before != after or write.status.repair != session.status.repair
        if new:
            self.records.changed(node)
        if before != after:
            if after == Phase.QUARANTINED and self.policy.repair.mode != "Auto":
                self._world.hand_over(node)
            elif after == Phase.MARKED:
                self._hand_over_empty(node)

        elif is_true(write.status, "NeedsHuman") and after == Phase.QUARANTINED:
            self._world.hand_over(node)
        return new

    def _ask_repair(self, node: SimNode, write: SetRepairCondition) -> None:
        """Whoever follows the node's conditions does it: a reset or a restart helps where a repair
        is short, a replacement always does.
        """
        condition = NodeCondition(
            type=write.kind,
            status="True" if write.asks else "False",
            reason=write.step,
            last_transition_time=format_time(self._now),
        )
        status = node.view.status
        others = tuple(one for one in status.conditions if one.type != write.kind)
        status = msgspec.structs.replace(status, conditions=(*others, condition))
        view = newer(node.view, status=status)
        self._world.show(node, view)
        if write.asks:
            self._world.tries(node, STEP_S.get(write.step), self._rebooted)

    def _rebooted(self, node: SimNode) -> None:
        self.changed(node)
        self._agents.poll(node)

    def _patch_node(self, node: SimNode, write: d.MarkNode | d.UnmarkNode | d.RelabelNode) -> bool:
        if write.harmful and (held := recheck(write, as_read(node.view), self._snapshot())):
            raise RuntimeError(f"the rules contradict themselves on {node.name}: {held}")
        body = request(write).body
        view = merged(node.view, body or {})
        if view is None:
            return False
        self._world.show(node, view)
        if isinstance(write, d.MarkNode):
            self._world.taken(node)
        elif isinstance(write, d.UnmarkNode):
            self._world.given_back(node)
        self._touch()
        return True

    def _hand_over_empty(self, node: SimNode) -> None:
        """Level Cordon: whoever runs there ends by itself, then people come."""
        if node.pod is not None or node.taken_at is None:
            return
        for session in self._sessions.open_on(node.name):
            if session.status.phase == Phase.MARKED and (
                level_rank(session.spec.level) < Level.DRAIN.rank
            ):
                self._world.hand_over(node)

    def _on_record(self, node: str) -> bool:
        sessions = self._sessions.open_on(node)
        return bool(sessions) and announced(sessions[0].status.drain)

    def _housekeeping(self) -> None:
        for deletion in outlived(self.quarantines.values(), self.policy, self._now):
            self._sessions.delete(deletion.name)
            self._seen.discard(deletion.name)
        self._world.clock.after(DAY_S, self._housekeeping)


_WAITING: Final = frozenset({"", Phase.PENDING, Phase.MARKED})
_JUDGED: Final = frozenset({"", Phase.PENDING, Phase.DRAINING})
_SENDS_S: Final = 0.2
"""From the agent's verdict to the remediator's look at it: both writes and a watch."""
_FOUND_NOTHING_S: Final = 120.0
_REPLACED_S: Final = 3600.0
"""How long after a repair people release what still waits for their word (assumed)."""
