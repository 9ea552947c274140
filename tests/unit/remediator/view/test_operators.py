"""The PEOPLE column: decisions of operators, and what a session needs from them."""

import msgspec
import pytest

from remediator.view.operators import MUST_ACT, MUST_APPROVE, MUST_RELEASE, part_of_people
from rules.api.nodes import HealthView, PauseView, QuarantineView
from rules.api.quarantine import Cause, Condition, ReleaseRequest
from rules.catalog.why_not import WhyNot
from tests.support.remediator.page_fleet import NOW, node, session

HELD = node("b", metadata={"annotations": {"gpuward.io/hold": "parts"}})


@pytest.mark.parametrize(
    ("reason", "status", "arguments"),
    [
        (WhyNot.APPROVAL, "True", (MUST_APPROVE,)),
        (WhyNot.BUDGET_NEVER_ALLOWS, "True", (MUST_ACT,)),
        ("OfALaterRelease", "True", (MUST_ACT,)),
        (WhyNot.APPROVAL, "False", ()),
        (WhyNot.OPT_OUT, "True", ()),
    ],
)
def test_a_session_that_needs_an_operator_shows_for_what(
    reason: str, status: str, arguments: tuple[str, ...]
) -> None:
    needs = Condition(type="NeedsHuman", status=status, reason=reason)
    there = session("b-1", "b", "Quarantined", conditions=(needs,))
    assert part_of_people(node("b"), there, (), NOW) == arguments
    assert part_of_people(HELD, there, (), NOW) == ("held", *arguments)


def test_a_pause_of_the_fleet_does_not_hide_what_a_node_needs_from_its_operator() -> None:
    pause = msgspec.convert(
        {"metadata": {"name": "p"}, "spec": {"scope": {"all": True}, "by": "ann"}}, PauseView
    )
    there = by_hand("Quarantined")
    closed = health_with(active=False, of=there)
    assert part_of_people(node("b"), there, (pause,), NOW, closed) == ("paused", MUST_RELEASE)


def by_hand(phase: str, **spec: object) -> QuarantineView:
    """A session that an operator joined, or asked for."""
    there = session("b-1", "b", phase)
    asked = Cause(source="Human", reason="Manual", by="ann")
    found = {"causes": (*there.spec.causes, asked), **spec}
    return msgspec.structs.replace(there, spec=msgspec.structs.replace(there.spec, **found))


def health_with(*, active: bool, of: QuarantineView) -> HealthView:
    """The node's health status knows the session's incident."""
    message = [
        {"id": c.incident, "reason": c.reason, "active": active}
        for c in of.spec.causes
        if c.incident
    ]
    return msgspec.convert(
        {"metadata": {"name": "b"}, "status": {"incidents": message}}, HealthView
    )


def test_an_operator_ends_what_only_operators_requested() -> None:
    there = by_hand("Quarantined")
    closed = health_with(active=False, of=there)
    assert part_of_people(node("b"), there, (), NOW, closed) == (MUST_RELEASE,)
    assert part_of_people(HELD, there, (), NOW, closed) == ("held",)
    assert part_of_people(node("b"), there, (), NOW, health_with(active=True, of=there)) == ()
    assert part_of_people(node("b"), there, (), NOW) == (), "nobody knows that the fault is gone"
    assert part_of_people(node("b"), by_hand("Draining"), (), NOW, closed) == ()
    assert part_of_people(node("b"), by_hand("Marked"), (), NOW, closed) == (), "its turn comes"
    cordoned = by_hand("Marked", level="Cordon")
    assert part_of_people(node("b"), cordoned, (), NOW, closed) == (MUST_RELEASE,)
    given = by_hand("Quarantined", release=ReleaseRequest(by="ann"))
    assert part_of_people(node("b"), given, (), NOW, closed) == ()


def test_a_requested_release_needs_no_operator() -> None:
    needs = Condition(type="NeedsHuman", reason=WhyNot.APPROVAL)
    there = session("b-1", "b", "Quarantined", conditions=(needs,))
    asked = msgspec.structs.replace(there.spec, release=ReleaseRequest(by="ann"))
    assert part_of_people(node("b"), msgspec.structs.replace(there, spec=asked), (), NOW) == ()


def test_an_ended_session_with_its_taint_shows_only_what_it_needs() -> None:
    needs = tuple(Condition(type=kind, reason="MarkRefused") for kind in ("Blocked", "NeedsHuman"))
    there = session("b-1", "b", "Released", hold=True, conditions=needs)
    assert part_of_people(node("b"), there, (), NOW) == (MUST_ACT,)
