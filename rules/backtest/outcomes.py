"""How repair steps and tests went then, for a policy that asks for them now.

A step of the same kind in a session for the same fault goes as it went; a harsher one mends what a
milder one did; of every other nobody knows, and it changes nothing until its time is over. Tests
come out as they did, in their order; one that nobody ever made passes at once. Whatever was on
their objects is not on record, so each adapter is stood in for by one that asks through the Node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api.names import (
    CONDITION_NEEDS_REPLACE,
    CONDITION_NEEDS_RESET,
    CONDITION_NEEDS_RESTART,
    PREFIX,
)
from rules.api.nodes import QuarantineView
from rules.api.quarantine import RepairAttempt, ValidationAttempt
from rules.backtest.real import RealSession, RealStep, RealTest
from rules.policy.policy import Policy, RepairStep
from rules.repair.adapter import Adapter, ObjectMatch, RepairAction
from rules.repair.ladder import Step

STANDS_IN: Final = " as on record"
"""Ends the name of an adapter that is stood in for."""
REFUSES: Final = f"{PREFIX}/back-test-refuses"
GAVE_UP: Final = f"{PREFIX}/back-test-gave-up"
"""Annotations of the replayed Node: nobody can be asked, and whoever was asked gave up."""
_CONDITIONS: Final = {
    Step.RESET_GPU: CONDITION_NEEDS_RESET,
    Step.REPLACE_NODE: CONDITION_NEEDS_REPLACE,
}
_TIMED_OUT: Final = "not proven within"
"""How the proof of a step begins that nobody gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What is to follow after a step was asked for."""

    real: RealStep | None = None
    """None: nobody knows."""
    milder: bool = False
    """It is a milder step that is on record."""

    @property
    def asked(self) -> float:
        """When it was asked for then."""
        return (self.real.asked or 0.0) if self.real is not None else 0.0

    @property
    def gives_up(self) -> bool:
        """Whether whoever was asked gave it up before its time was over."""
        real = self.real
        if real is None or self.milder or real.state != "Failed" or real.asked is None:
            return False
        return real.ended is not None and not real.proof.startswith(_TIMED_OUT)

    @property
    def refused(self) -> bool:
        """Whether nobody could be asked for it."""
        real = self.real
        return real is not None and real.asked is None and real.state == "Failed"


def stood_in(policy: Policy) -> Policy:
    """The policy with adapters that ask through conditions of the Node, whoever is asked in
    truth.
    """
    steps: dict[Step, RepairStep] = {}
    adapters: dict[str, Adapter] = {}
    for step, wanted in policy.repair.steps.items():
        name = f"{wanted.adapter}{STANDS_IN}"
        steps[step] = msgspec.structs.replace(wanted, adapter=name)
        if policy.repair.action(wanted.adapter, step) is None:
            continue
        action = RepairAction(
            condition=_CONDITIONS.get(step, CONDITION_NEEDS_RESTART),
            refuse=(ObjectMatch(on="Node", annotation=REFUSES, value=str(step), then="Climb"),),
            failed=(ObjectMatch(on="Node", annotation=GAVE_UP, value=str(step)),),
        )
        known = adapters[name].steps if name in adapters else {}
        adapters[name] = Adapter(steps={**known, step: action})
    repair = msgspec.structs.replace(policy.repair, steps=steps, adapters=adapters)
    return msgspec.structs.replace(policy, repair=repair)


def same_case(session: QuarantineView, real: Iterable[RealSession]) -> list[RealSession]:
    """The sessions that really were for the same fault, or of the same name; oldest first."""
    ids = {cause.incident for cause in session.spec.causes if cause.incident}
    node = session.spec.node_name
    found = [r for r in real if r.name == session.name or (r.node == node and r.incidents & ids)]
    return sorted(found, key=lambda r: (r.opened, r.name))


def outcome_of_step(attempt: RepairAttempt, real: Iterable[RealSession]) -> StepOutcome:
    """How the step goes."""
    steps = [step for session in real for step in session.steps]
    same = [step for step in steps if step.step == attempt.step]
    if same:
        return StepOutcome(real=same[0])
    rank = Step(attempt.step).rank
    below = [s for s in steps if s.proven and s.step in set(Step) and Step(s.step).rank < rank]
    if below:
        return StepOutcome(real=below[-1], milder=True)
    return StepOutcome()


def outcome_of_test(
    test: ValidationAttempt, session: QuarantineView, real: Iterable[RealSession]
) -> RealTest | None:
    """How the test came out; None where nobody made one."""
    tests = [test for session in real for test in session.tests]
    number = [one.object for one in session.status.validation].index(test.object)
    return tests[min(number, len(tests) - 1)] if tests else None
