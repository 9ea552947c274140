"""GPUs that pods hold through ResourceClaims."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rules.api.pods import PodView
from rules.api.workloads import (
    ResourceClaimView,
    ResourceSliceView,
    claim_names,
    free_devices,
)


def pod(*, claims: list[dict[str, Any]], gpus: str = "", **status: Any) -> PodView:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    spec = {"containers": containers, "resourceClaims": claims}
    value = {"metadata": {"name": "p"}, "spec": spec, "status": status}
    return msgspec.convert(value, PodView)


def claim(*devices: tuple[str, str], **more: Any) -> ResourceClaimView:
    results = [
        {"request": "r", "driver": driver, "pool": pool, "device": f"d{index}", **more}
        for index, (driver, pool) in enumerate(devices)
    ]
    status = {"allocation": {"devices": {"results": results}}}
    return msgspec.convert({"metadata": {"name": "c"}, "status": status}, ResourceClaimView)


def offered(node: str, count: int, *, generation: int = 1, pool: str = "") -> ResourceSliceView:
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": node,
        "pool": {"name": pool or node, "generation": generation},
        "devices": [{"name": f"gpu-{index}"} for index in range(count)],
    }
    return msgspec.convert({"metadata": {"name": node}, "spec": spec}, ResourceSliceView)


@pytest.mark.parametrize(
    ("held", "gpus"),
    [
        pytest.param(claim(("gpu.nvidia.com", "n0")), 1, id="a GPU"),
        pytest.param(claim(("gpu.nvidia.com", "n0"), ("gpu.nvidia.com", "n0")), 2, id="two"),
        pytest.param(claim(("compute-domain.nvidia.com", "n0")), 0, id="a compute domain"),
        pytest.param(claim(("dra.example.com", "n0")), 0, id="another driver"),
        pytest.param(claim(("gpu.nvidia.com", "n0"), adminAccess=True), 0, id="monitoring"),
        pytest.param(msgspec.convert({}, ResourceClaimView), 0, id="not allocated"),
    ],
)
def test_what_a_claim_holds(held: ResourceClaimView, gpus: int) -> None:
    assert len(held.gpus) == gpus


@pytest.mark.parametrize(
    ("target", "names"),
    [
        pytest.param(
            pod(claims=[{"name": "gpu", "resourceClaimName": "mine"}]), ("mine",), id="by name"
        ),
        pytest.param(
            pod(
                claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}],
                resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "p-gpu-x7"}],
            ),
            ("p-gpu-x7",),
            id="from a template",
        ),
        pytest.param(
            pod(claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]), (), id="not made yet"
        ),
        pytest.param(
            pod(claims=[], extendedResourceClaimStatus={"resourceClaimName": "made"}),
            ("made",),
            id="made by the scheduler",
        ),
        pytest.param(
            pod(claims=[], gpus="1", extendedResourceClaimStatus={"resourceClaimName": "made"}),
            (),
            id="counted by its container",
        ),
    ],
)
def test_which_claims_a_pod_has(target: PodView, names: tuple[str, ...]) -> None:
    assert claim_names(target) == names


def test_what_no_claim_holds_is_free() -> None:
    slices = [
        offered("n0", 4, generation=1),
        offered("n0", 2, generation=2),
        offered("n1", 4),
    ]
    claims = [claim(("gpu.nvidia.com", "n0")), claim(("gpu.nvidia.com", "gone"))]
    assert free_devices(slices, claims) == {"n0": 1, "n1": 4}
