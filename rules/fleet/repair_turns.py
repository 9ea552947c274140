"""Who may be repaired now: so many nodes at once, no two that share what the policy names.

A budget of its own: a node that is repaired is out of service already. Derived from the sessions
there are, so that no restart and no second leader forgets a repair that is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase, RepairAttempt
from rules.catalog.reason import severity_rank
from rules.catalog.why_not import Refusal, WhyNot
from rules.fleet.budget import control_plane
from rules.session.causes import causes_now, worst
from rules.session.exclusions import kept_off
from rules.session.observation import Permit, sessions_by_node
from rules.session.repair.ladder import let_go, next_step, under_way
from rules.session.snapshot import FleetSnapshot
from rules.text.printable import count

_GOES: Final = Permit(start=True, drain=True, repair=True, unjudged=None)


def repair_permits(
    opened: Iterable[QuarantineView], snapshot: FleetSnapshot
) -> Mapping[str, Permit]:
    """Turns to be repaired for drained sessions, by name: who is repaired already first, in the
    order in which they began, then the gravest, then who is drained for longest.
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
        and s.status.phase in {Phase.QUARANTINED, Phase.REPAIRING}
        and _wants(s, by_node.get(s.spec.node_name, []), snapshot)
    ]
    for session in sorted(wanting, key=_order):
        permits[session.name] = turns.judge(session)
    return permits


def _began(running: tuple[RepairAttempt, QuarantineView]) -> tuple[str, str]:
    return running[0].started_at, running[1].name


def _order(session: QuarantineView) -> tuple[int, str, str]:
    return -severity_rank(worst(session.spec.causes)), session.status.phase_since, session.name


def _wants(
    session: QuarantineView, siblings: list[QuarantineView], snapshot: FleetSnapshot
) -> bool:
    """Whether it could use a turn: one that is held up takes no place."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None or session.spec.hold or kept_off(node, snapshot):
        return False
    health = snapshot.healths.get(node.name)
    causes = causes_now(session, node, snapshot)
    others = [s for s in siblings if s.name != session.name]
    led = next_step(session, others, causes, health, snapshot.policy, snapshot.now)
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
            self._refused(node) if node is not None else _no(WhyNot.NODE_GONE, "there is no node")
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


def _no(reason: WhyNot, why: str, *, hand_over: bool = False) -> Permit:
    refusal = Refusal(reason=reason, why=why)
    return Permit(start=True, drain=True, unjudged=None, refusal=refusal, hand_over=hand_over)
