"""The one cause that a table or an alert has room for."""

from __future__ import annotations

import pytest

from rules.api.quarantine import Cause, gravest_reason

WEAR = Cause(source="Detector", reason="EccUncorrectableVolatile", severity="Degraded")
LOST = Cause(source="Detector", reason="Xid79GPUFallenOffBus", severity="Fatal")
WORSE = Cause(source="Detector", reason="Xid95UncontainedMemoryError", severity="Fatal")
HUNG = Cause(source="Detector", reason="Xid119GSPTimeout", severity="Fatal")
GONE = Cause(source="Detector", reason="GPULost", severity="Fatal")
OTHERS = Cause(source="External", reason="SomebodysOwn", severity="Fatal")
PERSON = Cause(source="Human", severity="Degraded")


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        pytest.param((), "", id="none"),
        pytest.param((WEAR, LOST, WORSE), LOST.reason, id="the-gravest-and-of-equals-the-first"),
        pytest.param((HUNG, GONE), GONE.reason, id="of-equals-the-one-that-asks-for-more"),
        pytest.param((OTHERS, HUNG), HUNG.reason, id="what-no-catalog-knows-asks-for-nothing"),
        pytest.param((PERSON,), "Human", id="who-says-so"),
    ],
)
def test_walk_a_drain_that_got_worse_is_named_by_the_worst(
    causes: tuple[Cause, ...], expected: str
) -> None:
    assert gravest_reason(causes) == expected
