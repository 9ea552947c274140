"""Isolated devices as `why`, the fleet map and the metrics show them."""

from typing import Any

import msgspec

from remediator.kubectl import why_node
from remediator.page import rendering
from remediator.view import shapes
from rules.api.nodes import QuarantineView


def session(**status: Any) -> QuarantineView:
    return msgspec.convert(
        {"metadata": {"name": "s"}, "spec": {"nodeName": "n"}, "status": status}, QuarantineView
    )


def test_why_names_the_device_its_rule_and_the_taints_of_the_driver() -> None:
    device = {
        "uuid": "GPU-1",
        "pool": "n",
        "device": "gpu-3",
        "rule": "gpuward-1",
        "taints": ["gpu.nvidia.com/xid=48:NoSchedule"],
    }
    assert list(why_node.device_lines(session(devices=[device]))) == [
        "gpu-3 of pool n (GPU-1): DeviceTaintRule gpuward-1",
        "gpu-3: gpu.nvidia.com/xid=48:NoSchedule of the DRA driver, until its plugin restarts",
    ]


def test_why_names_the_reason_for_the_node() -> None:
    found = session(evidence={"nodeIsolated": "Xid79 needs RestartNode"})
    assert list(why_node.device_lines(found)) == ["none: Xid79 needs RestartNode"]
    assert list(why_node.device_lines(session())) == []


def test_the_map_names_the_isolated_gpu() -> None:
    gpu = shapes.GpuSquare(index=3, health="unhealthy", reason="Xid48", isolated=True)
    row = shapes.NodeRow(
        name="n",
        pool="",
        rack="",
        health="unhealthy",
        gpus=8,
        gpus_healthy=7,
        unhealthy_gpus=(gpu,),
        unschedulable=False,
        ready="True",
        phase="Quarantined",
        mode="Enforce",
    )
    assert "GPU 3 isolated" in rendering.described(row)
    assert rendering.squares(row)[3] == "unhealthy isolated"
