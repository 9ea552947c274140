"""When a drain may leave the pods on a node's other GPUs, and what it falls back to."""

from typing import Any

import msgspec
import pytest

from rules.api.nodes import HealthView, QuarantineView
from rules.repair.ladder import Step
from rules.session.drain_scope import in_effect, needed_by
from tests.support.scenario.provider_world import ProviderWorld
from tests.support.scenario.session_world import policy_of

HOLDERS = policy_of(drain={"scope": "Holders"})


def session_for(incident: dict[str, Any], **drain: str) -> QuarantineView:
    return msgspec.convert(
        {
            "metadata": {"name": "s"},
            "spec": {
                "nodeName": "n0",
                "causes": [{"source": "Detector", "incident": "i1", "reason": incident["reason"]}],
            },
            "status": {"phase": "Draining", "drain": drain} if drain else {},
        },
        QuarantineView,
    )


def health_of(incident: dict[str, Any], product: str, interconnect: str) -> HealthView:
    status = {
        "gpus": [{"uuid": f"GPU-{at}", "product": product} for at in range(8)],
        "topology": {"interconnect": interconnect},
        "incidents": [{"id": "i1", "active": True, **incident}],
    }
    return msgspec.convert({"metadata": {"name": "n0"}, "status": status}, HealthView)


@pytest.mark.parametrize(
    ("incident", "product", "interconnect", "scope", "why"),
    [
        ({}, "NVIDIA H100 80GB HBM3", "nvswitch", "Holders", ""),
        ({}, "NVIDIA A100-PCIE-80GB", "none", "Holders", ""),
        ({}, "NVIDIA A100-SXM4-80GB", "nvswitch", "GPUPods", "only be reset together"),
        ({"scope": "Domain"}, "NVIDIA H100 80GB HBM3", "nvswitch", "GPUPods", "more than one GPU"),
        ({"gpus": []}, "NVIDIA H100 80GB HBM3", "nvswitch", "GPUPods", "no cause names a GPU"),
    ],
)
def test_holders_needs_a_gpu_that_can_be_reset_alone(
    incident: dict[str, Any], product: str, interconnect: str, scope: str, why: str
) -> None:
    found = {"reason": "Xid119GSPRPCTimeout", "gpus": ["GPU-3"], "scope": "GPU", **incident}
    session = session_for(found)
    health = health_of(found, product, interconnect)
    choice = in_effect(session, session.spec.causes, health, HOLDERS)
    assert choice.scope == scope
    assert why in choice.why
    assert bool(why) == bool(choice.why)


def test_without_a_health_status_no_pod_on_another_gpu_stays() -> None:
    session = session_for({"reason": "Xid119GSPRPCTimeout"})
    assert in_effect(session, session.spec.causes, None, HOLDERS).scope == "GPUPods"


@pytest.mark.parametrize("recorded", ["Node", "GPUPods", "unknown to this release"])
def test_a_recorded_scope_never_narrows(recorded: str) -> None:
    found = {"reason": "Xid119GSPRPCTimeout", "gpus": ["GPU-3"], "scope": "GPU"}
    session = session_for(found, scope=recorded)
    health = health_of(found, "NVIDIA H100 80GB HBM3", "nvswitch")
    choice = in_effect(session, session.spec.causes, health, HOLDERS)
    assert choice.scope == ("GPUPods" if recorded == "GPUPods" else "Node")


def test_a_reset_that_names_no_gpu_needs_all_gpu_pods_gone() -> None:
    named = ProviderWorld("Resets", "ResetGPU").action
    assert needed_by(Step.RESET_GPU, named) == "Holders"
    assert needed_by(Step.RESET_GPU, None) == "GPUPods"
    assert needed_by(Step.RESTART_DRIVER, named) == "GPUPods"
    for step in (Step.RESTART_NODE, Step.POWER_CYCLE, Step.REPLACE_NODE):
        assert needed_by(step, named) == "Node"
