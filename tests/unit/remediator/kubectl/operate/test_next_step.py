"""What is foreseen of a node, in the plan's words."""

from __future__ import annotations

import pytest

from remediator.kubectl.node_plan import next_step
from rules.api import writes as d
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import QuarantineSpec, QuarantineStatus
from rules.api.repair.writes import SetRepairCondition
from rules.catalog.why_not import WhyNot
from rules.fleet.forecast import Foreseen
from rules.session.snapshot import FleetSnapshot
from tests.support.scenario.session_parts import policy_of

FLEET = FleetSnapshot(now=0.0, policy=policy_of(), nodes={})
ASKED = SetRepairCondition(
    node="n", node_uid="u", kind="GPUNeedsReset", session="s", step="ResetGPU", asks=True, at=0.0,
    message="m",
)  # fmt: skip


def session(phase: str) -> QuarantineView:
    return QuarantineView(
        metadata=ObjectMeta(name="s"),
        spec=QuarantineSpec(node_name="n"),
        status=QuarantineStatus(phase=phase, mode="Enforce"),
    )


@pytest.mark.parametrize(
    ("found", "would"),
    [
        (Foreseen(node="n"), "nothing"),
        (Foreseen(node="n", unmarked=True), "take the mark off"),
        (Foreseen(node="n", after=session("Pending")), "wait"),
        (Foreseen(node="n", after=session("Released")), "release"),
        (Foreseen(node="n", after=session("Cancelled")), "end, Cancelled"),
        (Foreseen(node="n", after=session("Marked"), marked=True), "cordon and taint"),
        (Foreseen(node="n", after=session("Validating")), "go on to Validating"),
        (
            Foreseen(node="n", before=session("Validating"), after=session("Validating")),
            "stay Validating",
        ),
        (Foreseen(node="n", after=session("Repairing"), asks=ASKED), "ask for ResetGPU"),
    ],
)
def test_each_end_has_its_word(found: Foreseen, would: str) -> None:
    assert next_step(found, FLEET).would == would


@pytest.mark.parametrize(
    ("mark", "would"),
    [("CordonAndTaint", "cordon and taint"), ("Taint", "taint"), ("Cordon", "cordon")],
)
def test_a_mark_that_is_foreseen_is_the_policys_and_not_said_to_be_on(
    mark: str, would: str
) -> None:
    said = d.Decision(step="Mark", message="Cordoned and tainted since 10:00 UTC.")
    found = Foreseen(node="n", after=session("Marked"), marked=True, decision=said)
    fleet = FleetSnapshot(now=0.0, policy=policy_of(mark=mark), nodes={})
    step = next_step(found, fleet)
    assert (step.would, "since" in step.because) == (would, False)
    assert "Cordon" in step.because


def test_what_is_in_the_way_keeps_its_code_and_its_clause() -> None:
    decision = d.Decision(step="Wait", because="no room", blocked_by=WhyNot.BUDGET)
    step = next_step(Foreseen(node="n", after=session("Pending"), decision=decision), FLEET)
    assert (step.because, step.blocked_by) == ("no room", "Budget")
