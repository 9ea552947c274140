"""Who may be repaired now: so many nodes at once, no two that share what the policy names.

A budget of its own: a node that is repaired is out of service already. Derived from the sessions
there are, so that no restart and no second leader forgets a repair that is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase, RepairAttempt, RepairState
from rules.api.timestamps import parse_time
from rules.catalog.reason import severity_rank
from rules.catalog.why_not import Refusal, WhyNot
from rules.fleet.pools import control_plane
from rules.session.causes import causes_now, worst
from rules.session.observation import Permit, opted_out, pause_covers, sessions_by_node
from rules.session.owners import working_owner
from rules.session.repair.outlook import NOT_DRAINED
from rules.session.repair.wants import (
    fence_step,
    lessons,
    let_go,
    next_step,
    silent_until,
    under_way,
)
from rules.session.snapshot import FleetSnapshot
from rules.text.counted import count

_GOES: Final = Permit(start=True, drain=True, repair=True, unjudged=None)


def repair_permits(
    opened: Iterable[QuarantineView], drains: Mapping[str, Permit], snapshot: FleetSnapshot
) -> Mapping[str, Permit]:
    """Turns to be repaired for drained sessions, and for those whose node is silent, by name: who
    is repaired already first, in the order in which they began, then the gravest, then who is
    drained for longest. `drains` are the turns to drain, which the silent ones keep.
    """
    repair = snapshot.policy.repair
    if snapshot.policy.mode == Mode.SHADOW:
        return {}
    sessions = [s for s in opened if s.status.mode != Mode.SHADOW]
    running = sorted(
        ((at, s) for s in sessions if (at := under_way(s.status)) is not None), key=_began
    )
    turns = _Turns(snapshot)
    permits = {session.name: turns.judge(session) for _, session in running}
    if repair.mode == "Off":
        return permits
    by_node = sessions_by_node(snapshot.counted)
    wanting = [
        s
        for s in sessions
        if s.name not in permits
        and s.status.phase in {Phase.QUARANTINED, Phase.REPAIRING, *NOT_DRAINED}
        and _wants(s, by_node.get(s.spec.node_name, []), snapshot)
    ]
    for session in sorted(wanting, key=_order):
        permit = turns.judge(session)
        if session.status.phase in NOT_DRAINED:
            permit = _beside(drains.get(session.name, Permit()), permit)
        permits[session.name] = permit
    return permits


def _beside(drain: Permit, repair: Permit) -> Permit:
    """A turn to be repaired beside the turn to drain of one that is not drained."""
    hand_over = drain.hand_over or repair.hand_over
    return replace(drain, repair=repair.repair, repair_refusal=repair.refusal, hand_over=hand_over)


def _began(running: tuple[RepairAttempt, QuarantineView]) -> tuple[str, str]:
    return running[0].started_at, running[1].name


def _order(session: QuarantineView) -> tuple[int, str, str]:
    return -severity_rank(worst(session.spec.causes)), session.status.phase_since, session.name


def _wants(
    session: QuarantineView, siblings: list[QuarantineView], snapshot: FleetSnapshot
) -> bool:
    """Whether it could use a turn: one that is held up takes no place."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or opted_out(node) or session.spec.hold:
        return False
    if any(pause_covers(pause, node, snapshot.now) for pause in snapshot.pauses.values()):
        return False
    if working_owner(node, snapshot.maintenance_leases.get(node.name), snapshot.now):
        return False
    health = snapshot.healths.get(node.name)
    causes = causes_now(session, node, snapshot)
    others = [s for s in siblings if s.name != session.name]
    due_at = silent_until(session.status, node, snapshot.policy)
    if due_at is not None and snapshot.now >= due_at:
        fence = fence_step(session, others, causes, health, snapshot.policy, snapshot.now)
        rung = fence.rung if fence is not None else None
        if rung is not None and let_go(session, causes, rung, snapshot.policy):
            return True
    if session.status.phase in NOT_DRAINED:
        return False
    learnt = lessons(session, health, snapshot.records, snapshot.now)
    led = next_step(session, others, causes, health, snapshot.policy, snapshot.now, learnt)
    return led.rung is not None and let_go(session, causes, led.rung, snapshot.policy)


class _Turns:
    """Gives turns in order, booking each one it gives."""

    def __init__(self, snapshot: FleetSnapshot) -> None:
        self._snapshot = snapshot
        self._repair = snapshot.policy.repair
        self._given = 0
        self._values: set[tuple[str, str]] = set()

    def judge(self, session: QuarantineView) -> Permit:
        """One session's turn to be repaired."""
        node = self._snapshot.nodes.get(session.spec.node_name)
        refused = (
            self._refused(node) or self._silence(session, node)
            if node is not None
            else _no(WhyNot.NODE_GONE, "there is no node")
        )
        if refused is not None:
            return refused
        assert node is not None
        self._given += 1
        self._values |= self._keys_of(node)
        return _GOES

    def _refused(self, node: NodeView) -> Permit | None:
        if control_plane(node):
            return _no(WhyNot.CONTROL_PLANE, "it is a control-plane node, which a person repairs")
        if self._given >= self._repair.concurrent:
            return _no(
                WhyNot.REPAIR_LIMIT,
                f"{count(self._repair.concurrent, 'node is', 'nodes are')} under repair "
                "(repair.concurrent), it follows when one is done",
            )
        if shared := sorted(self._keys_of(node) & self._values):
            key, value = shared[0]
            return _no(
                WhyNot.REPAIR_LIMIT,
                f"another node with {key}={value} is under repair (repair.per), it follows when "
                "that is done",
            )
        if node.name == self._snapshot.own_node:
            return self._own_node()
        return None

    def _silence(self, session: QuarantineView, node: NodeView) -> Permit | None:
        """Of a node that is to be powered off as it is: whether it is silent alone."""
        attempt, fence = under_way(session.status), self._repair.fence
        fences = attempt.fence is not None if attempt is not None else node.ready == "Unknown"
        asked = attempt is not None and attempt.state == RepairState.ASKED
        if fence is None or not fences or asked:
            return None
        at = _silent_at(node)
        along = [
            other
            for other in self._snapshot.nodes.values()
            if (since := _silent_at(other)) is not None
            and (at is None or abs(since - at) <= fence.after_s)
        ]
        if len(along) <= self._repair.concurrent:
            return None
        return _no(
            WhyNot.NODE_UNREACHABLE,
            f"{len(along)} nodes fell silent together, which is no fault of one of them, so none "
            "is powered off",
        )

    def _keys_of(self, node: NodeView) -> set[tuple[str, str]]:
        return {(key, node.labels[key]) for key in self._repair.per if key in node.labels}

    def _own_node(self) -> Permit:
        if self._snapshot.nobody_took_over:
            return _no(
                WhyNot.OWN_NODE_LAST,
                "the remediator runs on it and no other replica takes over, run a second one",
            )
        return _no(
            WhyNot.OWN_NODE_HAND_OVER,
            "the remediator runs on it and hands over leadership first",
            hand_over=True,
        )


def _silent_at(node: NodeView) -> float | None:
    """When the node fell silent; None while it speaks."""
    ready = node.condition("Ready")
    if ready is None or ready.status != "Unknown":
        return None
    return parse_time(ready.last_transition_time or "") or 0.0


def _no(reason: WhyNot, why: str, *, hand_over: bool = False) -> Permit:
    refusal = Refusal(reason=reason, why=why)
    return Permit(start=True, drain=True, unjudged=None, refusal=refusal, hand_over=hand_over)
