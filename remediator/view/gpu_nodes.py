"""Tell GPU nodes apart by labels and resources that other tools write, before an agent has run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rules.api.nodes import NodeView

GPU_LABELS: Final[Mapping[str, str]] = {
    "nvidia.com/gpu.present": "true",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
    "feature.node.kubernetes.io/pci-0300_10de.present": "true",
    "nvidia.com/gpu.deploy.driver": "",
    "cloud.google.com/gke-accelerator": "",
    "kubernetes.azure.com/accelerator": "nvidia",
    "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    "accelerator": "nvidia",
}
"""Labels of a node with NVIDIA GPUs and their values, "" for any: those of the agent's DaemonSet.
A node whose GPUs are given out by DRA alone has no GPU resource, and has one of these."""

_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/mig-")
"""How the names of whole GPUs, of shared and renamed ones, and of MIG devices begin."""


def has_gpus(node: NodeView) -> bool:
    """Return whether a label or a resource says that the node has NVIDIA GPUs. A resource of
    which 0 are left counts: MIG leaves 0 whole GPUs, and a failing device plugin leaves 0 of all.
    """
    labels = node.labels
    labelled = any(
        key in labels and value in {"", labels[key]} for key, value in GPU_LABELS.items()
    )
    return labelled or any(name.startswith(_RESOURCES) for name in node.status.allocatable)
