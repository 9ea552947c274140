"""`kubectl get gnh` on either cluster: the API server makes ages of dates, and finds the
silent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from rules.api.requests import request
from rules.api.timestamps import format_time
from rules.api.writes import SetVerdictSilent


async def test_silent_agents_are_shown_and_can_be_selected(cluster) -> None:
    now = datetime.now(UTC).timestamp()
    for name in ("loud", "quiet"):
        body: dict[str, Any] = {
            "apiVersion": "gpuward.io/v1alpha1",
            "kind": "GPUNodeHealth",
            "metadata": {"name": name},
        }
        made = await cluster.client.create(GPU_NODE_HEALTHS, body)
        made["status"] = {"health": "Healthy", "observedAt": format_time(now - 600)}
        made = await cluster.client.update_status(GPU_NODE_HEALTHS, made)
    version = str(made["metadata"]["resourceVersion"])
    write = SetVerdictSilent(node="quiet", resource_version=version, since=format_time(now - 420))
    patch = request(write).body
    assert patch is not None
    await cluster.client.patch(GPU_NODE_HEALTHS, "quiet", patch, subresource="status")

    status, out, err = await cluster.kubectl("get", "gnh")

    assert status == 0, err
    header, loud, quiet = (line.split() for line in out.splitlines())
    assert header == ["NAME", "HEALTH", "USABLE", "REASON", "CHANGED", "SILENT", "AGE"]
    assert "7m" in [word[:2] for word in quiet]
    assert "7m" not in [word[:2] for word in loud]
    status, out, err = await cluster.kubectl(
        "get", "gnh", "--field-selector", "status.silentSince!=", "-o", "name"
    )
    assert (status, out.split()) == (0, ["gpunodehealth.gpuward.io/quiet"]), err
