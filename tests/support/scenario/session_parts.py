"""What a simulated cluster is made with: a policy, and a budget in nobody's way."""

from __future__ import annotations

from typing import Any

from rules.policy.policy import Policy
from rules.policy.reader import load_policy


def policy_of(**sections: Any) -> Policy:
    """An Enforce policy with the given sections, through the strict reader."""
    loaded = load_policy({"mode": "Enforce", **sections})
    assert isinstance(loaded, Policy), loaded
    return loaded


ROOMY = {
    "maxUnavailable": {"percent": 100, "atMost": 1000},
    "maxNew": {"count": 1000, "window": "10m"},
    "perReason": {"count": 1000, "window": "24h"},
}
"""A budget that is in nobody's way, for scenarios about something else."""
