"""The repair ladder as people are shown it: what was tried, what is next, what comes after.

Made of the session, the policy and nothing else, so that the page, `why` and `plan` say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rules.api.health import Wire
from rules.api.nodes import HealthView, QuarantineView
from rules.api.quarantine import Cause, Phase, RepairAttempt
from rules.catalog.reason import Level
from rules.ledger.record import RecordView
from rules.policy.policy import Policy
from rules.repair.ladder import LADDER, Climb, Step
from rules.session.causes import level_in_effect
from rules.session.observation import is_open
from rules.session.repair.wants import lessons, next_step

NEXT, LATER, PASSED = "Next", "Later", "Passed"
"""States of a step that was not taken in this session: it is next, it follows, it is passed over.
"""


class LadderRung(Wire, frozen=True):
    """One step; `state` is that of its attempt, or Next, Later or Passed."""

    step: str
    state: str
    adapter: str = ""
    attempt: int = 0
    started_at: str = ""
    ended_at: str = ""
    said: str = ""
    """What proved it or is missing, or why it is passed over."""

    @property
    def clause(self) -> str:
        """`RestartNode Failed (NodeConditions, attempt 1): ...`."""
        by = ", ".join(
            part for part in (self.adapter, self.attempt and f"attempt {self.attempt}") if part
        )
        said = f": {self.said}" if self.said else ""
        # By itself the word reads like a test that the step passed.
        state = "passed over" if self.state == PASSED else self.state
        return f"{self.step} {state}{f' ({by})' if by else ''}{said}"


def rungs(
    session: QuarantineView,
    siblings: Iterable[QuarantineView],
    causes: Iterable[Cause],
    health: HealthView | None,
    policy: Policy,
    now: float,
    records: Mapping[str, RecordView],
) -> tuple[LadderRung, ...]:
    """From where it begins to its end; what this session tried always. () where nothing is asked
    for, as at a level that leaves the pods alone or once the causes are closed, and nothing was
    tried.
    """
    attempts = session.status.repair
    causes = tuple(causes)
    drains = level_in_effect(session, causes, policy) == Level.DRAIN
    over = session.status.phase == Phase.VALIDATING or not is_open(session)
    if policy.repair.mode == "Off" or not drains or over:
        return tuple(map(_tried, attempts))
    learnt = lessons(session, health, records, now)
    led = next_step(session, siblings, causes, health, policy, now, learnt)
    return tuple(_all(attempts, led, policy))


def _all(attempts: tuple[RepairAttempt, ...], led: Climb, policy: Policy) -> Iterator[LadderRung]:
    passed = dict(led.passed)
    begins = led.begins.rank if led.begins is not None else len(LADDER)
    for step in LADDER:
        mine = [attempt for attempt in attempts if attempt.step == step]
        yield from map(_tried, mine)
        if any(attempt.counts for attempt in mine) or step.rank < begins:
            continue
        yield _untried(step, led, passed.get(step, ""), policy)


def _tried(attempt: RepairAttempt) -> LadderRung:
    return LadderRung(
        step=attempt.step,
        state=attempt.state,
        adapter=attempt.adapter,
        attempt=attempt.attempt,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        said=attempt.proof,
    )


def _untried(step: Step, led: Climb, passed: str, policy: Policy) -> LadderRung:
    wanted = policy.repair.steps.get(step)
    adapter = wanted.adapter if wanted is not None else ""
    if led.rung is not None and led.rung.step == step:
        return LadderRung(step=step, state=NEXT, adapter=adapter, attempt=led.rung.attempt)
    if passed or not adapter:
        return LadderRung(step=step, state=PASSED, said=passed or "has no adapter")
    return LadderRung(step=step, state=LATER, adapter=adapter)
