"""The order of evictions: one in flight per PDB over all nodes, fair between nodes.

Pure state for the eviction worker: ``due`` says what to send now, ``answered`` and ``pdb_changed``
move the state. Back-off belongs to the PDB, not to the pod: ten pods behind one full budget are
one question, not ten. Pods without a PDB share no queue and are only rate limited by the edge.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rules.decision import EvictPod
from rules.eviction import EvictionOutcome
from rules.policy import Backoff

_LONGEST_IN_FLIGHT_S: Final = 60.0
"""A worker that never answered (it was cancelled) must not close its PDB for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The queue of one PDB."""

    in_flight: str = ""
    """UID of the pod being asked for, "" when nobody is."""
    sent_at: float = 0.0
    failures: int = 0
    not_before: float = 0.0
    turn: int = 0
    served: Mapping[str, int] = field(default_factory=dict)
    """The turn in which each node was last served: the longest ago goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdbQueue:
    """All lanes, by PDB key; and the UIDs in flight that have no PDB."""

    lanes: Mapping[str, Lane] = field(default_factory=dict)
    free_in_flight: frozenset[str] = frozenset()
    paused_until: float = 0.0
    """The API server itself asked for patience."""


def due(
    queue: PdbQueue, wanted: Iterable[EvictPod], now: float
) -> tuple[PdbQueue, tuple[EvictPod, ...]]:
    """What to send now out of all nodes' candidates (in each node's order), and the new state."""
    if now < queue.paused_until:
        return queue, ()
    lanes = dict(queue.lanes)
    free = set(queue.free_in_flight)
    waiting: dict[str, list[EvictPod]] = {}
    send: list[EvictPod] = []
    for eviction in wanted:
        if eviction.pdb:
            waiting.setdefault(eviction.pdb, []).append(eviction)
        elif eviction.uid not in free:
            free.add(eviction.uid)
            send.append(eviction)
    for key, evictions in waiting.items():
        lane = lanes.get(key, Lane())
        busy = lane.in_flight and now - lane.sent_at < _LONGEST_IN_FLIGHT_S
        if busy or now < lane.not_before:
            continue
        chosen = min(evictions, key=lambda e: lane.served.get(e.node, 0))
        turn = lane.turn + 1
        lanes[key] = replace(
            lane,
            in_flight=chosen.uid,
            sent_at=now,
            turn=turn,
            served={**lane.served, chosen.node: turn},
        )
        send.append(chosen)
    return replace(queue, lanes=lanes, free_in_flight=frozenset(free)), tuple(send)


def answered(
    queue: PdbQueue,
    eviction: EvictPod,
    outcome: EvictionOutcome,
    backoff: Backoff,
    now: float,
    jitter: float,
) -> PdbQueue:
    """Book an answer. ``jitter`` in [0, 1) spreads the back-off over half of its length."""
    if outcome.kind == "ApiBusy":
        queue = replace(queue, paused_until=now + max(outcome.retry_after_s, 1.0))
    if not eviction.pdb:
        return replace(queue, free_in_flight=queue.free_in_flight - {eviction.uid})
    lane = queue.lanes.get(eviction.pdb, Lane())
    if outcome.backs_off:
        failures = lane.failures + 1
        wait_s = backoff.min_s * 2.0 ** min(failures - 1, 16) * (0.75 + 0.5 * jitter)
        wait_s = max(min(wait_s, backoff.max_s), outcome.retry_after_s)
        lane = replace(lane, in_flight="", failures=failures, not_before=now + wait_s)
    else:
        lane = replace(lane, in_flight="", failures=0, not_before=0.0)
    return replace(queue, lanes={**queue.lanes, eviction.pdb: lane})


def pdb_changed(queue: PdbQueue, key: str) -> PdbQueue:
    """The PDB's own watch saw a change: ask again at once."""
    lane = queue.lanes.get(key)
    if lane is None:
        return queue
    return replace(queue, lanes={**queue.lanes, key: replace(lane, failures=0, not_before=0.0)})


def next_due_at(queue: PdbQueue, wanted: Iterable[EvictPod], now: float) -> float | None:
    """When ``due`` may answer differently because of time alone; None when only an event can."""
    moments = {max(queue.paused_until, now)} if queue.paused_until > now else set()
    for eviction in wanted:
        lane = queue.lanes.get(eviction.pdb)
        if lane is not None and not lane.in_flight and lane.not_before > now:
            moments.add(lane.not_before)
    return min(moments, default=None)
