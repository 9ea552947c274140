"""Workloads and machines of others: what we take for a GPU, a gang, an owner, a notice.

The objects are spelled as those systems spell them; one section per page of docs/interop.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rules.api.pods import PodView
from rules.api.requests import request
from rules.api.writes import EvictPod
from rules.drain.gangs import gang_of
from rules.policy.policy import Policy
from rules.policy.reader import load_policy

REPOSITORY = Path(__file__).parents[3]
DOCS = REPOSITORY / "docs" / "interop"


def pod(limits: dict[str, str], labels: dict[str, str] | None = None, **metadata: Any) -> PodView:
    container = {"name": "main", "resources": {"limits": limits}}
    named = {"name": "p", "namespace": "t", "uid": "u", "labels": labels or {}, **metadata}
    return msgspec.convert({"metadata": named, "spec": {"containers": [container]}}, PodView)


def blocks(page: str) -> list[Any]:
    text = (DOCS / page).read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize(
    ("limits", "labels", "gpus"),
    [
        pytest.param({"nvidia.com/gpu.shared": "1"}, {}, 1, id="time-slicing"),
        pytest.param({"nvidia.com/mig-3g.40gb": "2"}, {}, 2, id="mig"),
        pytest.param({"rdma/hca_shared_devices_a": "1"}, {}, 0, id="rdma"),
        pytest.param({"nvidia.com/hostdev": "1"}, {}, 0, id="network-function"),
        pytest.param({"amd.com/gpu": "8"}, {}, 0, id="another-vendor"),
        pytest.param(
            {"nvidia.com/GA102GL_A10": "1", "devices.kubevirt.io/kvm": "1"},
            {"kubevirt.io": "virt-launcher"}, 1, id="virtual-machine",
        ),
        pytest.param(
            {"nvidia.com/gpu": "1"}, {"kubevirt.io": "virt-launcher"}, 1,
            id="virtual-machine-counted-once",
        ),
        pytest.param({"nvidia.com/GA102GL_A10": "1"}, {}, 0, id="a-device-of-no-machine"),
    ],
)  # fmt: skip
def test_what_counts_as_a_gpu(limits: dict[str, str], labels: dict[str, str], gpus: int) -> None:
    assert pod(limits, labels).gpus == gpus


def owned(version: str, kind: str, name: str, **metadata: Any) -> PodView:
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": "o", "controller": True}
    return pod({"nvidia.com/gpu": "8"}, ownerReferences=[owner], **metadata)


@pytest.mark.parametrize(
    ("version", "kind", "gang"),
    [
        ("kubeflow.org/v1", "PyTorchJob", "PyTorchJob t/x"),
        ("kubeflow.org/v2beta1", "MPIJob", "MPIJob t/x"),
        ("ray.io/v1", "RayCluster", "RayCluster t/x"),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", "TrainJob t/x"),
        ("argoproj.io/v1alpha1", "Workflow", None),
        ("serving.knative.dev/v1", "Revision", None),
        ("kubevirt.io/v1", "VirtualMachineInstance", None),
        ("slinky.slurm.net/v1beta1", "NodeSet", None),
    ],
)
def test_who_restarts_as_a_whole(version: str, kind: str, gang: str | None) -> None:
    found = gang_of(owned(version, kind, "x"), {})
    assert (found.key if found else None) == gang


def test_an_eviction_never_shortens_the_grace_for_a_checkpoint() -> None:
    sent = request(EvictPod(node="n", namespace="t", name="p", uid="u"))
    assert sent.body is not None
    assert "gracePeriodSeconds" not in sent.body["deleteOptions"]


def test_notices_of_a_provider_are_a_policy_that_loads() -> None:
    (page,) = [block for block in blocks("scheduling.md") if "external" in block]
    policy = load_policy({"apiVersion": "gpuward.io/v1alpha1", "kind": "QuarantinePolicy", **page})
    assert isinstance(policy, Policy), policy
    assert {trigger.level for trigger in policy.external} == {"Report"}
