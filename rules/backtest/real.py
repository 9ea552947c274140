"""Sessions that really were: their phases, the repair steps they asked for, the tests they made.

Read from GPUQuarantine objects, and where those are gone from GPURecord events. A back-test asks
here how a step went then (`rules.backtest.outcomes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from rules.api.nodes import QuarantineView
from rules.api.quarantine import (
    Mode,
    Phase,
    RepairAttempt,
    RepairBefore,
    RepairState,
    ValidationAttempt,
    ValidationState,
)
from rules.api.timestamps import parse_time
from rules.session.causes import ended_by_person, has_human
from rules.session.observation import is_open
from rules.session.status import NEW_BOOT

BOOT_SEEN_S: Final = 60.0
"""A new boot is noted within this time after a step is over; it is the step's."""
EVIDENCE: Final = "Evidence"
"""Timeline entry: the digest of what the agent kept is on record."""
_WORDS: Final = frozenset(
    {
        ValidationState.PASSED,
        ValidationState.FAILED,
        ValidationState.UNKNOWN,
        ValidationState.OUTDATED,
    }
)
"""Tests that came to something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealStep:
    """One repair step as it went."""

    step: str
    state: str
    adapter: str = ""
    asked: float | None = None
    """When whoever does it was asked; None: nobody could be."""
    ended: float | None = None
    """When it was proven or given up; None: nobody knows."""
    proof: str = ""
    boots: tuple[float, ...] = ()
    """When the new boots were noted that came with it."""
    before: RepairBefore = field(default_factory=RepairBefore)

    @property
    def proven(self) -> bool:
        """Whether it happened."""
        return self.state == RepairState.PROVEN

    def covers(self, at: float) -> bool:
        """Whether a boot noted then came with it."""
        if self.asked is None or at < self.asked:
            return False
        return self.ended is None or at <= self.ended + BOOT_SEEN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTest:
    """One test under load as it went."""

    took_s: float
    attempt: ValidationAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSession:
    """A session that really was."""

    name: str
    node: str
    mode: str
    opened: float
    marked: float | None
    drained: float | None
    ended: float | None
    phase: str
    undone: bool
    drain_s: float | None
    """How long its drain took, infinite where it never ended; None where there was none or nobody
    knows.
    """
    node_uid: str = ""
    incidents: frozenset[str] = frozenset()
    """What its causes rest on: another policy's session for the same is the same case."""
    steps: tuple[RealStep, ...] = ()
    tests: tuple[RealTest, ...] = ()
    evidence_s: float | None = None
    """How long after the mark its evidence was kept; None: it never was."""


def real_session(session: QuarantineView) -> RealSession:
    """One session as its object tells it."""
    first: dict[str, float] = {}
    boots = []
    for entry in session.status.timeline:
        at = parse_time(entry.at)
        if at is not None:
            first.setdefault(entry.step, at)
            if entry.step == NEW_BOOT:
                boots.append(at)
    ended = None if is_open(session) else parse_time(session.status.phase_since)
    draining, drained = first.get(Phase.DRAINING), first.get(Phase.QUARANTINED)
    took = None
    if draining is not None:
        # One that never ended, ends in no replay before its session does.
        took = drained - draining if drained is not None else math.inf
    marked, kept = first.get(Phase.MARKED), first.get(EVIDENCE)
    return RealSession(
        name=session.name,
        node=session.spec.node_name,
        mode=session.status.mode or str(Mode.SHADOW),
        opened=session.metadata.created_at,
        marked=marked,
        drained=drained,
        ended=ended,
        phase=session.status.phase,
        undone=not is_open(session) and ended_by_person(session) and not has_human(session),
        drain_s=took,
        node_uid=session.spec.node_uid,
        incidents=frozenset(c.incident for c in session.spec.causes if c.incident),
        steps=tuple(_step(attempt, boots) for attempt in session.status.repair),
        tests=tuple(_tests(session.status.validation)),
        evidence_s=max(0.0, kept - marked) if kept is not None and marked is not None else None,
    )


def _step(attempt: RepairAttempt, boots: Iterable[float]) -> RealStep:
    known = attempt.state in {RepairState.PROVEN, RepairState.ASKED}
    # Older releases did not write down when it was asked for.
    began = parse_time(attempt.asked_at) or (parse_time(attempt.started_at) if known else None)
    step = RealStep(
        step=attempt.step,
        state=attempt.state,
        adapter=attempt.adapter,
        asked=began,
        ended=parse_time(attempt.ended_at),
        proof=attempt.proof,
        before=attempt.before,
    )
    return replace(step, boots=tuple(at for at in boots if step.covers(at)))


def _tests(attempts: Iterable[ValidationAttempt]) -> Iterable[RealTest]:
    for attempt in attempts:
        began, ended = parse_time(attempt.started_at), parse_time(attempt.ended_at)
        if attempt.state in _WORDS and began is not None and ended is not None:
            yield RealTest(took_s=max(0.0, ended - began), attempt=attempt)
