"""A fence is refused where nothing would make sure that the power is off."""

from __future__ import annotations

from typing import Any

import pytest

from rules.policy.policy import Policy
from rules.policy.reader import load_policy

STEPS: dict[str, Any] = {"PowerCycle": {"adapter": "Metal3", "timeout": "45m"}}
FAR = {"PowerCycle": {"adapter": "FenceAgentsRemediation", "template": "a/b"}}
OWN: dict[str, Any] = {
    "target": {
        "apiVersion": "bmc.example/v1",
        "resource": "hosts",
        "reference": [{"annotation": "bmc.example/host"}],
    },
    "patch": {"metadata": {"annotations": {"bmc.example/off": "now"}}},
    "withdraw": {"when": [{"field": "status.power", "value": "off"}]},
    "fence": {"poweredOff": [{"field": "status.power", "value": "off"}]},
}


def problems(step: str = "PowerCycle", own: dict[str, Any] | None = None, **repair: Any) -> str:
    adapters = {} if own is None else {"Own": {"steps": {step: own}}}
    if own is not None:
        repair = {"steps": {step: {"adapter": "Own"}}, **repair}
    wanted = {"mode": "Auto", "steps": STEPS, "adapters": adapters, **repair}
    loaded = load_policy({"repair": wanted})
    if isinstance(loaded, Policy):
        return ""
    return "; ".join(f"{problem.path}: {problem.message}" for problem in loaded)


@pytest.mark.parametrize(
    ("repair", "said"),
    [
        ({}, ""),
        ({"fence": {}}, ""),
        ({"fence": {"after": "5m", "outOfService": True}}, ""),
        ({"fence": {"after": "30s"}}, "repair.fence.after: must be at least 60s"),
        (
            {"fence": {}, "steps": {"RestartNode": {"adapter": "Metal3"}}},
            "needs repair.steps.Power",
        ),
        ({"fence": {"outOfService": True}, "steps": FAR}, ""),
        ({"fence": {}, "steps": FAR}, "repair.fence.outOfService: must be true with FenceAgents"),
        ({"own": OWN, "fence": {"outOfService": True}}, ""),
        ({"own": {**OWN, "fence": None}, "fence": {}}, "confirms that"),
        ({"own": {**OWN, "fence": {"poweredOff": []}}}, "poweredOff: says nowhere"),
        ({"own": OWN, "step": "RestartNode"}, "is for PowerCycle only"),
        ({"own": {**OWN, "fence": {**OWN["fence"], "endsPods": {"spec": {}}}}}, "create only"),
        ({"own": {**OWN, "withdraw": {"at": "Never"}}}, "keeps the power off for good"),
    ],
)
def test_what_a_fence_needs(repair: dict[str, Any], said: str) -> None:
    found = problems(**repair)
    assert said in found
    assert bool(found) == bool(said)
