"""Records for the tests of what people see of them: two of GPUs, one of them a repeat offender,
one of a node.
"""

from typing import Any

from hack.sim.cluster.resource import Resource
from rules.api.timestamps import format_time
from tests.support.remediator.kubectl_objects import NOW

RECORDS = Resource("gpuward.io", "v1alpha1", "gpurecords", False, "GPURecord")
REPEATED = "GPU-0badcafe-1111-2222-3333-444444444444"
DAY = 86_400.0


def days_ago(days: float) -> str:
    return format_time(NOW - days * DAY)


def event(days: float, hours: float = 2, **more: Any) -> dict[str, Any]:
    return {
        "at": days_ago(days), "lastAt": days_ago(days), "times": 1, "node": "gpu-healthy",
        "reason": "Xid79GPUFallenOffBus", "severity": "Fatal", "driver": "580.95.05",
        "session": f"gpu-healthy-{int(days)}", "steps": ["RestartNode"], "outcome": "Released",
        "endedAt": days_ago(days - hours / 24), **more,
    }  # fmt: skip


def records() -> list[dict[str, Any]]:
    back = [
        event(70, cameBackAfter=int(29.9 * DAY)),
        event(40, cameBackAfter=int(27.9 * DAY)),
        event(12, cameBackAfter=int(3.9 * DAY)),
        event(8, cameBackAfter=int(5.9 * DAY)),
        event(2),
    ]
    repeated = {
        "scope": "GPU", "uuid": REPEATED, "serial": "1650000000001", "product": "NVIDIA H100",
        "places": [{"node": "gpu-healthy", "slot": "0000:3b:00.0", "since": days_ago(60)}],
        "events": back, "counters": {"faults": 5}, "message": "written some time ago",
    }  # fmt: skip
    once = {
        "scope": "GPU", "uuid": "GPU-1badcafe",
        "events": [event(40, reason="NVLinkDown", node="gpu-gone", session="gone")],
        "places": [{"node": "gpu-gone"}], "counters": {"faults": 1},
    }  # fmt: skip
    node = {
        "scope": "Node", "events": [event(5, reason="NicPower", session="", node="gpu-blocked",
                                          outcome="Closed",
                                          severity="Degraded", steps=[])],
        "places": [{"node": "gpu-blocked"}], "counters": {"faults": 1},
    }  # fmt: skip
    return [
        {"apiVersion": "gpuward.io/v1alpha1", "kind": "GPURecord",
         "metadata": {"name": name, "creationTimestamp": days_ago(60)}, "status": status}
        for name, status in ((REPEATED.lower(), repeated), ("gpu-1badcafe", once),
                             ("node-gpu-blocked", node))
    ]  # fmt: skip
