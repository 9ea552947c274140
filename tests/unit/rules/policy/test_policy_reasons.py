"""Reasons in a policy that nobody publishes are noted with what was probably meant."""

from __future__ import annotations

import pytest

from rules.policy.policy import Policy
from rules.policy.reader import load_policy, unknown_reasons


def noted(reason: str) -> tuple[str, ...]:
    policy = load_policy({"reasons": {reason: {"level": "Report"}}})
    assert isinstance(policy, Policy)
    return unknown_reasons(policy)


@pytest.mark.parametrize(
    "reason", ["Xid79GPUFallenOffBus", "RowRemapFailure", "ThermalSlowdown", "Xid4711Unknown"]
)
def test_what_is_published_needs_no_note(reason: str) -> None:
    assert noted(reason) == ()


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        pytest.param("Xid79", "did you mean Xid79GPUFallenOffBus?", id="only the number"),
        pytest.param("ThermalSlowDown", "did you mean ThermalSlowdown?", id="case"),
        pytest.param("Qwertyuiop", "of this version; it changes nothing", id="nothing near"),
    ],
)
def test_a_slip_is_named_with_what_was_meant(reason: str, meant: str) -> None:
    (note,) = noted(reason)
    assert note.startswith(f"reasons.{reason} is no reason")
    assert meant in note
