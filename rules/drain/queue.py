"""Order evictions: one in flight per PDB across all nodes, fair between nodes.

`due` returns what to send now, `answered` and `pdb_changed` update the state. A refusal by a PDB
delays its queue: ten pods with one full PDB are one request at a time, each for another pod. A
refusal for another reason delays only that pod. A node's turn is over with an accepted eviction,
so a node whose eviction was refused stays next. Pods without a PDB share no queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api.writes import EvictPod
from rules.drain.eviction import EvictionOutcome

BACKOFF_S: Final = (2.0, 60.0)
"""The shortest and longest back-off per PDB in seconds: a disruption that becomes allowed is used
within a minute, and a refusal costs one request a minute."""
_LONGEST_IN_FLIGHT_S: Final = 60.0
"""A cancelled eviction must not block its PDB forever."""
_RETRY_S: Final = 0.25
"""The first delay after other responses; it grows with each retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetQueue:
    """The queue of one PDB."""

    in_flight: str = ""
    """UID of the pod whose eviction is in flight; "" for none."""
    sent_at: float = 0.0
    failures: int = 0
    not_before: float = 0.0
    turn: int = 0
    served: Mapping[str, int] = field(default_factory=dict)
    """The turn of each node's last accepted eviction. The node with the oldest one is next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A pod whose eviction was refused."""

    failures: int = 0
    not_before: float = 0.0
    by_budget: int = 0
    """How often its PDB refused. The next eviction is for another pod of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdbQueue:
    """All queues by PDB key; refused pods, and pods in flight without a PDB, by UID."""

    budget_queues: Mapping[str, BudgetQueue] = field(default_factory=dict)
    refused: Mapping[str, Refused] = field(default_factory=dict)
    free_in_flight: frozenset[str] = frozenset()
    paused_until: float = 0.0
    """Until when the API server asked to wait."""


_NEVER: Final = Refused()


def due(
    queue: PdbQueue, wanted: Iterable[EvictPod], now: float
) -> tuple[PdbQueue, tuple[EvictPod, ...]]:
    """Return the evictions to send now, out of all nodes' candidates, and the new state.

    The back-off of a pod that is not a candidate any more is dropped.
    """
    candidates = list(wanted)
    uids = {eviction.uid for eviction in candidates}
    refused = {uid: entry for uid, entry in queue.refused.items() if uid in uids}
    queue = replace(queue, refused=refused)
    if now < queue.paused_until:
        return queue, ()
    budget_queues = dict(queue.budget_queues)
    free = set(queue.free_in_flight)
    in_flight = {
        budget_queue.in_flight
        for budget_queue in budget_queues.values()
        if _busy(budget_queue, now)
    }
    waiting: dict[str, list[EvictPod]] = {}
    send: list[EvictPod] = []
    for eviction in candidates:
        if eviction.uid in free or eviction.uid in in_flight:
            continue
        if refused.get(eviction.uid, _NEVER).not_before > now:
            continue
        if eviction.pdb:
            waiting.setdefault(eviction.pdb, []).append(eviction)
        else:
            free.add(eviction.uid)
            send.append(eviction)
    for key, evictions in waiting.items():
        budget_queue = budget_queues.get(key, BudgetQueue())
        if _busy(budget_queue, now) or now < budget_queue.not_before:
            continue
        chosen = _next(budget_queue, evictions, refused)
        budget_queues[key] = replace(budget_queue, in_flight=chosen.uid, sent_at=now)
        send.append(chosen)
    return replace(queue, budget_queues=budget_queues, free_in_flight=frozenset(free)), tuple(send)


def _next(
    budget_queue: BudgetQueue, evictions: list[EvictPod], refused: Mapping[str, Refused]
) -> EvictPod:
    """Return the least often refused pod of the node with the oldest turn."""

    def order(eviction: EvictPod) -> tuple[int, int]:
        known = refused.get(eviction.uid, _NEVER)
        return budget_queue.served.get(eviction.node, 0), known.by_budget + known.failures

    return min(evictions, key=order)


def answered(
    queue: PdbQueue,
    eviction: EvictPod,
    outcome: EvictionOutcome,
    now: float,
    jitter: float,
) -> PdbQueue:
    """Record a response. `jitter` in [0, 1) spreads the back-off over half of its length."""
    if outcome.stops_all:
        pause_s = max(outcome.retry_after_s, 1.0)
        queue = replace(queue, paused_until=max(queue.paused_until, now + pause_s))
    budget_queue = queue.budget_queues.get(eviction.pdb, BudgetQueue())
    refused = dict(queue.refused)
    known = refused.pop(eviction.uid, _NEVER)
    if budget_queue.in_flight == eviction.uid:
        budget_queue = replace(budget_queue, in_flight="")
    if outcome.done:
        budget_queue = replace(budget_queue, failures=0, not_before=0.0)
        if outcome.accepted and not eviction.dry_run:
            budget_queue = _turn_taken(budget_queue, eviction.node)
    elif eviction.pdb and outcome.by_budget:
        refused[eviction.uid] = replace(known, by_budget=known.by_budget + 1)
        wait_s = _wait_s(BACKOFF_S[0], budget_queue.failures, outcome, jitter)
        budget_queue = replace(
            budget_queue, failures=budget_queue.failures + 1, not_before=now + wait_s
        )
    else:
        first_s = BACKOFF_S[0] if outcome.backs_off else _RETRY_S
        wait_s = _wait_s(first_s, known.failures, outcome, jitter)
        refused[eviction.uid] = replace(
            known, failures=known.failures + 1, not_before=now + wait_s
        )
    return replace(
        queue,
        refused=refused,
        free_in_flight=queue.free_in_flight - {eviction.uid},
        budget_queues={**queue.budget_queues, eviction.pdb: budget_queue}
        if eviction.pdb
        else queue.budget_queues,
    )


def _wait_s(first_s: float, failures: int, outcome: EvictionOutcome, jitter: float) -> float:
    wait_s = first_s * 2.0 ** min(failures, 16) * (0.75 + 0.5 * jitter)
    return max(min(wait_s, BACKOFF_S[1]), outcome.retry_after_s)


def _turn_taken(budget_queue: BudgetQueue, node: str) -> BudgetQueue:
    turn = budget_queue.turn + 1
    return replace(budget_queue, turn=turn, served={**budget_queue.served, node: turn})


def pdb_changed(queue: PdbQueue, key: str) -> PdbQueue:
    """Reset the back-off of a PDB that changed."""
    budget_queue = queue.budget_queues.get(key)
    if budget_queue is None:
        return queue
    return replace(
        queue,
        budget_queues={
            **queue.budget_queues,
            key: replace(budget_queue, failures=0, not_before=0.0),
        },
    )


def next_due_at(queue: PdbQueue, wanted: Iterable[EvictPod], now: float) -> float | None:
    """Return when `due` may return more without any event; None if it needs one."""
    moments = {queue.paused_until} if queue.paused_until > now else set()
    for eviction in wanted:
        own = queue.refused.get(eviction.uid, _NEVER).not_before
        budget_queue = (
            queue.budget_queues.get(eviction.pdb, BudgetQueue()) if eviction.pdb else BudgetQueue()
        )
        opens_at = (
            budget_queue.sent_at + _LONGEST_IN_FLIGHT_S
            if budget_queue.in_flight
            else budget_queue.not_before
        )
        at = max(own, opens_at)
        if at > now:
            moments.add(at)
    return min(moments, default=None)


def _busy(budget_queue: BudgetQueue, now: float) -> bool:
    return bool(budget_queue.in_flight) and now - budget_queue.sent_at < _LONGEST_IN_FLIGHT_S
