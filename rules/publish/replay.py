"""Recorded facts judged in virtual time: the same judgement as live, with the clock of the record.

Called by `gpuward-agent replay`. Between two facts every deadline passes that would have passed,
and a new boot is a new agent that reads back what the last one published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from rules.api.health import HealthStatus
from rules.catalog.thresholds import Thresholds
from rules.judge.change import ChangeKind
from rules.judge.incident import Incident
from rules.judge.judge import judge, next_deadline
from rules.judge.observation import (
    NodeSeen,
    Observation,
    SourceChanged,
    SourceName,
    SourceState,
    Tick,
)
from rules.judge.restore import restore
from rules.judge.state import NodeState, initial
from rules.publish.publication import Identity, publish
from rules.publish.verdict import verdict

AFTER_S = 3600.0
"""How long after its last fact the record goes on: what waits for time is then known."""
_MOST_TICKS = 100_000
_TOLD = frozenset({ChangeKind.OPENED, ChangeKind.RAISED, ChangeKind.LOWERED, ChangeKind.CLOSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One entry of the timeline."""

    at: float
    kind: str
    incident: Incident


@dataclass(slots=True)
class Timeline:
    """What one node's record meant."""

    happenings: list[Happening] = field(default_factory=list)
    status: HealthStatus = field(default_factory=HealthStatus)
    """What the agent would publish at the end."""
    facts: int = 0


def replayed(
    facts: Iterable[tuple[float, str, Observation]],
    node: str,
    rules: Thresholds,
    identity: Identity,
) -> Timeline:
    """Judge facts in order of time; each comes as (time, boot, fact)."""
    told = Timeline()
    state: NodeState | None = None
    boot, now, ticks = "", 0.0, 0

    def take(state: NodeState, fact: Observation) -> NodeState:
        state, changes = judge(state, fact, now, rules)
        told.happenings += [
            Happening(at=now, kind=str(change.kind), incident=change.incident)
            for change in changes
            if change.kind in _TOLD and change.incident is not None
        ]
        return state

    def pass_time(state: NodeState, until: float) -> NodeState:
        nonlocal now, ticks
        while (due := next_deadline(state)) is not None and due <= until and ticks < _MOST_TICKS:
            ticks += 1
            now = max(now, due)
            state = take(state, Tick(at=now))
            if next_deadline(state) == due:
                break
        return state

    for at, in_boot, fact in facts:
        if state is None or in_boot != boot:
            if state is not None:
                state = pass_time(state, at)
            now = max(now, at)
            state = _started(state, now, in_boot, node, rules, identity)
            boot = in_boot
            for seen in _senses(now, node, boot):
                state = take(state, seen)
        state = pass_time(state, at)
        now = max(now, at)
        state = take(state, fact)
        told.facts += 1
    if state is not None:
        state = pass_time(state, now + AFTER_S)
        now += AFTER_S
        state = take(state, Tick(at=now))
        told.status = publish(state, verdict(state, now, rules), now, identity).status
    return told


def _started(
    before: NodeState | None,
    now: float,
    boot: str,
    node: str,
    rules: Thresholds,
    identity: Identity,
) -> NodeState:
    if before is None:
        return initial(now, boot_id=boot, node_name=node)
    status = publish(before, verdict(before, now, rules), now, identity).status
    read = msgspec.json.decode(msgspec.json.encode(status), type=HealthStatus)
    return restore(read, now, boot_id=boot, node_name=node)


def _senses(now: float, node: str, boot: str) -> tuple[Observation, ...]:
    """A record holds the kernel log, and nothing of what NVML would have said."""
    return (
        NodeSeen(at=now, name=node, uid="", boot_id=boot, annotations={}, labels={}),
        SourceChanged(at=now, source=SourceName.NVML, state=SourceState.ABSENT, reason="Recorded"),
        SourceChanged(at=now, source=SourceName.KERNEL_LOG, state=SourceState.UP, reason=""),
    )
