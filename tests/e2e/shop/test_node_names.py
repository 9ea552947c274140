"""What people write names a node that can be, on either cluster; what stood there before stays."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from hack.sim.cluster.clients.client import ApiError, Object
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import PAUSES, QUARANTINES

DEFINITION = "gpuquarantines.gpuward.io"
CAUSE = {"source": "Human", "reason": "Requested", "message": "it hums"}
OLD_NAME = "gpu 7\n; rm -rf /"


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
    said = []
    for written, _ in REFUSED:
        file.write_text(yaml.safe_dump(written), encoding="utf-8")
        status, _, err = await cluster.kubectl("create", "-f", str(file))
        said.append(err if status else "taken")
    wanted = [field for _, field in REFUSED]
    assert [field for field, err in zip(wanted, said, strict=True) if field not in err] == [], said


async def test_a_session_from_before_the_form_was_fixed_is_still_written_to(
    cluster: Cluster,
) -> None:
    newer = await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
    await put(cluster, without_form(newer))

    async def taken() -> bool:
        try:
            await cluster.client.create(QUARANTINES, session("old", nodeName=OLD_NAME))
        except ApiError:
            return False
        return True

    await cluster.until(taken, "a definition that takes any name")
    await put(cluster, newer)

    async def refused() -> bool:
        try:
            await cluster.client.create(
                QUARANTINES, session("probe", nodeName=OLD_NAME), dry_run=True
            )
        except ApiError as error:
            return error.code == 422
        return False

    await cluster.until(refused, "a definition that refuses the name")
    status = {"status": {"phase": "NodeGone", "message": "there is no such node"}}
    await cluster.client.patch(QUARANTINES, "old", status, subresource="status")
    more = {"spec": {"causes": [CAUSE, {**CAUSE, "reason": "Louder"}], "hold": True}}
    kept = await cluster.client.patch(QUARANTINES, "old", more)
    assert (kept["status"]["phase"], kept["spec"]["nodeName"]) == ("NodeGone", OLD_NAME)


def without_form(definition: Object) -> Object:
    older = copy.deepcopy(definition)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["nodeName"]["pattern"]
    return older


async def put(cluster: Cluster, definition: Object) -> None:
    there = await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
    version = there["metadata"]["resourceVersion"]
    body = {**definition, "metadata": {**definition["metadata"], "resourceVersion": version}}
    await cluster.client.update(CUSTOM_RESOURCE_DEFINITIONS, body)
