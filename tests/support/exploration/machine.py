"""What gpuward does in the small world, through the pure entry points of the node cycle.

One `look` is one round of the node cycle: observe, decide, carry out the writes with the API
server's preconditions. A drain's list and plan are part of its node's look; each eviction is sent
in a step of its own, after the last check at node and session, as the gateway does it.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from rules.api import writes as d
from rules.api.nodes import NodeView, QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import DrainStatus, Phase, QuarantineStatus
from rules.api.requests import request
from rules.api.timestamps import parse_time
from rules.drain.drain_plan import DrainInput, DrainPlan, plan_watch
from rules.drain.eviction import EvictionOutcome, classify, matching, no_answer
from rules.drain.memory import DrainMemory, answered
from rules.drain.plan import kept_from_eviction, plan_drain
from rules.session.causes import worst
from rules.session.observation import FleetSnapshot, Permit, is_open, observe, sessions_by_node
from tests.support.exploration.leader_view import GANG_OWNER, REPLICA_SET, LeaderView
from tests.support.exploration.packing import NODES, NOW, Moment, pack, unpack
from tests.support.exploration.state import (
    NOW_MOMENT,
    Bundle,
    Ghost,
    SessionState,
    State,
    patched,
    pdb_view,
    pod_uid,
    pod_view,
    session_of,
    session_view,
)


@dataclass(frozen=True)
class Machine(LeaderView):
    """gpuward in one setting. ``watcher`` is reported of every write before and after it lands."""

    watcher: Any
    _checked: dict[Any, tuple[Any, Bundle]] = field(init=False, default_factory=dict)

    # ------------------------------------------------------------------ one check

    def look(self, state: State, index: int, dies_after: int | None = None) -> State:
        """One round on one node; with ``dies_after`` the process ends after so many writes.

        Equal looks are computed once: of the other node only its effect on the fleet counts.
        """
        bundle = state.bundles[index]
        plain = bundle._replace(ghost=Ghost())
        opened = [s for s in self.cached_sessions(state, index) if is_open(s)]
        permits = self._assessment(state).permits if opened else {}
        key = (
            index,
            plain,
            tuple((s.name, permits.get(s.name)) for s in opened),
            (state.paused, state.skips, state.pods, state.pdb_minimum, state.took_over),
            self._busy(state, 1 - index),
            self.gangs_known(state, index),
            dies_after,
        )
        known = self._checked.get(key)
        if known is None:
            trail: list[tuple[d.Write, Bundle]] = []
            reached = self._look(state.with_bundle(index, ghost=Ghost()), index, dies_after, trail)
            known = self._checked[key] = (tuple(trail), reached.bundles[index])
        for write, after in known[0]:
            before = state
            ghost = state.bundles[index].ghost
            if isinstance(write, d.TaintAndCordon) and after.health.active:
                ghost = ghost._replace(taken=True)
            state = state.with_bundle(index, **after._replace(ghost=ghost)._asdict())
            self.watcher.wrote(before, state, index, write)
        ghost = state.bundles[index].ghost
        return state.with_bundle(index, **known[1]._replace(ghost=ghost)._asdict())

    def _look(
        self,
        state: State,
        index: int,
        dies_after: int | None,
        trail: list[tuple[d.Write, Bundle]],
    ) -> State:
        snapshot = self.snapshot(state)
        opened: list[QuarantineView | None] = [
            s for s in self.cached_sessions(state, index) if is_open(s)
        ]
        permits = self._assessment(state).permits if opened else {}
        by_node = sessions_by_node(snapshot.quarantines)
        for session in opened or [None]:
            plan, state = self._pass(state, index, session)
            permit = permits.get(session.name, Permit()) if session else Permit()
            decision = self._decided(state, index, session, snapshot, permit, by_node, plan)
            if decision is None:
                return state
            state = self._steer(state, index, session, decision)
            writes = [write for write in decision.writes if not isinstance(write, d.EmitEvent)]
            for write in writes[:dies_after]:
                landed = self._write(state, index, write, snapshot)
                if landed is None:
                    return self._caught_up(state, index)
                state = landed
                trail.append((write, state.bundles[index]))
            if dies_after is not None:
                return state
            if session is not None:
                state = state.with_memory(index, active_at=Moment(0, False))
        if not opened:
            state = state.with_memory(index, deleted=(), active_at=None)
        return self._pump(state, index)

    def _decided(
        self,
        state: State,
        index: int,
        session: QuarantineView | None,
        snapshot: FleetSnapshot,
        permit: Permit,
        by_node: dict[str, list[QuarantineView]],
        plan: DrainPlan | None,
    ) -> d.Decision | None:
        """The decision, after a fresh read of the node where one is wanted."""
        memory = state.bundles[index].memory
        active = memory.active_at
        node: NodeView | None = None
        for fresh in (False, True):
            if fresh:
                node = self.fresh_node(state, index)
                snapshot = snapshot if node else self._without(snapshot, NODES[index])
            seen = replace(
                observe(snapshot, NODES[index], sessions=by_node, session=session, node=node),
                permit=permit,
                deleted=tuple(session_view(s, index, "0") for s in memory.deleted),
                plan=plan,
                last_active_at=float(NOW + active.at) if active else None,
            )
            decision = self.setting.decide(session, seen, float(NOW), snapshot.policy)
            if not decision.needs_fresh_node:
                return decision
        return None

    def _without(self, snapshot: FleetSnapshot, name: str) -> FleetSnapshot:
        """What a 404 of the fresh read taught."""
        nodes = {key: view for key, view in snapshot.nodes.items() if key != name}
        return replace(snapshot, nodes=nodes)

    def _pass(
        self, state: State, index: int, session: QuarantineView | None
    ) -> tuple[DrainPlan | None, State]:
        """The drain's uncached list and plan, where one is steered to go."""
        memory = state.bundles[index].memory
        if session is None or memory.drain is None:
            return None, state
        if session.status.phase == Phase.QUARANTINED:
            since = parse_time(session.status.phase_since) or float(NOW)
            severity = worst(session.spec.causes)
            kept = DrainMemory()
            pods = self.pods_on(state, index)
            plan = plan_watch(
                pods, NODES[index], severity, self.policy(state), kept, since=since, now=NOW
            )
            return plan, state
        plan = self.plan(state, index, session, unpack(memory.drain, index))
        return plan, state.with_memory(index, drain=pack(plan.memory, index))

    def pods_on(self, state: State, index: int) -> tuple[PodView, ...]:
        owner = GANG_OWNER if self.setting.gang else REPLICA_SET
        return tuple(
            pod_view(slot, pod, owner) for slot, pod in enumerate(state.pods) if pod.node == index
        )

    def plan(
        self, state: State, index: int, session: QuarantineView, memory: DrainMemory
    ) -> DrainPlan:
        """The drain plan on the pods and the policy there are now."""
        look = self._drain_input(state, index, session)
        return plan_drain(look, self.policy(state), memory, float(NOW))

    def _drain_input(self, state: State, index: int, session: QuarantineView) -> DrainInput:
        active = state.bundles[index].memory.active_at
        return DrainInput(
            node=NODES[index],
            session=session.name,
            pods=self.pods_on(state, index),
            pdbs=(pdb_view(state.pdb_minimum, state.pods),),
            severity=worst(session.spec.causes),
            drain=session.status.drain or DrainStatus(),
            last_active_at=float(NOW + active.at) if active else None,
        )

    def _steer(
        self, state: State, index: int, session: QuarantineView | None, decision: d.Decision
    ) -> State:
        memory = state.bundles[index].memory
        going = decision.evicting in {d.Evicting.GO, d.Evicting.WATCH}
        if session is None or not going:
            return state.with_memory(index, drain=None)
        if memory.drain is None:
            resumed = DrainMemory.resume(session.status.drain)
            return state.with_memory(index, drain=pack(resumed, index))
        return state

    # ------------------------------------------------------------------ evictions

    def _busy(self, state: State, index: int) -> frozenset[str]:
        return frozenset(pdb for _, _, pdb in state.bundles[index].memory.in_flight if pdb)

    def _pump(self, state: State, index: int) -> State:
        """Choose who is asked next: one per PDB over both nodes."""
        memory = state.bundles[index].memory
        session = next((s for s in self.cached_sessions(state, index) if is_open(s)), None)
        if memory.drain is None or session is None or session.status.phase != Phase.DRAINING:
            return state
        kept: DrainMemory = unpack(memory.drain, index)
        for eviction in self.plan(state, index, session, kept).evict:
            busy = self._busy(state, 0) | self._busy(state, 1)
            outcome = kept.outcomes.get(eviction.uid)
            done = outcome is not None and outcome.done
            neutral = pack(eviction.uid, index)
            if done or neutral in memory.asked or eviction.pdb in busy:
                continue
            chosen = (neutral, pack(session.name, index), eviction.pdb)
            asked = tuple(sorted((*memory.asked, neutral)))
            state = state.with_memory(index, asked=asked, in_flight=(*memory.in_flight, chosen))
            memory = state.bundles[index].memory
        return state

    def send_eviction(self, state: State, index: int) -> State:
        """The oldest chosen eviction of the node goes out, or is held."""
        memory = state.bundles[index].memory
        uid, session, pdb = memory.in_flight[0]
        uid, session = unpack(uid, index), unpack(session, index)
        state = state.with_memory(index, in_flight=memory.in_flight[1:])
        slot = next((s for s, pod in enumerate(state.pods) if pod_uid(s, pod) == uid), None)
        if slot is None or state.pods[slot].node != index or state.pods[slot].leaving:
            return self._booked(state, index, None, no_answer("gone"))
        owner = GANG_OWNER if self.setting.gang else REPLICA_SET
        pod = pod_view(slot, state.pods[slot], owner)
        eviction = d.EvictPod(
            node=NODES[index],
            namespace="team",
            name=pod.metadata.name,
            uid=uid,
            session=session,
            pdb=pdb,
        )
        node = self.fresh_node(state, index)
        snapshot = self.snapshot(state)
        if (
            node is None
            or self.setting.recheck(eviction, node, snapshot)
            or self.kept(state, index, snapshot.quarantines.get(session), pod)
        ):
            return self._booked(state, index, eviction, no_answer("held"))
        self.watcher.evicting(state, index, eviction)
        budget = pdb_view(state.pdb_minimum, state.pods)
        if budget.status.disruptions_allowed < 1:
            cause = {"reason": "DisruptionBudget", "message": "needs pods"}
            body = {"kind": "Status", "message": "budget", "details": {"causes": [cause]}}
            outcome = classify(
                429, {}, json.dumps(body).encode(), pod, matching(pod, (budget,)), float(NOW)
            )
            return self._booked(state, index, eviction, outcome)
        pods = list(state.pods)
        pods[slot] = pods[slot]._replace(leaving=True)
        outcome = classify(201, {}, b"{}", pod, (), float(NOW))
        return self._booked(state._replace(pods=tuple(pods)), index, eviction, outcome)

    def kept(self, state: State, index: int, session: QuarantineView | None, pod: PodView) -> str:
        """Why the pod is left alone by now, as `Drains` asks before it sends."""
        if not self.setting.asks_again:
            return ""
        if session is None or state.bundles[index].memory.drain is None:
            return "its drain was stopped"
        look = self._drain_input(state, index, session)
        return kept_from_eviction(pod, look, self.policy(state), float(NOW))

    def _booked(
        self, state: State, index: int, eviction: d.EvictPod | None, outcome: EvictionOutcome
    ) -> State:
        memory = state.bundles[index].memory
        if eviction is None or memory.drain is None:
            return state
        plain = EvictionOutcome(kind=outcome.kind)
        kept = answered(unpack(memory.drain, index), eviction, plain)
        return state.with_memory(index, drain=pack(kept, index))

    # ------------------------------------------------------------------ writes

    def _write(
        self, state: State, index: int, write: d.Write, snapshot: FleetSnapshot
    ) -> State | None:
        """The state after the write; None where the API server or the last check refuses it."""
        match write:
            case d.CreateSession():
                return self._create(state, index, write)
            case d.PatchSessionSpec() | d.WriteSessionStatus():
                return self._change_session(state, index, write)
            case d.TaintAndCordon() | d.RemoveTaint() | d.RelabelNode():
                return self._change_node(state, index, write, snapshot)
        raise AssertionError(f"unexpected {write}")

    def _create(self, state: State, index: int, write: d.CreateSession) -> State | None:
        name = pack(write.name, index)
        bundle = state.bundles[index]
        if any(session.name == name for session in bundle.sessions):
            return None
        new = session_of(write.name, NOW_MOMENT, write.spec, QuarantineStatus(), index)
        state = state.with_bundle(index, sessions=(*bundle.sessions, new))
        return self._learned(state, index, new)

    def _change_session(
        self, state: State, index: int, write: d.PatchSessionSpec | d.WriteSessionStatus
    ) -> State | None:
        bundle = state.bundles[index]
        name = pack(write.name, index)
        old = next((s for s in bundle.sessions if s.name == name), None)
        if old is None or write.resource_version != "1":
            return None
        view = session_view(old, index, "1")
        if isinstance(write, d.WriteSessionStatus):
            new = session_of(write.name, old.created, view.spec, write.status, index)
        else:
            spec = write.applied(view.spec)
            new = session_of(write.name, old.created, spec, view.status, index)
        sessions = tuple(new if s.name == name else s for s in bundle.sessions)
        return self._learned(state.with_bundle(index, sessions=sessions), index, new)

    def _learned(self, state: State, index: int, session: SessionState) -> State:
        """What a write returns is in the leader's cache at once."""
        lagging = state.bundles[index].lagging
        if lagging is None:
            return state
        others = tuple(s for s in lagging[1] if s.name != session.name)
        return state.with_bundle(index, lagging=(lagging[0], (*others, session)))

    def _change_node(
        self,
        state: State,
        index: int,
        write: d.TaintAndCordon | d.RemoveTaint | d.RelabelNode,
        snapshot: FleetSnapshot,
    ) -> State | None:
        bundle = state.bundles[index]
        fresh = self.fresh_node(state, index)
        if bundle.node is None or fresh is None:
            return None
        if isinstance(write, d.TaintAndCordon) and self.setting.recheck(write, fresh, snapshot):
            return None
        if isinstance(write, d.RemoveTaint) and write.orphan:
            name = pack(write.session, index)
            named = (session for session in bundle.sessions if session.name == name)
            if any(is_open(session_view(session, index, "0")) for session in named):
                return None
        body = request(write).body
        assert body is not None
        if body["metadata"]["resourceVersion"] != "1":
            return None
        node = patched(bundle.node, body, index)
        state = state.with_bundle(index, node=node)
        if bundle.lagging is not None:
            state = state.with_bundle(index, lagging=(node, bundle.lagging[1]))
        return state

    def _caught_up(self, state: State, index: int) -> State:
        """After a conflict the session is read again; the node is read before each write."""
        bundle = state.bundles[index]
        if bundle.lagging is None:
            return state
        return state.with_bundle(index, lagging=(bundle.lagging[0], bundle.sessions))
