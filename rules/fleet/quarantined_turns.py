"""Decide which quarantined nodes may be drained or repaired next.

The bad nodes of one gang are drained together. Those of a gang that Kueue places by topology are
drained one at a time. The nodes of a domain session are drained together, whatever gangs they run.
The gangs of a draining node are in its session's evidence, since its pods may be gone. All input
comes from sessions, so a restart and a new leader continue drains and repairs. The node of the
remediator is last.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from rules.api import timestamps
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import NOT_TAINTED_YET, Mode, Phase
from rules.catalog.reason import severity_rank
from rules.catalog.why_not import Refusal, WhyNot
from rules.fleet import budget, domain_session
from rules.fleet.domain_session import DomainProgress
from rules.policy.policy import Policy
from rules.session import exclusions, observation
from rules.session import status as st
from rules.session.causes import (
    EVIDENCE_GANGS,
    causes_now,
    drains_now,
    has_human,
    requested_domain,
    worst,
)
from rules.session.observation import FleetSnapshot, Permit, Unjudged
from rules.session.repair import ladder
from rules.text import printable

READ_S: Final = 10.0
"""How long a drain waits until the node's gangs are known."""


def unread_until(node: str, since: float, snapshot: FleetSnapshot) -> float | None:
    """Return until when to wait for the gangs of a node that may be drained since `since`.

    None if they are known, or the wait is over. A new leader gets the full time to read them.
    """
    if node in snapshot.gangs:
        return None
    until = max(since, snapshot.acting_since) + READ_S
    return until if snapshot.now < until else None


def moving_gangs(
    sessions: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, frozenset[str]]:
    """Return the gang keys of nodes that drain, or were drained within `gangWindow`, by node."""
    moving: dict[str, frozenset[str]] = {}
    for session in sessions:
        since = timestamps.parse_time(session.status.phase_since) or snapshot.now
        just_drained = (
            session.status.phase == Phase.QUARANTINED
            and snapshot.now - since < _policy(session, snapshot).drain.gang_window_s
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
    """Return why the node's gangs delay its drain.

    `waiting` are the nodes with a session that does not drain yet.
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
    # Nodes that failed during an outage of gpuward are collected, too.
    collecting_since = max(tainted_at, snapshot.observing_since)
    policy = snapshot.policy_of(snapshot.nodes.get(node))
    until = collecting_since + policy.drain.gang_window_s
    if snapshot.now >= until:
        return None
    mates = [
        name
        for name in waiting
        if name != node and restarting & {gang.key for gang in snapshot.gangs.get(name, ())}
    ]
    first = min(restarting)
    why = f"gang {first} is drained at once, its bad nodes are collected"
    why += f", {len(mates)} more so far" if mates else ""
    why += next((f"; {gang.kept}" for gang in own if gang.key == first and gang.kept), "")
    return Refusal(reason=WhyNot.GANG_WINDOW, why=why, until=until)


_HANDS_OVER: Final = "the remediator runs on it and hands over leadership first"
_HALTS: Final = ("Paused", "NodeUnreachable")
_GOES_ON = Permit(start=True, drain=True, unjudged=None)
_HALTED = Permit(start=True, unjudged=Unjudged.HALT_OVER)
_NOT_ASKED = Permit(start=True, unjudged=Unjudged.FLEET)
"""For level Cordon. If the level is raised, the session needs a turn."""


def drain_permits(
    opened: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, Permit]:
    """Return the permits of quarantined sessions to drain, by session name, the oldest first.

    The order is the same for waiting sessions, returned causes and interrupted drains. A session
    that drains continues. A session that waits for an operator or cannot drain takes no place, so
    a blocked node does not block other nodes.
    """
    sessions = [s for s in opened if s.status.mode != Mode.SHADOW]
    permits: dict[str, Permit] = {s.name: _GOES_ON for s in sessions}
    # Of sessions without a taint only those with gangs matter: gangs wait for them.
    waiting = [
        s
        for s in sessions
        if (
            s.status.phase == Phase.MARKED
            or (s.status.phase in NOT_TAINTED_YET and snapshot.gangs.get(s.spec.node_name))
        )
        and _drains(s, snapshot)
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
    # A session whose stored status is halted has no place any more.
    halted = {s.name for s in draining for kind in _HALTS if st.is_true(s.status, kind)}
    going = [s for s in draining if permits[s.name] is _GOES_ON and s.name not in halted]
    busy = [s for s in going if not st.is_true(s.status, "NeedsHuman")]
    turns = _Turns(
        snapshot=snapshot,
        places=(snapshot.policy.limits.nodes_draining or math.inf) - len(busy),
        ahead=bool(busy),
        to_come=tuple(s.spec.node_name for s in waiting),
        moving=dict(moving_gangs(sessions, snapshot)),
        domains={
            domain: domain_session.progress(domain, sessions, snapshot.nodes.values())
            for domain in {requested_domain(s) for s in wanting} - {""}
        },
    )
    candidates = [
        s for s in (*draining, *wanting) if permits[s.name] is _GOES_ON and s not in going
    ]
    for session in sorted(candidates, key=lambda s: _order(s, snapshot)):
        permits[session.name] = turns.judge(session)
    return permits


def _order(session: QuarantineView, snapshot: FleetSnapshot) -> tuple[bool, bool, str, str]:
    """Return the sort key: own node last, interrupted drains first, then the oldest."""
    status = session.status
    own = session.spec.node_name == snapshot.own_node
    return own, status.phase != Phase.DRAINING, status.phase_since, session.name


@dataclass(kw_only=True)
class _Turns:
    """Gives turns in order, booking each one it gives."""

    snapshot: FleetSnapshot
    places: float
    ahead: bool
    """Another node drains, or will do so without an operator: the own node waits for it."""
    to_come: tuple[str, ...]
    moving: dict[str, frozenset[str]]
    domains: Mapping[str, DomainProgress]

    def judge(self, session: QuarantineView) -> Permit:
        """Return whether the session may drain its node now."""
        permit = self._resumed(session) or self._held(session)
        if permit is None and session.spec.node_name == self.snapshot.own_node:
            permit = self._own_node()
        if permit is None:
            self._give(session.spec.node_name)
            return _GOES_ON
        # The own node waits for blocks that end by themselves, not for permanent ones.
        refusal = permit.refusal
        if refusal is None:
            self.ahead |= permit.unjudged is Unjudged.GANGS
        else:
            self.ahead |= refusal.until is not None or refusal.reason is WhyNot.NODES_DRAINING
        return permit

    def _resumed(self, session: QuarantineView) -> Permit | None:
        """Return the permit of an interrupted drain, which needs only a free place."""
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
        if (its := self.domains.get(requested_domain(session))) is not None:
            # Its gangs end with the domain: no node of them is replaced or collected one by one.
            refusal = domain_session.drain_refusal(snapshot.nodes[node], snapshot.now - since, its)
        else:
            refusal = drain_turn(node, since, self.to_come, self.moving, snapshot)
        return Permit.refused(refusal, start=True) if refusal is not None else self._full()

    def _full(self) -> Permit | None:
        limit = self.snapshot.policy.limits.nodes_draining
        if limit is None or self.places > 0:
            return None
        why = (
            f"{printable.count(limit, 'node is', 'nodes are')} draining (limits.nodesDraining), "
            "the next one starts when one is done"
        )
        return Permit.refused(Refusal(reason=WhyNot.NODES_DRAINING, why=why), start=True)

    def _own_node(self) -> Permit | None:
        """Return the permit of the own node: it is last, after another replica leads."""
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


def _policy(session: QuarantineView, snapshot: FleetSnapshot) -> Policy:
    return snapshot.policy_of(snapshot.nodes.get(session.spec.node_name))


def _drains(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Return whether the session drains its node, by its level and the policy."""
    node = snapshot.nodes.get(session.spec.node_name)
    return node is not None and drains_now(session, node, snapshot)


def _cannot(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Return whether the node cannot be drained now."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or node.ready == "Unknown" or exclusions.kept_off(node, snapshot):
        return True
    if snapshot.policy_of(node).mode == Mode.SHADOW:
        return True
    return not has_human(session) and not observation.selects_node(snapshot.policy, node)


_REPAIR_GOES: Final = Permit(start=True, drain=True, repair=True, unjudged=None)


def repair_permits(
    opened: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, Permit]:
    """Return the permits of drained sessions to be repaired, by name.

    Running repairs are first, then the most severe fault, then the oldest drain. Repairs have
    their own limit, because their nodes are out of service already.
    """
    sessions = [s for s in opened if Mode.SHADOW not in {s.status.mode, _policy(s, snapshot).mode}]
    running = [(a.started_at, s.name, s) for s in sessions if (a := ladder.under_way(s.status))]
    asking = [session for _, _, session in sorted(running, key=itemgetter(0, 1))]
    if any(policy.repair.mode != "Off" for policy in snapshot.policy.policies):
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
    """Return whether the session could start a repair if it got a turn."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or session.spec.hold or exclusions.kept_off(node, snapshot):
        return False
    health = snapshot.healths.get(node.name)
    causes = causes_now(session, node, snapshot)
    others = [s for s in siblings if s.name != session.name]
    policy = snapshot.policy_of(node)
    if policy.repair.mode == "Off":
        return False
    position = ladder.next_step(session, others, causes, health, policy, snapshot.now)
    return position.rung is not None and ladder.approved(session, causes, position.rung, policy)


def _repair_refused(
    node: NodeView | None, under_repair: list[NodeView], snapshot: FleetSnapshot
) -> Permit | None:
    """Return why the node may not be repaired now; None if it may."""
    repair = snapshot.policy.repair
    if node is None:
        return _no_repair(WhyNot.NODE_GONE, "there is no node")
    if budget.control_plane(node):
        why = "it is a control-plane node, which an operator repairs"
        return _no_repair(WhyNot.CONTROL_PLANE, why)
    if len(under_repair) >= repair.concurrent:
        why = (
            f"{printable.count(repair.concurrent, 'node is', 'nodes are')} under repair "
            "(repair.concurrent), the next one starts when one is done"
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
