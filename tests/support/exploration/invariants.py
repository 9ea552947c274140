"""What must be true in every reachable state, and of every write on the way
(`docs/invariants.md`).

`Watcher` is reported of decisions, evictions and writes as they happen; `at_rest` judges a state
in which the controller has nothing left to do at this moment.
"""

from rules.api import writes as d
from rules.api.names import ANNOTATION_SESSION, TAINT_QUARANTINE
from rules.api.quarantine import Phase
from rules.api.quarantine_taint import AUTOSCALER_ANNOTATIONS
from rules.drain.memory import DrainMemory
from rules.fleet.budget import limit_of
from rules.session.history import EVIDENCE_JOINED
from rules.session.observation import is_open
from tests.support.exploration.machine import Machine
from tests.support.exploration.packing import NODES, pack, unpack
from tests.support.exploration.state import (
    Bundle,
    NodeState,
    SessionState,
    State,
    session_view,
    status_of,
)

OURS = {ANNOTATION_SESSION, *AUTOSCALER_ANNOTATIONS}
PRIOR_ANNOTATION = ("karpenter.sh/do-not-disrupt", "true")
"""Both nodes carry it from the start: it belongs to somebody else and must outlive every
quarantine.
"""
SAYING = {"Blocked", "Paused", "Storm", "NodeUnreachable"}


class Violation(AssertionError):  # noqa: N818 - it is a finding, not a fault of the program
    """An invariant does not hold: its name and what happened."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def our_taint(node: NodeState) -> bool:
    return any(key == TAINT_QUARANTINE for key, _ in node.taints)


def in_service(node: NodeState) -> bool:
    return not node.cordoned and not our_taint(node)


def owner_at_work(node: NodeState) -> bool:
    owners = {"karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"}
    kured = "weave.works/kured-reboot-in-progress" in dict(node.annotations)
    return kured or any(key in owners for key, _ in node.taints)


def health_fresh(bundle: Bundle) -> bool:
    alive = bundle.health.alive and bundle.node is not None
    return alive and bundle.node is not None and bundle.health.boot == bundle.node.boot


def needing(bundle: Bundle) -> set[int]:
    """Incidents with which the node must not be in service."""
    return set(bundle.health.active) - set(bundle.ghost.excused)


class Watcher:
    """Judges every step of the machine."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine

    def evicting(self, state: State, index: int, eviction: d.EvictPod) -> None:
        """Called just before an eviction is sent."""
        assert self.machine is not None
        bundle = state.bundles[index]
        name = pack(eviction.session, index)
        sessions = bundle.lagging[1] if bundle.lagging else bundle.sessions
        session = next((s for s in sessions if s.name == name), None)
        if session is None:
            raise Violation("evictions-on-plan", "evicted for a session that is gone")
        view = session_view(session, index, "1")
        if view.status.phase != Phase.DRAINING:
            raise Violation(
                "evictions-on-plan", f"a pod is evicted while its session is {view.status.phase}"
            )
        if view.spec.level != "Drain" or view.spec.release is not None:
            raise Violation("evictions-on-plan", "a pod is evicted though an operator forbade it")
        if state.paused:
            raise Violation("evictions-on-plan", "a pod is evicted during a pause")
        if bundle.node is None or owner_at_work(bundle.node):
            raise Violation("evictions-on-plan", "a pod is evicted while another owner works")
        # A PDB refuses by itself; the plan decides which pods are evicted.
        plan = self.machine.plan(state._replace(pdb_minimum=0), index, view, DrainMemory())
        if eviction.uid not in {wanted.uid for wanted in plan.evict}:
            raise Violation("evictions-on-plan", "a pod is evicted that the plan leaves alone")

    def wrote(self, before: State, after: State, index: int, write: d.Write) -> None:
        """Called after a write landed."""
        old, new = before.bundles[index].node, after.bundles[index].node
        if isinstance(write, d.TaintAndCordon):
            self._within_budget(before, index, write)
            self._override_holds(before, index, write)
        if old is not None and new is not None and old != new:
            _foreign_survives(before.bundles[index], old, new)
        if isinstance(write, d.WriteSessionStatus):
            self._ended(before, index, write)
            self._gang_in_order(before, index, write)

    def _within_budget(self, state: State, index: int, write: d.TaintAndCordon) -> None:
        present = [i for i, b in enumerate(state.bundles) if b.node is not None]
        gone = set()
        for i in present:
            bundle = state.bundles[i]
            seen = bundle.lagging[0] if bundle.lagging else bundle.node
            node = bundle.node
            # Undelivered events do not count.
            known = seen is not None and not in_service(seen)
            if node is not None and (our_taint(node) or (known and not in_service(node))):
                gone.add(i)
        if index in gone:
            return
        assert self.machine is not None
        limit = limit_of(len(present), self.machine.setting.policy.budget)
        if len(gone) + 1 > limit:
            raise Violation("never-over-budget", f"{len(gone)} are away, {limit} may be")

    def _override_holds(self, state: State, index: int, write: d.TaintAndCordon) -> None:
        bundle = state.bundles[index]
        ghost = bundle.ghost
        if ghost.request is None or bundle.lagging is not None:
            # Undelivered requests are checked after the next event.
            return
        name = pack(write.session, index)
        session = next((s for s in bundle.sessions if s.name == name), None)
        causes = session_view(session, index, "1").spec.causes if session is not None else ()
        about = {f"inc-{NODES[index]}-{number}" for number in ghost.about}
        if causes and {cause.incident for cause in causes} <= about:
            raise Violation(
                "override-holds", "the node is quarantined again after a manual override"
            )

    def _ended(self, state: State, index: int, write: d.WriteSessionStatus) -> None:
        bundle = state.bundles[index]
        phase = write.status.phase
        if phase not in {Phase.CANCELLED, Phase.RELEASED} or bundle.node is None:
            return
        session = next(s for s in bundle.sessions if s.name == pack(write.name, index))
        view = session_view(session, index, "1")
        if not is_open(view) or view.spec.release is not None:
            return
        if view.spec.node_uid != f"uid-{NODES[index]}-{bundle.node.uid}":
            return
        if EVIDENCE_JOINED in write.status.evidence:
            return
        active = {f"inc-{NODES[index]}-{number}" for number in needing(bundle)}
        if not health_fresh(bundle) and not bundle.ghost.excused:
            raise Violation("no-silent-return", f"{phase} without a fresh health status")
        if active & {cause.incident for cause in view.spec.causes}:
            raise Violation(
                "no-silent-return", f"{phase} while the fault is open and nobody asked for it"
            )

    def _gang_in_order(self, state: State, index: int, write: d.WriteSessionStatus) -> None:
        assert self.machine is not None
        if write.status.phase != Phase.DRAINING or not self.machine.gangs(state, index):
            return
        for i in (0, 1):
            for session in state.bundles[i].sessions:
                phase = status_of(session, i).phase
                if i == index and session.name == pack(write.name, index):
                    if phase == Phase.DRAINING:
                        return
                elif i != index and phase == Phase.DRAINING and self.machine.gangs(state, i):
                    raise Violation("gangs-in-order", "two nodes of one workload drain at once")


def _foreign_survives(bundle: Bundle, old: NodeState, new: NodeState) -> None:
    if bundle.ghost.cordoned_by and old.cordoned and not new.cordoned:
        who = bundle.ghost.cordoned_by
        raise Violation("foreign-parts-survive", f"the cordon of {who} is taken off")
    taints = {taint for taint in old.taints if taint[0] != TAINT_QUARANTINE}
    if not taints <= set(new.taints):
        raise Violation("foreign-parts-survive", f"taints {taints - set(new.taints)} are lost")
    foreign = {item for item in old.annotations if item[0] not in OURS}
    if not foreign <= set(new.annotations) or PRIOR_ANNOTATION not in new.annotations:
        raise Violation("foreign-parts-survive", "an annotation of others is lost")


def _has_sentence(session: SessionState, index: int) -> None:
    status = status_of(session, index)
    if not status.message:
        raise Violation("every-session-has-a-message", f"none on {NODES[index]}")
    for condition in status.conditions:
        if condition.status == "True" and not (condition.reason and condition.message):
            raise Violation(
                "every-session-has-a-message", f"{condition.type} lacks reason or text"
            )


def reports_blocker(session: SessionState, index: int) -> bool:
    """Whether the session reports what it waits for."""
    status = status_of(session, index)
    return any(c.type in SAYING and c.status == "True" and c.reason for c in status.conditions)


def when_quiet(state: State) -> None:
    """Of a state in which the leader sees all and has nothing left to do at this moment."""
    for index, bundle in enumerate(state.bundles):
        opened = [s for s in bundle.sessions if is_open(session_view(s, index, "1"))]
        for session in opened:
            _has_sentence(session, index)
        if bundle.node is None:
            continue
        note = unpack(dict(bundle.node.annotations).get(ANNOTATION_SESSION), index)
        if note is not None and note["session"] not in {unpack(s.name, index) for s in opened}:
            raise Violation(
                "every-taint-has-a-session", f"{NODES[index]} is tainted without a session"
            )
        ghost = bundle.ghost
        lost = ghost.taken and in_service(bundle.node) and bool(needing(bundle))
        if not lost or not health_fresh(bundle):
            continue
        if not any(reports_blocker(session, index) for session in opened):
            raise Violation(
                "no-silent-return", f"{NODES[index]} is in service and nobody reported it"
            )


def at_rest(state: State) -> str:
    """What is neither done nor explained when time alone changes nothing more; "" when all is."""
    for index, bundle in enumerate(state.bundles):
        opened = [s for s in bundle.sessions if is_open(session_view(s, index, "1"))]
        for session in opened:
            view = session_view(session, index, "1")
            phase = view.status.phase
            rests = phase == Phase.QUARANTINED or (
                phase == Phase.MARKED and view.spec.level == "Cordon"
            )
            if not rests and not reports_blocker(session, index):
                return f"the session of {NODES[index]} stays {phase} and reports no blocker"
        if bundle.node is None or opened:
            continue
        if needing(bundle) and health_fresh(bundle):
            return f"nothing is opened for the fault of {NODES[index]}"
    return ""
