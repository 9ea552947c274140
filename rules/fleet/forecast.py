"""Forecast the next action of the remediator on each node, by its own rules on copied objects.

Decisions come from `rules.session.decide.decide` with the permits of `rules.fleet.turns`. Writes
change copies of the objects, until the next step depends on others: pods, a repair, a test, time.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from rules.api import device_taints, requests, timestamps
from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.metadata import ObjectMeta
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.quarantine import Mode, QuarantineStatus
from rules.api.repair_writes import (
    DeleteTestJob,
    ObjectAddress,
    SetRepairCondition,
    SetValidated,
    WriteRepairObject,
)
from rules.drain.drain_plan import DrainPlan
from rules.drain.gangs import Gang
from rules.fleet import turns
from rules.fleet.memory import FleetMemory
from rules.fleet.turns import FleetAssessment
from rules.repair.objects import ObjectSeen, ReadState
from rules.session import observation
from rules.session.decide import decide
from rules.session.observation import FleetSnapshot, NodeObservation, Permit

_ROUNDS: Final = 100
"""The most rounds of one forecast, since a budget admits nodes one by one. More would be a bug."""


@dataclass(slots=True, kw_only=True)
class NodeForecast:
    """One node after all actions that are possible now."""

    node: str
    before: QuarantineView | None = None
    """Its open session now, the oldest."""
    after: QuarantineView | None = None
    """Its session afterwards: an open one, else the one that ended last."""
    decision: d.Decision = field(default_factory=lambda: d.Decision(step=""))
    """The last decision about that session."""
    quarantined: bool = False
    """The node is tainted and cordoned."""
    not_quarantined: bool = False
    """The taint and cordon are removed."""
    asks: d.Write | None = None
    """A write that others act on: a repair, a test."""


class Forecast:
    """The forecast of one fleet. The constructor runs what needs no turn, `judged` gives turns. In
    between, the caller reads the pods of gangs.
    """

    def __init__(
        self,
        snapshot: FleetSnapshot,
        memory: FleetMemory | None = None,
        drained: DrainPlan | None = None,
    ) -> None:
        """`memory`: a cache for repeated forecasts. `drained`: the plan of every drain if nodes
        have no pods; None leaves drains unfinished.
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
        """The last decision of each session, by its name, and of each node without one."""
        self._ended: dict[str, str] = {}
        """The session of each node that ended last in this forecast."""
        self._found: dict[str, NodeForecast] = {}
        self._serial = 0
        due = set(self._nodes)
        due |= {s.spec.node_name for s in self._sessions.values() if observation.is_open(s)}
        for name in due:
            opened = self._open(name)
            self._found[name] = NodeForecast(node=name, before=opened[0] if opened else None)
        for _ in range(_ROUNDS):
            if not due:
                break
            due = {name for name in sorted(due) if self._decide_once(name)}

    def copied(self) -> FleetSnapshot:
        """Return a copy of the fleet in its current forecast state."""
        nodes, sessions = dict(self._nodes), dict(self._sessions)
        return replace(self._base, nodes=nodes, quarantines=sessions)

    def judged(self, gangs: Mapping[str, tuple[Gang, ...]]) -> FleetAssessment:
        """Give turns until no session gets another; return the first assessment."""
        self._base = replace(self._base, gangs=gangs)
        first: FleetAssessment | None = None
        due: set[str] = set()
        for _ in range(_ROUNDS):
            assessment = turns.judge_fleet(self.copied(), self._memory)
            self._permits = assessment.permits
            first = first or assessment
            for name, permit in assessment.permits.items():
                if self._used.get(name) != permit:
                    due.add(self._sessions[name].spec.node_name)
            if not due:
                break
            due = {name for name in sorted(due) if self._decide_once(name)}
        return first or FleetAssessment()

    def nodes(self) -> Mapping[str, NodeForecast]:
        """Return the forecast of every node, by name."""
        for name, found in self._found.items():
            opened = self._open(name)
            last = opened[0] if opened else self._sessions.get(self._ended.get(name, ""))
            if last is not None and not opened and last.status.mode == Mode.SHADOW:
                last = None  # an ended Shadow session changed nothing
            found.after = last
            about = last.name if last is not None else name
            found.decision = self._decisions.get(about, found.decision)
        return self._found

    # ------------------------------------------------------------------ decisions

    def _open(self, node: str) -> list[QuarantineView]:
        """The open sessions of a node, oldest first."""
        its = {name: self._sessions[name] for name in self._of_node.get(node, ())}
        return [
            s for s in observation.sessions_by_node(its).get(node, ()) if observation.is_open(s)
        ]

    def _decide_once(self, name: str) -> bool:
        """Decide once on each session of a node; return whether anything was written."""
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

        unread: dict[ObjectAddress, ObjectSeen] = {}

        def observed(read: FreshNode | None) -> NodeObservation:
            sessions = observation.sessions_by_node(its)
            return replace(
                observation.observe(snapshot, name, sessions=sessions, session=session, node=read),
                permit=permit,
                plan=self._drained,
                objects=unread,
                # The remediator decides each session every minute.
                last_active_at=snapshot.now if session and session.status.phase else None,
            )

        node = self._nodes.get(name)
        policy = snapshot.policy_of(node)
        decision = decide(session, observed(None), snapshot.now, policy)
        while (query := decision.needs_object) and query.resource == device_taints.RESOURCE:
            # A new session then isolates the node, and one with devices goes on.
            isolates = session is not None and bool(session.status.devices)
            unread[query] = ObjectSeen(
                state=ReadState.UNREAD if isolates else ReadState.NOT_SERVED,
                read_at=snapshot.now,
                why="a forecast reads no devices",
            )
            decision = decide(session, observed(None), snapshot.now, policy)
        if not decision.needs_fresh_node or node is None:
            return decision
        # The remediator would read the node again; here the known node is used.
        read = msgspec.convert(msgspec.to_builtins(node), FreshNode)
        return decide(session, observed(read), snapshot.now, policy)

    # ------------------------------------------------------------------ writes

    def _apply(self, node: str, write: d.Write) -> bool:
        """Apply a write to gpuward's own objects or taints; return False for any other write."""
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
    """Return whether the write has no further effect: reports and withdrawn requests."""
    match write:
        case d.EmitEvent() | DeleteTestJob() | SetValidated() | TaintDevice() | UntaintDevice():
            return True
        case SetRepairCondition() | WriteRepairObject():
            return not write.asks
    return False


def _as_stored(status: QuarantineStatus) -> QuarantineStatus:
    """Return the status without nulls, which a merge patch removes."""
    evidence = {key: value for key, value in status.evidence.items() if value is not None}
    return msgspec.structs.replace(status, evidence=evidence)
