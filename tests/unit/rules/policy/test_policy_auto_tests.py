"""Provider Auto tests nodes where component `validate` is installed."""

from __future__ import annotations

import pytest

from rules.policy.policy import Policy, with_installed
from rules.policy.reader import load_policy


@pytest.mark.parametrize(
    ("provider", "installed", "without"),
    [("Auto", True, False), ("None", False, False), ("Job", True, True)],
)
def test_auto_tests_where_the_component_is_installed(
    provider: str, installed: bool, without: bool
) -> None:
    policy = load_policy({"validate": {"provider": provider}})
    assert isinstance(policy, Policy)
    assert with_installed(policy, validate=True).validate.tests == installed
    assert with_installed(policy, validate=False).validate.tests == without
