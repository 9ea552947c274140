"""What the remediator does next on each node, if nothing else happens: its own rules, on copies.

Every decision is `rules.session.decide.decide` under what `rules.fleet.turns` allows. What it
writes goes into copies of the objects, until nothing is left to do at this moment, or the rest is
up to others: pods, a repair, a test, time. For whoever tells people what comes next.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from rules.api import requests, timestamps
from rules.api import writes as d
from rules.api.metadata import ObjectMeta
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.quarantine import Mode, QuarantineStatus
from rules.api.repair_writes import (
    DeleteTestJob,
    SetRepairCondition,
    SetValidated,
    WriteRepairObject,
)
from rules.drain.drain_plan import DrainPlan
from rules.drain.gangs import Gang
from rules.fleet import turns
from rules.fleet.memory import FleetMemory
from rules.fleet.turns import FleetAssessment
from rules.session import observation
from rules.session.decide import decide
from rules.session.observation import FleetSnapshot, NodeObservation, Permit

_ROUNDS: Final = 100
"""Judgements at one moment: a budget lets nodes in one by one. Whoever goes on after that is left
where it is; in the remediator it would count as a fault of gpuward."""


@dataclass(slots=True, kw_only=True)
class Foreseen:
    """One node when all that can be done at this moment is done."""

    node: str
    before: QuarantineView | None = None
    """Its open session now, the oldest."""
    after: QuarantineView | None = None
    """The session that it comes to: an open one, else the one that ended last."""
    decision: d.Decision = field(default_factory=lambda: d.Decision(step=""))
    """The last one about that session."""
    quarantined: bool = False
    """The taint and cordon goes on the node."""
    not_quarantined: bool = False
    """It comes off."""
    asks: d.Write | None = None
    """A write of which others make something: a repair, a test."""


class Forecast:
    """One fleet at one moment. First what needs no turn is done, then (`judged`) turns are given:
    in between whoever asks reads the pods that gangs are made of.
    """

    def __init__(
        self,
        snapshot: FleetSnapshot,
        memory: FleetMemory | None = None,
        drained: DrainPlan | None = None,
    ) -> None:
        """`memory`: kept by a caller that forecasts again and again. `drained`: the plan of every
        drain where nodes hold no pods; None leaves each drain where it is.
        """
        self._base = snapshot
        self._drained = drained
        self._nodes = dict(snapshot.nodes)
        self._sessions = dict(snapshot.quarantines)
        self._of_node: defaultdict[str, list[str]] = defaultdict(list)
        for name, session in self._sessions.items():
            self._of_node[session.spec.node_name].append(name)
        self._memory = memory or FleetMemory()
        self._permits: Mapping[str, Permit] = {}
        self._used: dict[str, Permit] = {}
        self._decisions: dict[str, d.Decision] = {}
        """The last of each session, by its name, and of each node without one."""
        self._ended: dict[str, str] = {}
        """The session of each node that ended last, at this moment."""
        self._found: dict[str, Foreseen] = {}
        self._serial = 0
        due = set(self._nodes)
        due |= {s.spec.node_name for s in self._sessions.values() if observation.is_open(s)}
        for name in due:
            opened = self._open(name)
            self._found[name] = Foreseen(node=name, before=opened[0] if opened else None)
        for _ in range(_ROUNDS):
            if not due:
                break
            due = {name for name in sorted(due) if self._look(name)}

    def copied(self) -> FleetSnapshot:
        """The fleet as far as it is foreseen; it stays as it is when more is foreseen."""
        nodes, sessions = dict(self._nodes), dict(self._sessions)
        return replace(self._base, nodes=nodes, quarantines=sessions)

    def judged(self, gangs: Mapping[str, tuple[Gang, ...]]) -> FleetAssessment:
        """Give turns until nobody gets another; the first judgement is answered."""
        self._base = replace(self._base, gangs=gangs)
        first: FleetAssessment | None = None
        due: set[str] = set()
        for _ in range(_ROUNDS):
            verdict = turns.judge_fleet(self.copied(), self._memory)
            self._permits = verdict.permits
            first = first or verdict
            for name, permit in verdict.permits.items():
                if self._used.get(name) != permit:
                    due.add(self._sessions[name].spec.node_name)
            if not due:
                break
            due = {name for name in sorted(due) if self._look(name)}
        return first or FleetAssessment()

    def foreseen(self) -> Mapping[str, Foreseen]:
        """Every node, by name."""
        for name, found in self._found.items():
            opened = self._open(name)
            last = opened[0] if opened else self._sessions.get(self._ended.get(name, ""))
            if last is not None and not opened and last.status.mode == Mode.SHADOW:
                last = None  # it never was about more than words
            found.after = last
            about = last.name if last is not None else name
            found.decision = self._decisions.get(about, found.decision)
        return self._found

    # ------------------------------------------------------------------ one check

    def _open(self, node: str) -> list[QuarantineView]:
        """The open sessions of a node, oldest first."""
        its = {name: self._sessions[name] for name in self._of_node.get(node, ())}
        return [
            s for s in observation.sessions_by_node(its).get(node, ()) if observation.is_open(s)
        ]

    def _look(self, name: str) -> bool:
        """Decide once on each session of a node; whether anything was written."""
        wrote = False
        sessions: list[QuarantineView] | list[None] = self._open(name) or [None]
        for session in sessions:
            if self._found[name].asks is not None:
                return False
            decision = self._decide(name, session)
            self._decisions[session.name if session is not None else name] = decision
            for write in decision.writes:
                if _ends_there(write):
                    continue
                if not self._apply(name, write):
                    self._found[name].asks = write
                    break
                wrote = True
        return wrote

    def _decide(self, name: str, session: QuarantineView | None) -> d.Decision:
        permit = Permit()
        if session is not None and session.name in self._permits:
            permit = self._used[session.name] = self._permits[session.name]
        snapshot = replace(self._base, nodes=self._nodes, quarantines=self._sessions)
        its = {one: self._sessions[one] for one in self._of_node.get(name, ())}

        def look(read: FreshNode | None) -> NodeObservation:
            sessions = observation.sessions_by_node(its)
            return replace(
                observation.observe(snapshot, name, sessions=sessions, session=session, node=read),
                permit=permit,
                plan=self._drained,
                # It looks each minute, and this is one of its looks.
                last_active_at=snapshot.now if session and session.status.phase else None,
            )

        decision = decide(session, look(None), snapshot.now, snapshot.policy)
        node = self._nodes.get(name)
        if not decision.needs_fresh_node or node is None:
            return decision
        # The remediator reads the node again: what it would read is what is known here.
        read = msgspec.convert(msgspec.to_builtins(node), FreshNode)
        return decide(session, look(read), snapshot.now, snapshot.policy)

    # ------------------------------------------------------------------ writes

    def _apply(self, node: str, write: d.Write) -> bool:
        """Whether the write is one that changes our own objects or taints and cordons, and nothing
        else.
        """
        match write:
            case d.CreateSession():
                meta = ObjectMeta(
                    name=write.name,
                    uid=write.name,
                    creation_timestamp=timestamps.format_time(self._base.now),
                )
                self._store(QuarantineView(metadata=meta, spec=write.spec))
            case d.PatchSessionSpec():
                session = self._sessions[write.name]
                self._store(msgspec.structs.replace(session, spec=write.applied(session.spec)))
            case d.WriteSessionStatus():
                session = self._sessions[write.name]
                status = _as_stored(write.status)
                self._store(msgspec.structs.replace(session, status=status))
                if not observation.is_open(self._sessions[write.name]):
                    self._ended[node] = write.name
            case d.TaintAndCordon() | d.RemoveTaint() | d.RelabelNode():
                self._found[node].quarantined |= isinstance(write, d.TaintAndCordon)
                self._found[node].not_quarantined |= isinstance(write, d.RemoveTaint)
                self._patch(node, write.patch)
            case _:
                return False
        return True

    def _store(self, session: QuarantineView) -> None:
        self._serial += 1
        if session.name not in self._sessions:
            self._of_node[session.spec.node_name].append(session.name)
        meta = msgspec.structs.replace(session.metadata, resource_version=f"f{self._serial}")
        self._sessions[session.name] = msgspec.structs.replace(session, metadata=meta)

    def _patch(self, node: str, patch: Mapping[str, Any]) -> None:
        self._serial += 1
        stored = requests.merged(
            msgspec.to_builtins(self._nodes[node]), msgspec.to_builtins(patch)
        )
        stored["metadata"]["resourceVersion"] = f"f{self._serial}"
        self._nodes[node] = msgspec.convert(stored, NodeView)


def _ends_there(write: d.Write) -> bool:
    """Whether nothing more comes of the write: what is reported, and requests that are taken
    back.
    """
    match write:
        case d.EmitEvent() | DeleteTestJob() | SetValidated():
            return True
        case SetRepairCondition() | WriteRepairObject():
            return not write.asks
    return False


def _as_stored(status: QuarantineStatus) -> QuarantineStatus:
    """A merge patch removes what is null."""
    evidence = {key: value for key, value in status.evidence.items() if value is not None}
    return msgspec.structs.replace(status, evidence=evidence)
