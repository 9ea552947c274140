"""A GPUEvidence as an agent writes it, for the tests of the commands."""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.resource import Resource
from rules.api.evidence import digest

EVIDENCES = Resource("gpuward.io", "v1alpha1", "gpuevidences", False, "GPUEvidence")
NAME = "gpu-7-0a1b2c3d"


def kept(name: str = NAME, node: str = "gpu-7", **changes: Any) -> dict[str, Any]:
    gpu = {
        "uuid": "GPU-7", "index": 3, "pci": "0000:4e:00.0", "product": "NVIDIA H100 80GB HBM3",
        "serial": "1650522003820", "board": "2G520-0000-000", "vbios": "96.00.74.00.01",
        "readings": [{"signal": "ecc_uncorrected_volatile", "value": "4"}],
        "links": ["to GPU-8: NV18"],
    }  # fmt: skip
    incident = {
        "id": "i1", "reason": "Xid79GPUFallenOffBus", "severity": "Fatal", "active": True,
        "gpus": ["GPU-7"], "evidence": ["NVRM: Xid 79 \x1b[2J"],
        "recommendedAction": "RestartNode",
    }  # fmt: skip
    spec: dict[str, Any] = {
        "session": name, "nodeName": node, "takenAt": "2026-03-05T11:00:00Z",
        "driverVersion": "580.95.05", "gpus": [gpu], "incidents": [incident],
        "kernelLog": "NVRM: first\nNVRM: last", "kernelLinesDropped": 0, **changes,
    }  # fmt: skip
    spec = {**spec, "sha256": changes.get("sha256") or digest(spec)}
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUEvidence",
        "metadata": {"name": name},
        "spec": spec,
    }
