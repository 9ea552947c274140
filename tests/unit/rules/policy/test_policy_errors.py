"""Everything that is wrong with a policy is said at once, and what is right is not accused."""

from __future__ import annotations

from typing import Any

import pytest

from rules.policy.policy import Policy
from rules.policy.reader import load_policy


def paths(document: dict[str, Any]) -> list[str]:
    found = load_policy(document)
    return [] if isinstance(found, Policy) else [one.path for one in found]


def test_everything_that_makes_no_sense_is_listed_at_once() -> None:
    document = {
        "nodeSelector": "a in",
        "budget": {"per": ["b", "b c"]},
        "validate": {"timeout": "0s", "template": "A B"},
        "reasons": {"not a reason": {}},
        "external": [{"match": "taint a/b", "reason": "no code"}],
    }
    assert set(paths(document)) == {
        "nodeSelector", "budget.per[1]", "validate.timeout", "validate.template",
        "reasons.not a reason", "external[0].reason",
    }  # fmt: skip


@pytest.mark.parametrize(
    "document", [{"mode": 1}, {"mode": "x", "pods": [{"a": 1}]}, {"a": {}}, {True: 1}, {None: 2}]
)
def test_what_has_an_error_is_never_a_policy(document: dict[str, Any]) -> None:
    assert len(paths(document)) == 1
