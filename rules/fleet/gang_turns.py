"""Gangs across nodes: drain the bad nodes of one gang together, heal Kueue's one at a time.

Used by `rules.fleet.drain_turns` for the turn to drain. Which gangs a draining node had is read
from its session's evidence: once its pods are gone, nothing else remembers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase
from rules.api.timestamps import parse_time, utc
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain.gangs import Gang
from rules.session.causes import EVIDENCE_GANGS
from rules.session.snapshot import FleetSnapshot

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
        since = parse_time(session.status.phase_since) or snapshot.now
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
    marked_at: float,
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
    # Mates that failed while nobody of ours looked are collected as well.
    collecting_since = max(marked_at, snapshot.observing_since)
    until = collecting_since + snapshot.policy.drain.gang_window_s
    if snapshot.now >= until:
        return None
    mates = [
        name
        for name in waiting
        if name != node and restarting & _keys(snapshot.gangs.get(name, ()))
    ]
    with_mates = f", {len(mates)} more bad nodes of it so far" if mates else ""
    return Refusal(
        reason=WhyNot.GANG_WINDOW,
        why=f"gang {min(restarting)} is drained in one go, its bad nodes are collected until "
        f"{utc(until)}{with_mates}",
        until=until,
    )


def _keys(gangs: Iterable[Gang]) -> set[str]:
    return {gang.key for gang in gangs}
