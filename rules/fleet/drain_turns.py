"""Whose pods may be evicted next: the limit of nodes draining, gangs, and our own node last."""

from collections.abc import Iterable, Mapping

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.timestamps import parse_time
from rules.catalog.reason import Level
from rules.session import status as st
from rules.session.causes import has_human
from rules.session.gang_turns import drain_turn, moving_gangs, unread_until
from rules.session.level import drains_now
from rules.session.observation import Permit, opted_out, pause_covers, selects_node
from rules.session.owners import working_owner
from rules.session.snapshot import FleetSnapshot

_GOES_ON = Permit(start=True, drain=True, reason="", message="")


def drain_permits(
    opened: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, Permit]:
    """Turns to drain for sessions whose mark is on, by session name, the longest marked first.

    A session that drains already goes on. One that waits for a person gives up its place, and one
    that cannot drain now takes none: a blocked node blocks no other.
    """
    sessions = [s for s in opened if s.status.mode != Mode.SHADOW]
    draining = [s for s in sessions if s.status.phase == Phase.DRAINING]
    busy = sum(1 for s in draining if not st.is_true(s.status, "NeedsHuman"))
    places = snapshot.policy.limits.nodes_draining - busy
    waiting = [
        s
        for s in sessions
        if s.status.phase in {"", Phase.PENDING, Phase.MARKED} and _drains(s, snapshot)
    ]
    marked = [s for s in waiting if s.status.phase == Phase.MARKED]
    to_come = [s.spec.node_name for s in waiting]
    names = [s.spec.node_name for s in draining]
    moving = dict(moving_gangs(sessions, snapshot))
    permits: dict[str, Permit] = {s.name: _GOES_ON for s in sessions}
    for session in sorted(marked, key=lambda s: (s.status.phase_since, s.name)):
        node = session.spec.node_name
        if node == snapshot.own_node:
            permits[session.name] = _own_node(snapshot, bool(names) or len(marked) > 1)
            continue
        since = parse_time(session.status.phase_since) or snapshot.now
        if (until := unread_until(node, since, snapshot)) is not None:
            permits[session.name] = Permit(
                start=True, message="the gangs on the node are being read", until=until
            )
            continue
        turn = drain_turn(node, since, to_come, moving, snapshot)
        if not turn.go:
            permits[session.name] = Permit(
                start=True, reason=turn.reason, message=turn.message, until=turn.until
            )
        elif _cannot(session, snapshot):
            continue
        elif places < 1:
            limit = snapshot.policy.limits.nodes_draining
            permits[session.name] = Permit(
                start=True,
                reason="NodesDraining",
                message=f"{limit} nodes are draining (limits.nodesDraining), it follows when one of "
                "them is done",
            )
        else:
            places -= 1
            names.append(node)
            moving[node] = frozenset(gang.key for gang in snapshot.gangs.get(node, ()))
    return permits


def _drains(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Whether the session wants its node empty, as level and policy are now."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None:
        return session.spec.level == Level.DRAIN
    return drains_now(session, node, snapshot)


def _cannot(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Whether something on the node itself keeps it from draining now."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or node.ready == "Unknown" or opted_out(node):
        return True
    if not has_human(session) and not selects_node(snapshot.policy, node):
        return True
    if working_owner(node, snapshot.maintenance_leases.get(node.name), snapshot.now):
        return True
    return any(pause_covers(p.spec, node, snapshot.now) for p in snapshot.pauses.values())


def _own_node(snapshot: FleetSnapshot, others: bool) -> Permit:
    """Our own node comes last, and only after another replica took over."""
    if others:
        return Permit(
            start=True,
            reason="OwnNodeLast",
            message="the remediator runs on it, other nodes are drained first",
        )
    if not snapshot.nobody_took_over:
        return Permit(
            start=True,
            reason="OwnNodeHandOver",
            message="the remediator runs on it and hands over leadership first",
            hand_over=True,
        )
    return _GOES_ON
