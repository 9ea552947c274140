"""Gangs across nodes: drain the bad nodes of one gang together, heal Kueue's one at a time.

Used by ``rules.fleet`` for the turn to be marked (does the gang fit the budget) and the turn to
drain (is the window for mates over). Knows nodes and gang keys only, never pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rules.gang import Gang
from rules.session_time import clock
from rules.snapshot import FleetSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class GangTurn:
    """Whether a node's drain may begin as far as its gangs are concerned."""

    go: bool
    reason: str = ""
    message: str = ""
    until: float | None = None


def shared_gangs(one: Iterable[Gang], other: Iterable[Gang]) -> list[Gang]:
    """The gangs two nodes have in common, sorted."""
    keys = {gang.key for gang in other}
    return sorted(gang for gang in one if gang.key in keys)


def drain_turn(
    node: str,
    marked_at: float,
    waiting: Iterable[str],
    draining: Iterable[str],
    snapshot: FleetSnapshot,
) -> GangTurn:
    """``waiting`` and ``draining`` are other nodes with a session in that state."""
    gangs: Mapping[str, tuple[Gang, ...]] = snapshot.gangs
    own = gangs.get(node, ())
    if not own:
        return GangTurn(go=True)
    draining = tuple(draining)
    for gang in own:
        if not gang.topology_aware:
            continue
        busy = [name for name in draining if shared_gangs([gang], gangs.get(name, ()))]
        pending = [name for name in snapshot.kueue_unhealthy.get(gang.key, ()) if name != node]
        if busy or pending:
            other = min([*busy, *pending])
            return GangTurn(
                go=False,
                reason="KueueReplacing",
                message=f"Kueue still replaces node {other} of {gang.key}",
            )
    restarting = [g for g in own if not g.topology_aware]
    if not restarting:
        return GangTurn(go=True)
    if any(shared_gangs(restarting, gangs.get(name, ())) for name in draining):
        return GangTurn(go=True)
    until = marked_at + snapshot.policy.drain.gang_window_s
    if snapshot.now >= until:
        return GangTurn(go=True)
    mates = [name for name in waiting if shared_gangs(restarting, gangs.get(name, ()))]
    with_mates = f", {len(mates)} more bad nodes of it so far" if mates else ""
    return GangTurn(
        go=False,
        reason="GangWindow",
        message=f"gang {restarting[0].key} is given until {clock(until)} to show all its bad "
        f"nodes{with_mates}",
        until=until,
    )
