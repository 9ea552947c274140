"""Provider Auto means the same at every level of `validate`: who tests is decided where it
stands.
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.policy.policy import Policy, with_installed
from rules.policy.reader import load_policy


def who(validate: dict[str, Any], step: str, *, builtin: bool) -> str:
    policy = load_policy({"validate": validate})
    assert isinstance(policy, Policy)
    chosen = with_installed(policy, builtin=builtin).validate.chosen("Fatal", step)
    return chosen.provider if chosen is not None else "nobody"


@pytest.mark.parametrize(
    ("validate", "installed", "without"),
    [
        ({}, "Builtin", "nobody"),
        ({"provider": "Auto", "step": {"RestartNode": {"provider": "Auto"}}}, "Builtin", "nobody"),
        ({"provider": "None", "severity": {"Fatal": {"provider": "Auto"}}}, "Builtin", "nobody"),
        ({"provider": "None", "step": {"RestartNode": {"provider": "Auto"}}}, "Builtin", "nobody"),
        (
            {"provider": "Job", "template": "diag", "step": {"RestartNode": {"provider": "Auto"}}},
            "Builtin",
            "nobody",
        ),
        ({"severity": {"Fatal": {"provider": "None"}}}, "nobody", "nobody"),
        ({"step": {"RestartNode": {"timeout": "2h"}}}, "Builtin", "nobody"),
        ({"provider": "Job", "template": "diag"}, "Job", "Job"),
    ],
)
def test_auto_is_builtin_where_it_is_installed_at_every_level(
    validate: dict[str, Any], installed: str, without: str
) -> None:
    assert who(validate, "RestartNode", builtin=True) == installed
    assert who(validate, "RestartNode", builtin=False) == without
