"""Turns of quarantined nodes: whose pods may be evicted next, and who may be repaired.

The bad nodes of one gang are drained together, those of a gang that Kueue places by topology one
at a time. Which gangs a draining node had is read from its session's evidence: once its pods are
gone, nothing else remembers it. All is derived from the sessions there are, so that no restart and
no second leader forgets a drain or a repair that is under way. Our own node comes last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from rules.api import timestamps
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.catalog.reason import severity_rank
from rules.catalog.why_not import Refusal, WhyNot
from rules.fleet import budget
from rules.session import exclusions, observation
from rules.session import status as st
from rules.session.causes import EVIDENCE_GANGS, causes_now, drains_now, has_human, worst
from rules.session.observation import FleetSnapshot, Permit, Unjudged
from rules.session.repair import ladder
from rules.text import printable

READ_S: Final = 10.0
"""How long a node waits until its gangs are known: one restart beats a quick start."""


def unread_until(node: str, since: float, snapshot: FleetSnapshot) -> float | None:
    """Until when to wait for the gangs of a node that may be touched since then; None when they
    are known, or were not to be learned in time.

    A leader that took over meanwhile needs its own time to read them.
    """
    if node in snapshot.gangs:
        return None
    until = max(since, snapshot.acting_since) + READ_S
    return until if snapshot.now < until else None


def moving_gangs(
    sessions: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, frozenset[str]]:
    """Gang keys of nodes that drain now or were drained within `gangWindow`, by node."""
    moving: dict[str, frozenset[str]] = {}
    for session in sessions:
        since = timestamps.parse_time(session.status.phase_since) or snapshot.now
        just_drained = (
            session.status.phase == Phase.QUARANTINED
            and snapshot.now - since < snapshot.policy.drain.gang_window_s
        )
        if session.status.phase != Phase.DRAINING and not just_drained:
            continue
        kept = session.status.evidence.get(EVIDENCE_GANGS)
        keys = {str(key) for key in kept} if isinstance(kept, list | tuple) else set()
        keys |= {gang.key for gang in snapshot.gangs.get(session.spec.node_name, ())}
        moving[session.spec.node_name] = frozenset(keys)
    return moving


def drain_turn(
    node: str,
    tainted_at: float,
    waiting: Iterable[str],
    moving: Mapping[str, frozenset[str]],
    snapshot: FleetSnapshot,
) -> Refusal | None:
    """Why the node's drain may not begin as far as its gangs are concerned.

    `waiting` are the nodes whose session has not begun to drain.
    """
    own = snapshot.gangs.get(node, ())
    for gang in own:
        if not gang.topology_aware:
            continue
        busy = [name for name, keys in moving.items() if gang.key in keys and name != node]
        pending = [name for name in snapshot.kueue_unhealthy.get(gang.key, ()) if name != node]
        if busy or pending:
            return Refusal(
                reason=WhyNot.KUEUE_REPLACING,
                why=f"Kueue still replaces node {min([*busy, *pending])} of {gang.key}",
            )
    restarting = {gang.key for gang in own if not gang.topology_aware}
    if not restarting or any(restarting & keys for keys in moving.values()):
        return None
    # Mates that failed while nobody of gpuward looked are collected as well.
    collecting_since = max(tainted_at, snapshot.observing_since)
    until = collecting_since + snapshot.policy.drain.gang_window_s
    if snapshot.now >= until:
        return None
    mates = [
        name
        for name in waiting
        if name != node and restarting & {gang.key for gang in snapshot.gangs.get(name, ())}
    ]
    with_mates = f", {len(mates)} more bad nodes of it so far" if mates else ""
    return Refusal(
        reason=WhyNot.GANG_WINDOW,
        why=f"gang {min(restarting)} is drained in one go, its bad nodes are collected until "
        f"{timestamps.utc(until)}{with_mates}",
        until=until,
    )


_HANDS_OVER: Final = "the remediator runs on it and hands over leadership first"
_HALTS: Final = ("Paused", "NodeUnreachable")
_GOES_ON = Permit(start=True, drain=True, unjudged=None)
_HALTED = Permit(start=True, unjudged=Unjudged.HALT_OVER)
_NOT_ASKED = Permit(start=True, unjudged=Unjudged.FLEET)
"""Of one whose level leaves the pods alone: once that is raised it needs a turn like others."""


def drain_permits(
    opened: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, Permit]:
    """Turns to drain for sessions whose quarantine is on, by session name, the longest quarantined
    first.

    One rule for all: who waits with its taint and cordon on, whose cause came back, and who was
    held up while it drained. A session that drains goes on. One that waits for an operator gives
    up its place, and one that cannot drain now takes none: a blocked node blocks no other.
    """
    sessions = [s for s in opened if s.status.mode != Mode.SHADOW]
    permits: dict[str, Permit] = {s.name: _GOES_ON for s in sessions}
    waiting = [
        s
        for s in sessions
        if s.status.phase in {"", Phase.PENDING, Phase.MARKED} and _drains(s, snapshot)
    ]
    draining = [s for s in sessions if s.status.phase == Phase.DRAINING]
    wanting = [s for s in waiting if s.status.phase == Phase.MARKED]
    for session in sessions:
        if session.status.phase == Phase.MARKED:
            permits[session.name] = _NOT_ASKED
    for session in wanting:
        permits[session.name] = _GOES_ON
    for session in (*draining, *wanting):
        if _cannot(session, snapshot):
            permits[session.name] = _HALTED
    # One that, as stored, was kept from evicting has no place any more.
    halted = {s.name for s in draining for kind in _HALTS if st.is_true(s.status, kind)}
    going = [s for s in draining if permits[s.name] is _GOES_ON and s.name not in halted]
    busy = [s for s in going if not st.is_true(s.status, "NeedsHuman")]
    turns = _Turns(
        snapshot=snapshot,
        places=snapshot.policy.limits.nodes_draining - len(busy),
        ahead=bool(busy),
        to_come=tuple(s.spec.node_name for s in waiting),
        moving=dict(moving_gangs(sessions, snapshot)),
    )
    candidates = [
        s for s in (*draining, *wanting) if permits[s.name] is _GOES_ON and s not in going
    ]
    for session in sorted(candidates, key=lambda s: _order(s, snapshot)):
        permits[session.name] = turns.judge(session)
    return permits


def _order(session: QuarantineView, snapshot: FleetSnapshot) -> tuple[bool, bool, str, str]:
    """Our own node last, who drained already first, then the longest quarantined."""
    status = session.status
    own = session.spec.node_name == snapshot.own_node
    return own, status.phase != Phase.DRAINING, status.phase_since, session.name


@dataclass(kw_only=True)
class _Turns:
    """Gives turns in order, booking each one it gives."""

    snapshot: FleetSnapshot
    places: int
    ahead: bool
    """Another node drains, or will without anybody's help: our own node waits for it."""
    to_come: tuple[str, ...]
    moving: dict[str, frozenset[str]]

    def judge(self, session: QuarantineView) -> Permit:
        """One session's turn to be drained."""
        permit = self._resumed(session) or self._held(session)
        if permit is None and session.spec.node_name == self.snapshot.own_node:
            permit = self._own_node()
        if permit is None:
            self._give(session.spec.node_name)
            return _GOES_ON
        # What ends by itself is worth waiting for; another's permanent block is not.
        refusal = permit.refusal
        if refusal is None:
            self.ahead |= permit.unjudged is Unjudged.GANGS
        else:
            self.ahead |= refusal.until is not None or refusal.reason is WhyNot.NODES_DRAINING
        return permit

    def _resumed(self, session: QuarantineView) -> Permit | None:
        """One that drained before it was held up takes a place again, and needs nothing else."""
        if session.status.phase != Phase.DRAINING:
            return None
        full = self._full()
        if full is None:
            self._give(session.spec.node_name)
        return full or _GOES_ON

    def _held(self, session: QuarantineView) -> Permit | None:
        snapshot, node = self.snapshot, session.spec.node_name
        since = timestamps.parse_time(session.status.phase_since) or snapshot.now
        if unread_until(node, since, snapshot) is not None:
            return Permit(start=True, unjudged=Unjudged.GANGS)
        refusal = drain_turn(node, since, self.to_come, self.moving, snapshot)
        return Permit.refused(refusal, start=True) if refusal is not None else self._full()

    def _full(self) -> Permit | None:
        if self.places > 0:
            return None
        limit = self.snapshot.policy.limits.nodes_draining
        why = (
            f"{printable.count(limit, 'node is', 'nodes are')} draining (limits.nodesDraining), "
            "it follows when one is done"
        )
        return Permit.refused(Refusal(reason=WhyNot.NODES_DRAINING, why=why), start=True)

    def _own_node(self) -> Permit | None:
        """Our own node comes last, and only after another replica took over."""
        if self.ahead:
            why = "the remediator runs on it, other nodes are drained first"
            return Permit.refused(Refusal(reason=WhyNot.OWN_NODE_LAST, why=why), start=True)
        if self.snapshot.no_other_replica:
            return None
        refusal = Refusal(reason=WhyNot.OWN_NODE_HAND_OVER, why=_HANDS_OVER)
        return Permit(start=True, unjudged=None, refusal=refusal, hand_over=True)

    def _give(self, node: str) -> None:
        self.places -= 1
        self.ahead = True
        self.moving[node] = frozenset(gang.key for gang in self.snapshot.gangs.get(node, ()))


def _drains(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Whether the session wants its node empty, as level and policy are now."""
    node = snapshot.nodes.get(session.spec.node_name)
    return node is not None and drains_now(session, node, snapshot)


def _cannot(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Whether something on the node itself keeps it from draining now."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or node.ready == "Unknown" or exclusions.kept_off(node, snapshot):
        return True
    return not has_human(session) and not observation.selects_node(snapshot.policy, node)


_REPAIR_GOES: Final = Permit(start=True, drain=True, repair=True, unjudged=None)


def repair_permits(
    opened: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, Permit]:
    """Turns to be repaired for drained sessions, by name: who is repaired already first, in the
    order in which they began, then the most severe, then who is drained for longest.

    A budget of its own: a node that is repaired is out of service already.
    """
    if snapshot.policy.mode == Mode.SHADOW:
        return {}
    sessions = [s for s in opened if s.status.mode != Mode.SHADOW]
    running = [(a.started_at, s.name, s) for s in sessions if (a := ladder.under_way(s.status))]
    asking = [session for _, _, session in sorted(running, key=itemgetter(0, 1))]
    if snapshot.policy.repair.mode != "Off":
        by_node = observation.sessions_by_node(snapshot.counted)
        wanting = [
            s
            for s in sessions
            if ladder.under_way(s.status) is None
            and s.status.phase in {Phase.QUARANTINED, Phase.REPAIRING}
            and _wants_repair(s, by_node.get(s.spec.node_name, []), snapshot)
        ]
        asking += sorted(wanting, key=_most_severe_first)
    permits: dict[str, Permit] = {}
    under_repair: list[NodeView] = []
    for session in asking:
        node = snapshot.nodes.get(session.spec.node_name)
        refused = _repair_refused(node, under_repair, snapshot)
        permits[session.name] = refused or _REPAIR_GOES
        if refused is None and node is not None:
            under_repair.append(node)
    return permits


def _most_severe_first(session: QuarantineView) -> tuple[int, str, str]:
    return -severity_rank(worst(session.spec.causes)), session.status.phase_since, session.name


def _wants_repair(
    session: QuarantineView, siblings: list[QuarantineView], snapshot: FleetSnapshot
) -> bool:
    """Whether it could use a turn: one that is held up takes no place."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or session.spec.hold or exclusions.kept_off(node, snapshot):
        return False
    health = snapshot.healths.get(node.name)
    causes = causes_now(session, node, snapshot)
    others = [s for s in siblings if s.name != session.name]
    led = ladder.next_step(session, others, causes, health, snapshot.policy, snapshot.now)
    return led.rung is not None and ladder.approved(session, causes, led.rung, snapshot.policy)


def _repair_refused(
    node: NodeView | None, under_repair: list[NodeView], snapshot: FleetSnapshot
) -> Permit | None:
    """Why the node may not be repaired beside those that are; None where it may."""
    repair = snapshot.policy.repair
    if node is None:
        return _no_repair(WhyNot.NODE_GONE, "there is no node")
    if budget.control_plane(node):
        why = "it is a control-plane node, which an operator repairs"
        return _no_repair(WhyNot.CONTROL_PLANE, why)
    if len(under_repair) >= repair.concurrent:
        why = (
            f"{printable.count(repair.concurrent, 'node is', 'nodes are')} under repair "
            "(repair.concurrent), it follows when one is done"
        )
        return _no_repair(WhyNot.REPAIR_LIMIT, why)
    for key in sorted(repair.per):
        value = node.labels.get(key)
        if value is not None and any(other.labels.get(key) == value for other in under_repair):
            why = (
                f"another node with {key}={value} is under repair (repair.per), it follows when "
                "that is done"
            )
            return _no_repair(WhyNot.REPAIR_LIMIT, why)
    if node.name != snapshot.own_node:
        return None
    if snapshot.no_other_replica:
        why = "the remediator runs on it and no other replica takes over, run a second one"
        return _no_repair(WhyNot.OWN_NODE_LAST, why)
    return _no_repair(WhyNot.OWN_NODE_HAND_OVER, _HANDS_OVER, hand_over=True)


def _no_repair(reason: WhyNot, why: str, *, hand_over: bool = False) -> Permit:
    refusal = Refusal(reason=reason, why=why)
    return Permit(start=True, drain=True, unjudged=None, refusal=refusal, hand_over=hand_over)
