"""What a table says of people: what they decided, and what a session needs them for."""

from __future__ import annotations

import msgspec
import pytest

from remediator.view.people import MUST_ACT, MUST_APPROVE, part_of_people
from rules.api.quarantine import Condition, ReleaseRequest
from rules.catalog.why_not import WhyNot
from tests.support.remediator.page_fleet import NOW, node, session

HELD = node("b", metadata={"annotations": {"gpuward.io/hold": "parts"}})


@pytest.mark.parametrize(
    ("reason", "status", "words"),
    [
        (WhyNot.APPROVAL, "True", (MUST_APPROVE,)),
        (WhyNot.BUDGET_NEVER_ALLOWS, "True", (MUST_ACT,)),
        ("OfALaterRelease", "True", (MUST_ACT,)),
        (WhyNot.APPROVAL, "False", ()),
        (WhyNot.OPT_OUT, "True", ()),
    ],
)
def test_a_session_that_needs_a_person_says_for_what(
    reason: str, status: str, words: tuple[str, ...]
) -> None:
    needs = Condition(type="NeedsHuman", status=status, reason=reason)
    there = session("b-1", "b", "Quarantined", conditions=(needs,))
    assert part_of_people(node("b"), there, (), NOW) == words
    assert part_of_people(HELD, there, (), NOW) == ("held", *words)


def test_what_a_person_has_given_back_needs_nobody() -> None:
    needs = Condition(type="NeedsHuman", reason=WhyNot.APPROVAL)
    there = session("b-1", "b", "Quarantined", conditions=(needs,))
    asked = msgspec.structs.replace(there.spec, release=ReleaseRequest(by="ann"))
    assert part_of_people(node("b"), msgspec.structs.replace(there, spec=asked), (), NOW) == ()


def test_of_an_ended_session_that_keeps_its_mark_only_what_it_needs_is_said() -> None:
    needs = tuple(Condition(type=kind, reason="MarkRefused") for kind in ("Blocked", "NeedsHuman"))
    there = session("b-1", "b", "Released", hold=True, conditions=needs)
    assert part_of_people(node("b"), there, (), NOW) == (MUST_ACT,)
