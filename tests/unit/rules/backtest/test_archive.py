"""What an export holds of a policy: all that decides, nothing that may hold a pod."""

from __future__ import annotations

import msgspec

from rules.backtest.archive import exported_policy
from rules.policy.policy import Policy
from rules.policy.reader import load_policy

SECRET = "hunter2-do-not-leak"
POLICY = {
    "mode": "Enforce",
    "repair": {
        "mode": "Auto",
        "adapters": {
            "Site": {
                "steps": {
                    "RestartNode": {
                        "target": {"apiVersion": "batch/v1", "resource": "jobs", "kind": "Job",
                                   "namespace": "site"},
                        "create": {"spec": {"template": {"spec": {"containers": [
                            {"name": "a", "env": [{"name": "TOKEN", "value": SECRET}]}
                        ]}}}},
                    }
                }
            }
        },
        "steps": {"RestartNode": {"adapter": "Site"}},
    },
}  # fmt: skip


def test_issue14_no_template_of_an_adapter_is_exported() -> None:
    """It may be a pod with an environment; the policy still reads and asks for the same steps."""
    policy = load_policy(POLICY)
    assert isinstance(policy, Policy), policy
    exported = exported_policy(policy)
    assert SECRET.encode() not in msgspec.json.encode(exported)
    again = load_policy(exported)
    assert isinstance(again, Policy), again
    assert again.repair.steps == policy.repair.steps
    assert again.repair.action("Site", "RestartNode") is not None
