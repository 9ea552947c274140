"""A GPU node is known by any label or resource that a tool in the field writes."""

from __future__ import annotations

import pytest
import yaml

from remediator.kubectl.node_look import GPU_LABELS, has_gpus
from rules.api.metadata import ObjectMeta
from rules.api.names import LABEL_GPUS
from rules.api.nodes import NodeStatus, NodeView
from tests.support.cluster.manifest_builds import REPOSITORY


@pytest.mark.parametrize(
    ("labels", "resources", "gpus"),
    [
        ({}, {"nvidia.com/gpu": "8"}, True),
        ({}, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"}, True),
        ({}, {"nvidia.com/gpu.shared": "32"}, True),
        ({}, {"nvidia.com/gpu-h100": "8"}, True),
        ({"nvidia.com/gpu.present": "true"}, {"cpu": "64"}, True),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, {}, True),
        ({"nvidia.com/gpu.present": "false"}, {"cpu": "64"}, False),
        ({"accelerator": "amd"}, {"amd.com/gpu": "8"}, False),
        ({}, {"nvidia.com/hostdev": "8", "amd.com/gpu": "8"}, False),
    ],
)
def test_gpu_nodes_are_found_by_label_or_resource(
    labels: dict[str, str], resources: dict[str, str], gpus: bool
) -> None:
    meta = ObjectMeta(name="n", labels=labels)
    assert has_gpus(NodeView(metadata=meta, status=NodeStatus(allocatable=resources))) == gpus


def test_the_agent_runs_where_a_label_says_that_there_are_gpus() -> None:
    text = (REPOSITORY / "daemonset" / "base" / "agent-daemonset.yaml").read_text()
    affinity = yaml.safe_load(text)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    rules = [rule for term in terms for rule in term["matchExpressions"]]
    asked = {rule["key"]: "".join(rule.get("values", ())) for rule in rules}
    assert asked == {**GPU_LABELS, LABEL_GPUS: ""}
