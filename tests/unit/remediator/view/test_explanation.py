"""What a session waits for, what ends that, and what comes next, for the page and `why`."""

from typing import Any

import msgspec
import pytest

from remediator.view.session_view import REMEDIES, blockers, next_step
from remediator.view.shapes import Explanation
from rules.api.nodes import QuarantineView
from rules.catalog.why_not import WhyNot
from rules.policy.policy import Policy, UnreadPolicy
from tests.support.remediator.kubectl_looks import NAME, SESSION, look
from tests.support.remediator.kubectl_objects import (
    Object,
    ago,
    condition,
    quarantined,
    session,
    sick,
)

ONCE = "when unblocked: "
STUCK = (
    condition("Blocked", "BudgetNeverAllows", "x"),
    condition("NeedsHuman", "BudgetNeverAllows", "x"),
)
STORM = (condition("Storm", "CorrelatedCause", "x"),)
OPTED_OUT = (condition("Paused", "OptOut", "The node is opted out."),)
ASKED = (
    condition("Blocked", "Approval", "x"),
    condition("NeedsHuman", "Approval", "x"),
    condition("RepairProposed", "RestartNode", "RestartNode is proposed."),
)
BLOCK = {"pdb": "s/web", "why": "nothing may go", "permanent": True, "remedy": "relax it",
         "pods": {"named": [{"name": f"s/{name}"} for name in "abc"], "more": 9}}  # fmt: skip
BY_ANN = {"source": "Human", "reason": "Requested", "by": "ann"}


def explained(
    phase: str,
    conditions: tuple[Object, ...] = (),
    *,
    level: str = "Drain",
    closed: bool = False,
    ready: str = "True",
    policy: Policy | None = None,
    **changes: Any,
) -> Explanation:
    spec = {"level": level, **changes.pop("spec", {})}
    one = session(SESSION, NAME, phase, "m", conditions=list(conditions), spec=spec, **changes)
    on = quarantined(NAME, SESSION)
    on["status"]["conditions"] = [{"type": "Ready", "status": ready}] if ready else []
    health = sick(NAME, level=level, closed=closed, publisher={"heartbeat": ago(1)})
    seen = look(health, on=on, **({"policy": policy} if policy else {}))
    view = msgspec.convert(one, QuarantineView)
    return Explanation(blockers=tuple(blockers(view)), next=next_step(view, seen.sight))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (explained("Pending"), "taint and cordon, then its pods are evicted within"),
        (explained("Pending", STORM), f"{ONCE}taint and cordon, then"),
        (explained("Pending", OPTED_OUT), f"{ONCE}taint and cordon, then"),
        (explained("Pending", level="Cordon"), "taint and cordon; its pods stay"),
        (explained("Marked"), "its pods are evicted within their PodDisruptionBudgets"),
        (explained("Marked", OPTED_OUT), f"{ONCE}its pods are evicted"),
        (explained("Marked", level="Cordon"), "its pods stay; when its causes are closed"),
        (explained("Draining"), "phase Quarantined when the last pod is gone"),
        (explained("Draining", STUCK), f"{ONCE}phase Quarantined when"),
        (explained("Quarantined"), "when its causes are closed: phase Validating"),
        (explained("Quarantined", closed=True), "its causes are closed: phase Validating"),
        (explained("Quarantined", spec={"causes": [BY_ANN]}), "an operator quarantined the node"),
        (explained("Repairing"), "phase Validating when the repair is verified"),
        (explained("Validating", closed=True, ready="Unknown"), "the node must be Ready"),
        (explained("Validating", closed=True, ready=""), ""),
        (explained("Draining", spec={"release": {"by": "ann"}}), "released now, as an operator"),
        (explained("Marked", mode="Shadow", policy=Policy()), "nothing in Shadow mode; mode"),
        (explained("Marked", mode="Shadow", policy=UnreadPolicy()),
         "nothing in Shadow mode: the remediator has read no valid policy"),
        (explained("Released", mode="Shadow"), ""),
    ],
)  # fmt: skip
def test_the_next_step_never_skips_a_blocker(made: Explanation, message: str) -> None:
    assert made.next.startswith(message)
    assert bool(made.next) == bool(message)


def test_a_budget_that_blocks_the_drain_is_named_once_with_its_owner_pods_and_remedy() -> None:
    (one,) = explained("Draining", STUCK, drain={"blocked": [BLOCK]}).blockers
    assert (one.what, one.reason, one.permanent) == ("PDB s/web", "BudgetNeverAllows", True)
    assert (one.why, one.remedy, one.pods.total) == ("nothing may go", "relax it", 12)
    unread = (condition("Blocked", "NodeUnreadable", "x"),)
    found = explained("Draining", unread, drain={"blocked": [BLOCK]}).blockers
    assert [each.reason for each in found] == ["NodeUnreadable"] * 2, "the list is an old one"


def test_conditions_are_named_by_their_reason_and_what_the_message_holds_is_not_repeated() -> None:
    (one,) = explained("Quarantined", ASKED).blockers
    assert (one.reason, one.why) == ("Approval", "")
    (paused,) = explained("Pending", OPTED_OUT).blockers
    assert paused.why == "The node is opted out."
    assert paused.command == f"kubectl label node {NAME} gpuward.io/opt-out-"
    (newer,) = explained("Pending", (condition("New", "NewReason", "New."),)).blockers
    assert (newer.reason, newer.why, newer.remedy) == ("NewReason", "New.", "")


def test_every_reason_to_wait_has_a_remedy() -> None:
    assert set(REMEDIES) == set(WhyNot)
    assert all(remedy.text or remedy.command for remedy in REMEDIES.values())
