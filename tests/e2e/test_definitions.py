"""What the definitions make the API server refuse, show and select, on either cluster."""

from datetime import UTC, datetime
from typing import Any

import yaml

from hack.sim.cluster.client import Object
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from rules.api.requests import request
from rules.api.timestamps import format_time
from rules.api.writes import SetHealthSilent
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import PAUSES, QUARANTINES

CAUSE = {"source": "Human", "reason": "Requested", "message": "it hums"}


def session(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUQuarantine",
        "metadata": {"name": name},
        "spec": {"nodeName": "gpu-7", "causes": [CAUSE], **spec},
    }


def pause(*nodes: str) -> Object:
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUWardPause",
        "metadata": {"name": "stop"},
        "spec": {"scope": {"nodes": list(nodes)}, "reason": "drill"},
    }


REFUSED = [
    (session("a", nodeName="gpu 7"), "spec.nodeName"),
    (session("a", nodeName="GPU-7"), "spec.nodeName"),
    (session("a", nodeName=""), "spec.nodeName"),
    (session("a", nodeName="gpu-7\n"), "spec.nodeName"),
    (session("a", nodeName="g" * 254), "spec.nodeName"),
    (session("a", repair={"step": "Reset GPU"}), "spec.repair.step"),
    (pause("gpu-7", "gpu 8"), "spec.scope.nodes[1]"),
]


async def test_kubectl_names_the_field_of_what_no_node_or_step_can_be(cluster: Cluster) -> None:
    for number, name in enumerate(("gpu-7", "7", "ip-10-0-0-1.eu-west-1.internal")):
        await cluster.client.create(QUARANTINES, session(f"s{number}", nodeName=name))
    await cluster.client.create(PAUSES, pause("gpu-7", "gpu-8.example.com"))
    file = cluster.plane.folder / "written.yaml"
    answers = []
    for written, _ in REFUSED:
        file.write_text(yaml.safe_dump(written), encoding="utf-8")
        status, _, err = await cluster.kubectl("create", "-f", str(file))
        answers.append(err if status else "taken")
    wanted = [field for _, field in REFUSED]
    assert [field for field, err in zip(wanted, answers, strict=True) if field not in err] == [], (
        answers
    )


async def test_silent_agents_are_shown_and_can_be_selected(cluster: Cluster) -> None:
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
    write = SetHealthSilent(node="quiet", resource_version=version, since=format_time(now - 420))
    patch = request(write).body
    assert patch is not None
    await cluster.client.patch(GPU_NODE_HEALTHS, "quiet", patch, subresource="status")

    status, out, err = await cluster.kubectl("get", "gnh")

    assert status == 0, err
    header, loud, quiet = (line.split() for line in out.splitlines())
    assert header == ["NAME", "HEALTH", "USABLE", "REASON", "CHANGED", "SILENT", "AGE"]
    assert "7m" in [one[:2] for one in quiet]
    assert "7m" not in [one[:2] for one in loud]
    status, out, err = await cluster.kubectl(
        "get", "gnh", "--field-selector", "status.silentSince!=", "-o", "name"
    )
    assert (status, out.split()) == (0, ["gpunodehealth.gpuward.io/quiet"]), err
