"""A cluster in memory and virtual time, driven by the deciding rules alone.

Objects are JSON as the API server would store them; writes go through `rules.api.requests`
and are applied with strict preconditions (stale version, foreign UID: 409). A `cycle` is one pass
of the remediator. The controllers a drain depends on (kubelet, disruption controller) run with the
clock. Every request is kept, so that a test can state what must never be sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from remediator.kube.answer import Answer
from remediator.kube.refusals import Refusals
from rules.api import writes as d
from rules.api.budgets import PdbView
from rules.api.nodes import FreshNode, HealthView, LeaseView, NodeView, PauseView, QuarantineView
from rules.api.pods import ClaimView, OwnerView, PodView, VolumeAttachmentView
from rules.api.quarantine import QuarantineStatus
from rules.api.refusal import NodeWrite
from rules.api.repair.writes import DeleteTestJob, WriteRepairObject
from rules.api.requests import request
from rules.api.timestamps import parse_time
from rules.catalog.reason import Severity
from rules.drain import queue as pdb_queue
from rules.drain.arrivals import listed_again_s, plan_watch
from rules.drain.budget import matching
from rules.drain.eviction import EvictionOutcome, classify, no_answer
from rules.drain.gangs import Gang, gangs_of
from rules.drain.memory import DrainMemory, announced, answered, forced
from rules.drain.plan import DrainInput, plan_drain
from rules.drain.unseen import not_listed
from rules.fleet.turns import FleetVerdict, judge_fleet
from rules.ledger.record import RecordView
from rules.policy.policy import Policy
from rules.session.causes import causes_in_effect, worst
from rules.session.decide import decide
from rules.session.observation import Permit, is_open, observe, sessions_by_node
from rules.session.recheck import recheck
from rules.session.snapshot import FleetSnapshot
from tests.support.scenario.session_apiserver import OWN, ApiServer, CrashError
from tests.support.scenario.session_cluster import START
from tests.support.scenario.session_parts import ROOMY, Controller, Said, policy_of
from tests.support.scenario.session_sights import evidence_for, external_seen, job_seen

__all__ = ["ROOMY", "START", "CrashError", "World", "policy_of"]

MAX_ROUNDS = 12


@dataclass(frozen=True)
class WorldClock:
    """The world's time for parts of the edge that run here."""

    world: World

    def now(self) -> float:
        return self.world.now

    elapsed = now

    async def sleep(self, seconds: float) -> None:
        self.world.now += seconds


class World(ApiServer):
    """The cluster, its clock and one controller."""

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__()
        self.policy = policy or policy_of(budget=ROOMY)
        self.no_room: frozenset[str] = frozenset()
        self.kueue_unhealthy: dict[str, tuple[str, ...]] = {}
        self.unread: set[str] = set()
        """Nodes whose gangs our controller has not read yet."""
        self.acting_since = self.observing_since = 0.0
        self.unlisted: tuple[int, str] | None = None
        """What the API server answers to the list of a node's pods, where it is no list."""
        self.evidences: dict[str, dict[str, Any]] = {}
        """GPUEvidence objects by name."""
        self.doubt = ""
        """Why nothing may rest on what our controller knows."""
        self.own_node = ""
        self.nobody_took_over = False
        self.said: list[Said] = []
        self.steps: list[tuple[float, str, str]] = []
        self.hand_overs: list[float] = []
        self.controller = self._new_controller()
        self.eviction_answers: list[Any] = []
        """Scripted answers (status, headers, body) that come before the simulated ones."""

    def _new_controller(self) -> Controller:
        return Controller(refusals=Refusals(WorldClock(self)))

    def phases(self, node: str) -> list[str]:
        """The phases the node's sessions went through, in order."""
        seen: list[str] = []
        for said in self.said:
            if said.node == node and (not seen or seen[-1] != said.phase):
                seen.append(said.phase)
        return seen

    def snapshot(self) -> FleetSnapshot:
        convert = msgspec.convert
        return FleetSnapshot(
            now=self.now,
            policy=self.policy,
            nodes={name: convert(n, NodeView) for name, n in self.nodes.items()},
            healths={name: convert(h, HealthView) for name, h in self.healths.items()},
            quarantines={n: convert(q, QuarantineView) for n, q in self.quarantines.items()},
            records={n: convert(r, RecordView) for n, r in self.records.items()},
            pauses={name: convert(p, PauseView) for name, p in self.pauses.items()},
            maintenance_leases={n: convert(le, LeaseView) for n, le in self.leases.items()},
            external_seen=external_seen(self),
            observing_since=self.observing_since,
            acting_since=self.acting_since,
            doubt=self.doubt,
            own_node=self.own_node,
            nobody_took_over=self.nobody_took_over,
            reserved=frozenset(self.controller.reserved),
            mark_refused=self.controller.refusals.nodes(NodeWrite.MARK),
            gangs=self._gangs(),
            kueue_unhealthy=self.kueue_unhealthy,
        )

    def _gangs(self) -> dict[str, tuple[Gang, ...]]:
        owners = {uid: msgspec.convert(o, OwnerView) for uid, o in self.owners.items()}
        known = (name for name in self.nodes if name not in self.unread)
        return {name: gangs_of(self.pods_on(name), owners) for name in known}

    # ------------------------------------------------------------------ time

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Advance the clock; the controllers and ours run at every step."""
        end = self.now + seconds
        while self.now < end:
            self.cycle()
            self.now = min(end, self.now + step)
            self._controllers()
        self.cycle()

    def run_until(self, node: str, phase: str, limit: float = 7200.0, step: float = 1.0) -> None:
        end = self.now + limit
        while self.now < end:
            self.cycle()
            if self.phase(node) == phase:
                return
            self.now += step
            self._controllers()
        raise AssertionError(f"{node} is {self.phase(node)}, not {phase}: {self.message(node)}")

    def restart(self) -> None:
        """A new process: nothing in memory survives but the previous leader's last renewal."""
        active = dict(self.controller.active_at)
        self.controller = self._new_controller()
        self.controller.active_at = active
        self.acting_since = self.observing_since = self.now

    def change_leader(self) -> None:
        """A replica that has watched all along takes over from one that died 15 s ago."""
        observing_since = self.observing_since
        self.sleep(15)
        self.restart()
        self.observing_since = observing_since

    def sleep(self, seconds: float) -> None:
        """No controller of ours works, the rest of the cluster does."""
        for _ in range(int(seconds)):
            self.now += 1
            self._controllers()

    # ------------------------------------------------------------------ our controller

    def cycle(self) -> FleetVerdict | None:
        """One pass over every node, as the remediator's loop makes it."""
        verdict = judge_fleet(snapshot := self.snapshot())
        named = {q["spec"]["nodeName"] for q in self.quarantines.values()}
        for name in sorted({*self.nodes, *named}):
            snapshot, verdict = self._node_cycle(name, snapshot, verdict)
        self._send_evictions()
        for event in verdict.events:
            body = request(event).body or {}
            if body["metadata"]["name"] not in self.events:
                self._send(event)
        return verdict

    def _node_cycle(
        self, name: str, snapshot: FleetSnapshot, verdict: FleetVerdict
    ) -> tuple[FleetSnapshot, FleetVerdict]:
        for _ in range(MAX_ROUNDS):
            sessions = sessions_by_node(snapshot.quarantines)
            found = [s for s in sessions.get(name, ()) if is_open(s)]
            open_sessions: list[QuarantineView] | list[None] = found or [None]
            progressed = False
            for session in open_sessions:
                decision = self._decide(name, session, snapshot, verdict, sessions)
                planned = len(self.controller.plans)
                self._follow(name, session, decision)
                # What the first plan says is on record before anybody is asked to go.
                progressed = progressed or len(self.controller.plans) > planned
                accepted = all(self._sent(write) for write in decision.writes)
                if accepted and session is not None:
                    self.controller.active_at[session.name] = self.now
                # Nothing waits for an Event, as at the edge.
                awaited = [w for w in decision.writes if not isinstance(w, d.EmitEvent)]
                # A test that cannot be ended is tried again later, with nothing else meanwhile.
                stuck = isinstance(next(iter(awaited), None), DeleteTestJob) and not accepted
                progressed = progressed or (bool(awaited) and not stuck)
            if not progressed:
                return snapshot, verdict
            snapshot = self.snapshot()
            verdict = judge_fleet(snapshot)
        raise AssertionError(f"{name} never comes to rest: {decision}")

    def _sent(self, write: d.Write) -> bool:
        """Send as the edge does: what is refused is remembered and ends the round."""
        status = self._send(write)
        if isinstance(write, WriteRepairObject):
            self.controller.objects.clear()
        body = json.dumps({"message": self.refusing.get(type(write), (0, ""))[1]}).encode()
        answer = Answer(code=status, body=body, content_type="application/json")
        self.controller.refusals.note(write, answer)
        return answer.ok or (isinstance(write, DeleteTestJob) and status in {404, 409})

    def _decide(
        self,
        name: str,
        session: QuarantineView | None,
        snapshot: FleetSnapshot,
        verdict: FleetVerdict,
        sessions: dict[str, list[QuarantineView]],
    ) -> d.Decision:
        permit = verdict.permits.get(session.name, Permit()) if session else Permit()
        node: NodeView | None = None
        decision: d.Decision | None = None
        for _ in range(MAX_ROUNDS):
            seen = observe(
                snapshot,
                name,
                permit=permit,
                sessions=sessions,
                session=session,
                node=node,
                plan=self.controller.plans.get(session.name) if session else None,
                last_active_at=self.controller.active_at.get(session.name) if session else None,
                job=job_seen(self, session),
                refused=self.controller.refusals.of(name),
                objects=self.controller.objects,
                evidence=evidence_for(self, session),
            )
            decision = decide(session, seen, self.now, self.policy)
            if decision.needs_fresh_node:
                node = msgspec.convert(self.nodes[name], FreshNode)
            elif (query := decision.needs_object) is not None:
                self.controller.read(query, self.read_object(query))
            else:
                break
        assert decision is not None
        assert not decision.needs_fresh_node
        assert decision.needs_object is None
        self._say(name, session, decision)
        return decision

    def _say(self, name: str, session: QuarantineView | None, decision: d.Decision) -> None:
        if not self.steps or self.steps[-1][1:] != (name, decision.step):
            self.steps.append((self.now, name, decision.step))
        if decision.status is None:
            return
        said = Said(self.now, name, decision.status.phase, decision.status.message)
        last = next((s for s in reversed(self.said) if s.node == name), None)
        if last is None or (last.phase, last.message) != (said.phase, said.message):
            self.said.append(said)
        if decision.hand_over:
            self.hand_overs.append(self.now)

    def _follow(self, name: str, session: QuarantineView | None, decision: d.Decision) -> None:
        if session is None or decision.evicting is d.Evicting.NO:
            if session is not None:
                self.controller.plans.pop(session.name, None)
                self.controller.listed.pop(session.name, None)
            return
        status = decision.status
        assert status is not None
        if decision.evicting in {d.Evicting.WATCH, d.Evicting.LOOK}:
            self._watch(name, session, status, certain=decision.evicting is d.Evicting.LOOK)
            return
        self.controller.listed.pop(session.name, None)
        dry_run = decision.evicting is d.Evicting.PROBE
        drain = status.drain
        memory = self.controller.memories.get(session.name)
        if memory is None:
            memory = DrainMemory.resume(drain)
        if self.unlisted is not None:
            known = self.controller.plans.get(session.name)
            self.controller.plans[session.name] = not_listed(memory, known, *self.unlisted)
            return
        convert = msgspec.convert
        causes = causes_in_effect(session, self.snapshot())
        look = DrainInput(
            node=name,
            session=session.name,
            pods=self.pods_on(name),
            pdbs=tuple(convert(pdb, PdbView) for pdb in self.pdbs.values()),
            owners={uid: convert(o, OwnerView) for uid, o in self.owners.items()},
            missing_owners=frozenset(self.missing_owners),
            attachments=tuple(convert(a, VolumeAttachmentView) for a in self.attachments),
            claims={key: convert(c, ClaimView) for key, c in self.claims.items()},
            no_room=self.no_room,
            severity=max((c.severity for c in causes), key=lambda s: Severity(s).rank),
            reasons=tuple(c.reason for c in causes),
            dry_run=dry_run,
            own_namespace=OWN,
            last_active_at=self.controller.active_at.get(session.name),
            **({"drain": drain} if drain else {}),
        )
        plan = plan_drain(look, self.policy, memory, self.now)
        self.controller.memories[session.name] = plan.memory
        self.controller.plans[session.name] = plan
        for target, delete in plan.force:
            if self._send(target) < 300 and self._send(delete) < 300:
                eviction = d.EvictPod(
                    node=name, namespace=delete.namespace, name=delete.name, uid=delete.uid
                )
                self.controller.memories[session.name] = forced(
                    self.controller.memories[session.name], eviction
                )

    def _watch(
        self, name: str, session: QuarantineView, status: QuarantineStatus, *, certain: bool
    ) -> None:
        """List as seldom as the edge does: at once when it begins to look in another way."""
        close, due_at = self.controller.listed.get(session.name, (not certain, self.now))
        if close is certain and self.now < due_at:
            return
        plan = plan_watch(
            self.pods_on(name),
            name,
            worst(session.spec.causes),
            self.policy,
            DrainMemory(),
            since=parse_time(status.phase_since) or self.now,
            now=self.now,
            before=self.controller.plans.get(session.name),
            certain=certain,
            own_namespace=OWN,
        )
        self.controller.plans[session.name] = plan
        wait_s = max(1.0, self.policy.drain.settle_s) if certain else listed_again_s(plan)[1]
        self.controller.listed[session.name] = certain, self.now + wait_s

    def _send_evictions(self) -> None:
        wanted = [
            eviction
            for name, plan in sorted(self.controller.plans.items())
            for eviction in plan.evict
            if eviction.dry_run or self._on_record(name)
            if not self._answered(name, eviction)
        ]
        self.controller.queue, send = pdb_queue.due(self.controller.queue, wanted, self.now)
        for eviction in send:
            outcome = self._evict(eviction)
            self.controller.queue = pdb_queue.answered(
                self.controller.queue, eviction, outcome, self.policy.drain.backoff, self.now, 0.5
            )
            memory = answered(self.controller.memories[eviction.session], eviction, outcome)
            self.controller.memories[eviction.session] = memory
            plan = self.controller.plans[eviction.session]
            self.controller.plans[eviction.session] = replace(plan, memory=memory)

    def _on_record(self, session: str) -> bool:
        stored = msgspec.convert(self.quarantines[session], QuarantineView)
        return announced(stored.status.drain)

    def _answered(self, session: str, eviction: d.EvictPod) -> bool:
        outcome = self.controller.memories[session].outcomes.get(eviction.uid)
        return outcome is not None and (outcome.done or eviction.dry_run)

    def _evict(self, eviction: d.EvictPod) -> EvictionOutcome:
        node = msgspec.convert(self.nodes[eviction.node], FreshNode)
        if eviction.harmful and (held := recheck(eviction, node, self.snapshot())):
            return no_answer(held)
        pod = self.pods.get((eviction.namespace, eviction.name))
        view = msgspec.convert(pod, PodView) if pod else None
        pdbs = (
            matching(view, [msgspec.convert(p, PdbView) for p in self.pdbs.values()])
            if view
            else ()
        )
        wire = request(eviction)
        if self.eviction_answers:
            status, headers, body = self.eviction_answers.pop(0)
            self.sent.append((self.now, eviction, wire, status))
        else:
            status, headers, body = self._eviction_api(eviction, wire)
        assert view is not None
        return classify(status, headers, body, view, pdbs, self.now)
