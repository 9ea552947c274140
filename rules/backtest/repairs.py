"""What follows when a policy asks for a repair step or a test: what followed then, at its time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from rules.api.nodes import QuarantineView
from rules.api.quarantine import RepairAttempt, RepairState
from rules.backtest.outcomes import (
    GAVE_UP,
    REFUSES,
    StepOutcome,
    outcome_of_step,
    outcome_of_test,
    same_case,
)
from rules.backtest.past import Past
from rules.backtest.real import BOOT_SEEN_S
from rules.backtest.stage import Stage
from rules.repair.ladder import Step
from rules.session.repair.wants import under_way
from rules.session.validation.verdicts import under_way as test_under_way

At = Callable[[float, str, Callable[[], None]], None]
"""Lets something happen to a node at a time."""
_BOOTS: Final = frozenset({Step.RESTART_NODE, Step.POWER_CYCLE})


class Repairs:
    """Steps and tests of one replay."""

    def __init__(self, past: Past, stage: Stage, at: At, guessed: dict[str, list[str]]) -> None:
        self._past = past
        self._stage = stage
        self._at = at
        self._guessed = guessed

    def recorded(self, session: QuarantineView) -> None:
        """A step stands on record: whether anybody can be asked for it, shows from now on."""
        attempt = under_way(session.status)
        node = session.spec.node_name
        view = self._stage.nodes.get(node)
        if view is None:
            return
        known = view.annotations.get(REFUSES)
        refuses = None
        if attempt is not None and attempt.state == RepairState.PLANNED:
            refuses = attempt.step if self._outcome(session, attempt).refused else None
        if attempt is None or refuses is not None:
            if known != refuses:
                self._stage.notes(node, REFUSES, refuses)
            if attempt is None and GAVE_UP in view.annotations:
                self._stage.notes(node, GAVE_UP, None)

    def asked(self, session: QuarantineView) -> None:
        """Somebody is asked for the step under way: what followed then follows now."""
        attempt = under_way(session.status)
        if attempt is None:
            return
        outcome, node, now = (
            self._outcome(session, attempt),
            session.spec.node_name,
            self._stage.now,
        )
        real = outcome.real
        if real is None or real.asked is None or outcome.milder:
            self._guessed[session.name].append(attempt.step)
        if real is None or real.asked is None:
            return
        its = [f for f in self._past.faults if f.step is real and f.ended is not None]
        for fault in its:
            at = now + max(0.0, (fault.ended or 0.0) - real.asked)
            self._at(at, node, partial(self._stage.mend, [fault]))
        if outcome.gives_up and real.ended is not None:
            ends = now + max(0.0, real.ended - real.asked)
            self._at(ends, node, partial(self._stage.notes, node, GAVE_UP, attempt.step))
        if self._is_gone_with(node, real.asked, real.ended):
            return
        for boot in real.boots:
            self._at(now + boot - real.asked, node, partial(self._stage.boots, node))
        if real.proven and real.ended is not None:
            ends = now + max(0.0, real.ended - real.asked)
            if attempt.step in _BOOTS and not real.boots:
                self._at(ends, node, partial(self._stage.boots, node))
            self._at(ends, node, partial(self._proven, node, attempt))
        elif real.boots:
            ends = now + real.boots[-1] - real.asked + BOOT_SEEN_S
            self._at(ends, node, partial(self._stage.publish, node))

    def tested(self, session: QuarantineView, job: str) -> None:
        """The Job of a test is made: it ends as it ended."""
        test = test_under_way(session.status)
        if test is None:
            return
        real = outcome_of_test(test, session, same_case(session, self._past.sessions))
        if real is None:
            self._guessed[session.name].append("test under load")
        ends = self._stage.now + (real.took_s if real is not None else 0.0)
        node = session.spec.node_name
        self._at(ends, node, partial(self._stage.makes, job, ends, real))
        self._stage.makes(job, ends, real)

    def _outcome(self, session: QuarantineView, attempt: RepairAttempt) -> StepOutcome:
        return outcome_of_step(attempt, same_case(session, self._past.sessions))

    def _is_gone_with(self, node: str, asked: float, ended: float | None) -> bool:
        """Whether the step ended with the Node object, which goes at its own time."""
        return any(
            went.node == node and asked <= went.at <= (ended or asked) + BOOT_SEEN_S
            for went in self._past.went
        )

    def _proven(self, node: str, attempt: RepairAttempt) -> None:
        exchanged = attempt.step == Step.REPLACE_NODE
        accused = [gpu for gpu in attempt.before.gpus if gpu.accused]
        if exchanged and not any(gpu.serial for gpu in accused):
            # No serial would show another GPU: the machine is exchanged whole.
            self._stage.goes(node)
            self._stage.comes(node)
            return
        self._stage.reset(node, [gpu.uuid for gpu in accused], exchanged=exchanged)
