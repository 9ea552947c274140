"""What holds several nodes for the fleet's sake is said once: list, fleet and why."""

from __future__ import annotations

import msgspec
import pytest

from remediator.view.shared_waits import clause_of, shared_waits
from rules.api.nodes import QuarantineView
from tests.support.remediator.kubectl_objects import (
    Object,
    condition,
    session,
    waiting,
)

FULL = "4 of 13 nodes are unavailable, the budget allows 1"
ALIKE = "Xid95 on 3 nodes that share rack=r1 (a, b and c)"
STORM = condition("Storm", "CorrelatedCause", f"The breaker is open: {ALIKE}.")


def views(*objects: Object) -> list[QuarantineView]:
    return [msgspec.convert(one, QuarantineView) for one in objects]


def held(*names: str) -> list[Object]:
    return [waiting(name, "Budget", FULL) for name in names]


def test_only_what_holds_several_for_the_fleet_is_shared() -> None:
    alone = waiting("x", "MaxNew", "the next may at noon")
    own = [waiting(name, "Paused", "paused by ann") for name in ("p", "q")]
    stormy = [waiting(name, "CorrelatedCause", ALIKE, STORM) for name in "abc"]
    found = shared_waits(views(*held("m", "n"), alone, *own, *stormy))
    assert [(one.reason, one.nodes, one.storm) for one in found] == [
        ("CorrelatedCause", 3, True), ("Budget", 2, False),
    ]  # fmt: skip
    assert found[1].line == f"2 nodes wait, Budget: {FULL}"


@pytest.mark.parametrize("phase", ["Released", "Cancelled"])
def test_an_ended_session_waits_for_nothing(phase: str) -> None:
    over = session("x", "x", phase, "m", conditions=[condition("Blocked", "Budget", FULL)])
    assert clause_of(*views(over)) == ""
