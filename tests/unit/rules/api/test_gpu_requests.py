"""Which resources and devices are GPUs, and how many a pod holds by its containers and claims."""

from typing import Any

import msgspec
import pytest

from rules.api.nodes import NodeView
from rules.api.pods import PodView
from rules.api.workloads import (
    ResourceClaimView,
    claim_names,
)
from rules.drain.node_room import free_gpus


def container(restart: str = "", **amounts: str) -> dict[str, Any]:
    limits = {f"nvidia.com/{name.replace('_', '-')}": amount for name, amount in amounts.items()}
    policy = {"restartPolicy": restart} if restart else {}
    return {"name": "c", "resources": {"limits": limits}, **policy}


def pod(containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None) -> PodView:
    spec = {"containers": containers, "initContainers": init or []}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, PodView)


@pytest.mark.parametrize(
    ("resource", "gpus"),
    [
        ("nvidia.com/gpu", 2),
        ("nvidia.com/gpu.shared", 2),
        ("nvidia.com/mig-1g.10gb", 2),
        ("nvidia.com/mig-1g.10gb.shared", 2),
        ("nvidia.com/hostdev", 0),
        ("nvidia.com/cx7_rdma", 0),
        ("nvidia.com/gpu.memory", 0),
        ("nvidia.com/GA102GL_A10", 0),
        ("example.com/gpu", 0),
        ("amd.com/gpu", 2),
        ("amd.com/cpx_nps4", 2),
        ("aws.amazon.com/neuron", 2),
        ("aws.amazon.com/neuroncore", 2),
        ("aws.amazon.com/neurondevice", 2),
        ("habana.ai/gaudi", 2),
        ("gpu.intel.com/i915", 2),
        ("gpu.intel.com/xe", 2),
        ("gpu.intel.com/xe_monitoring", 0),
        ("gpu.intel.com/millicores", 0),
        ("google.com/tpu", 2),
    ],
)
def test_what_is_a_gpu(resource: str, gpus: int) -> None:
    holder = {"name": "c", "resources": {"requests": {resource: "2"}, "limits": {resource: "2"}}}
    assert pod([holder]).gpus == gpus
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {resource: "2"}}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": ready}, NodeView)
    vendor = resource.partition("/")[0]
    assert free_gpus([node], {}) == ({("n", vendor): gpus} if gpus else {})


def test_a_node_offers_neuron_chips_once_though_two_resources_count_them() -> None:
    amounts = {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": amounts}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": ready}, NodeView)
    place = ("n", "aws.amazon.com")
    assert free_gpus([node], {}) == {place: 32}
    assert free_gpus([node], {place: 32}) == {place: 0}


@pytest.mark.parametrize("resource", ["nvidia.com/GA102GL_A10", "nvidia.com/gpu"])
def test_a_virtual_machine_of_kubevirt_holds_its_device_once(resource: str) -> None:
    limits = {resource: "1", "devices.kubevirt.io/kvm": "1"}
    labels = {"name": "p", "labels": {"kubevirt.io": "virt-launcher"}}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    assert msgspec.convert({"metadata": labels, "spec": spec}, PodView).gpus == 1


@pytest.mark.parametrize(
    ("containers", "init", "gpus"),
    [
        pytest.param([container(gpu="1"), container(gpu="2")], [], 3, id="side by side"),
        pytest.param([container()], [container("Always", gpu="1")], 1, id="sidecar"),
        pytest.param([container(gpu="2")], [container("Always", gpu="1")], 3, id="and a sidecar"),
        pytest.param([container(gpu="2")], [container(gpu="1")], 2, id="init before"),
        pytest.param([container()], [container(gpu="4")], 4, id="only init"),
        pytest.param(
            [container(gpu="1")],
            [container("Always", gpu="2"), container(gpu="4"), container("Always", gpu="1")],
            6,
            id="init with an earlier sidecar",
        ),
        pytest.param([container(gpu="1")], [container(mig_1g="2")], 3, id="kinds are held apart"),
        pytest.param([container(gpu="1k")], [], 1000, id="as the server writes a thousand"),
        pytest.param([container(gpu="²")], [], 0, id="no number"),
        pytest.param([container(gpu="-1")], [], 0, id="below zero"),
    ],
)
def test_how_many(containers: list[dict[str, Any]], init: list[dict[str, Any]], gpus: int) -> None:
    assert pod(containers, init).gpus == gpus


def claiming(*, claims: list[dict[str, Any]], gpus: str = "", **status: Any) -> PodView:
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


@pytest.mark.parametrize(
    ("held", "gpus"),
    [
        pytest.param(claim(("gpu.nvidia.com", "n0")), 1, id="a GPU"),
        pytest.param(claim(("gpu.nvidia.com", "n0"), ("gpu.nvidia.com", "n0")), 2, id="two"),
        pytest.param(claim(("compute-domain.nvidia.com", "n0")), 0, id="a compute domain"),
        pytest.param(claim(("dra.example.com", "n0")), 0, id="another driver"),
        pytest.param(claim(("gpu.amd.com", "n0"), ("neuron.aws.com", "n0")), 2, id="others"),
        pytest.param(claim(("gpu.intel.com", "n0"), ("gaudi.intel.com", "n0")), 2, id="Intel"),
        pytest.param(claim(("gpu.intel.com", "n0"), adminAccess=True), 0, id="Intel monitoring"),
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
            claiming(claims=[{"name": "gpu", "resourceClaimName": "mine"}]),
            ("mine",),
            id="by name",
        ),
        pytest.param(
            claiming(
                claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}],
                resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "p-gpu-x7"}],
            ),
            ("p-gpu-x7",),
            id="from a template",
        ),
        pytest.param(
            claiming(claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]),
            (),
            id="not made yet",
        ),
        pytest.param(
            claiming(claims=[], extendedResourceClaimStatus={"resourceClaimName": "made"}),
            ("made",),
            id="made by the scheduler",
        ),
        pytest.param(
            claiming(
                claims=[], gpus="1", extendedResourceClaimStatus={"resourceClaimName": "made"}
            ),
            (),
            id="counted by its container",
        ),
    ],
)
def test_which_claims_a_pod_has(target: PodView, names: tuple[str, ...]) -> None:
    assert claim_names(target) == names
