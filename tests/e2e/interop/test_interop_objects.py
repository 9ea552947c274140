"""Our neighbours in a GPU cluster: what we do with the objects they write, and what we write
there.

One section per page of docs/interop; the objects are spelled as those systems spell them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent.publish.objects import NodeObject, node_patch
from rules.api import mark, names
from rules.api.health import HealthStatus
from rules.api.nodes import FreshNode
from rules.api.pods import DaemonSetView, PodView
from rules.drain.gangs import gang_of
from rules.drain.node_room import untolerating
from rules.judge.facts.sources import wants_release
from rules.judge.health_object import Publication, PublishedCondition
from rules.session.exclusions import working_owner

REPOSITORY = Path(__file__).parents[3]
DOCS = REPOSITORY / "docs" / "interop"
DAEMONSET = REPOSITORY / "daemonset"


def node(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    **status: Any,
) -> FreshNode:
    metadata = {"name": "n1", "uid": "u", "labels": labels or {}, "annotations": annotations or {}}
    value = {"metadata": metadata, "spec": {"taints": taints or []}, "status": status}
    return msgspec.convert(value, FreshNode)


def marked(target: FreshNode) -> dict[str, Any]:
    return mark.mark_patch(
        target, session="s", reason="Xid79", phase="Marked", mark="CordonAndTaint", now=0.0
    )


def at_work(target: FreshNode) -> str:
    return working_owner(target, None, 0.0)


# GPU Operator


@pytest.mark.parametrize(
    ("labels", "down"),
    [
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"}, False),
        ({"nvidia.com/gpu-driver-upgrade-state": "cordon-required"}, True),
        ({"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}, True),
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}, False),
        ({"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "pending"}, True),
        ({"nvidia.com/mig.config.state": "rebooting"}, True),
        ({"nvidia.com/mig.config.state": "success"}, False),
        ({"nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-driver-upgrade"}, True),
        ({"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}, True),
        ({"nvidia.com/gpu.deploy.device-plugin": "true"}, False),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_agent_and_remediator_stand_down_together_for_the_gpu_operator(
    labels: dict[str, str], down: bool
) -> None:
    assert bool(at_work(node(labels))) is down
    assert bool(wants_release(labels, {})) is down


def daemon_set(name: str, tolerations: list[dict[str, str]]) -> DaemonSetView:
    template = {
        "spec": {
            "nodeSelector": {f"nvidia.com/gpu.deploy.{name}": "true"},
            "tolerations": tolerations,
        }
    }
    metadata = {"name": f"nvidia-{name}-daemonset", "namespace": "gpu-operator"}
    return msgspec.convert({"metadata": metadata, "spec": {"template": template}}, DaemonSetView)


def test_the_shipped_tolerations_let_the_operators_pods_come_back() -> None:
    patch = yaml.safe_load(
        (DAEMONSET / "components" / "gpu-operator" / "cluster-policy-patch.yaml").read_text()
    )
    ours = patch["spec"]["daemonsets"]["tolerations"]
    default = [t for t in ours if t["key"] == "nvidia.com/gpu"]
    target = node({"nvidia.com/gpu.deploy.device-plugin": "true"})
    named = "gpu-operator/nvidia-device-plugin-daemonset"
    assert untolerating(target, [daemon_set("device-plugin", default)]) == (named,)
    assert untolerating(target, [daemon_set("device-plugin", ours)]) == ()


# Device plugin


# dcgm-exporter


def test_each_agent_reaches_only_the_exporter_of_its_own_node() -> None:
    shipped = yaml.safe_load(
        (DAEMONSET / "components" / "gpu-operator" / "service.yaml").read_text()
    )
    written = blocks("dcgm-exporter.md")[0]
    labels = {"app": "nvidia-dcgm-exporter", "app.kubernetes.io/name": "dcgm-exporter"}
    for service in (shipped, written):
        assert service["spec"]["internalTrafficPolicy"] == "Local"
        assert service["spec"]["selector"].items() <= labels.items()
        assert service["spec"]["ports"][0]["port"] == 9400


# NFD and GFD


@pytest.mark.parametrize(
    "label",
    [
        "nvidia.com/gpu.present",
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "cloud.google.com/gke-accelerator",
        "kubernetes.azure.com/accelerator",
        "eks.amazonaws.com/instance-gpu-manufacturer",
        "gpuward.io/gpus",
    ],
)
def test_any_label_of_a_known_tool_gets_a_node_its_agent(label: str) -> None:
    text = (DAEMONSET / "base" / "agent-daemonset.yaml").read_text()
    spec = yaml.safe_load(text)["spec"]["template"]["spec"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    # Terms are alternatives, so one expression each.
    assert label in {expression["key"] for (expression,) in (t["matchExpressions"] for t in terms)}


# Karpenter and Cluster Autoscaler


@pytest.mark.parametrize("prior", [{}, {"karpenter.sh/do-not-disrupt": "true"}], ids=["no", "yes"])
def test_autoscalers_keep_their_hands_off_until_the_mark_comes_off(prior: dict[str, str]) -> None:
    before = node(annotations=prior)
    on = marked(before)["metadata"]["annotations"]
    assert on["karpenter.sh/do-not-disrupt"] == "true"
    assert on["cluster-autoscaler.kubernetes.io/scale-down-disabled"] == "true"
    off = mark.unmark_patch(node(annotations={**prior, **on}))["metadata"]["annotations"]
    after = {**prior, **on, **off}
    assert {key: value for key, value in after.items() if value is not None} == prior


@pytest.mark.parametrize("key", ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"])
def test_a_node_that_an_autoscaler_removes_is_left_to_it(key: str) -> None:
    assert at_work(node(taints=[{"key": key, "effect": "NoSchedule"}]))


def test_we_do_not_write_the_condition_that_makes_repair_terminate_nodes() -> None:
    written = {value for name, value in vars(names).items() if name.startswith("CONDITION_")}
    assert written
    assert "AcceleratedHardwareReady" not in written


# Kueue, JobSet, Volcano


def gang_pod(owner: tuple[str, str, str], **metadata: Any) -> PodView:
    version, kind, name = owner
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "o", "controller": True}
    value = {"name": "p", "namespace": "t", "uid": "u", "ownerReferences": [reference], **metadata}
    return msgspec.convert({"metadata": value}, PodView)


@pytest.mark.parametrize(
    ("owner", "metadata", "key", "one_by_one"),
    [
        pytest.param(
            ("batch/v1", "Job", "llm-w-0"), {"labels": {"jobset.sigs.k8s.io/jobset-name": "llm"}},
            "JobSet t/llm", False, id="jobset",
        ),
        pytest.param(
            ("batch.volcano.sh/v1alpha1", "Job", "train"),
            {"labels": {"volcano.sh/job-name": "train"}}, "VolcanoJob t/train", False,
            id="volcano",
        ),
        pytest.param(
            ("batch/v1", "Job", "plain"), {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "Job t/plain", False, id="kueue without topology",
        ),
        pytest.param(
            ("batch/v1", "Job", "tas"),
            {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
            "Job t/tas", True, id="kueue with topology",
        ),
    ],
)  # fmt: skip
def test_gangs_are_recognised_as_their_controllers_write_them(
    owner: tuple[str, str, str], metadata: dict[str, Any], key: str, one_by_one: bool
) -> None:
    gang = gang_of(gang_pod(owner, **metadata), {})
    assert gang is not None
    assert (gang.key, gang.topology_aware) == (key, one_by_one)


# node-problem-detector


NPD = [
    {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock"},
    {"type": "ReadonlyFilesystem", "status": "False", "reason": "FilesystemIsNotReadOnly"},
    {"type": "XIDError", "status": "True", "reason": "XIDHasError"},
]


def test_of_all_conditions_the_agent_writes_its_own_two() -> None:
    there = msgspec.convert(
        {"metadata": {"name": "n1"}, "status": {"conditions": NPD}}, NodeObject
    )
    wanted = Publication(
        conditions=tuple(
            PublishedCondition(type=kind, status="True", reason="R", message="m")
            for kind in (names.CONDITION_HEALTHY, names.CONDITION_DEGRADED)
        ),
        labels={},
        status=HealthStatus(),
    )
    patch = node_patch(wanted, there, 0.0)
    written = {condition["type"] for condition in patch["status"]["conditions"]}
    assert written == {"GPUHealthy", "GPUDegraded"}
    assert not written & {condition["type"] for condition in NPD}


# The pages themselves


def blocks(page: str) -> list[Any]:
    text = (DOCS / page).read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
