"""`preflight` says what a test under load needs and does not find (issue 13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hack.sim.cluster.calls import Caller
from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import NAMESPACES, RUNTIME_CLASSES
from hack.sim.manifests import post_manifests
from tests.support.cluster.manifest_builds import build
from tests.support.remediator.kubectl_cluster import cluster

ADMIN = Caller("root", ("system:masters", "system:authenticated"))
KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ServiceAccount",
    "PodTemplate",
}
RUNTIME: Object = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


def said(folder: Path, *components: str, runtime: bool, **validate: Any) -> list[str]:
    """The lines about tests, in a cluster with these components and that policy."""

    def fill(hosted: HostedServer) -> None:
        client = hosted.server.client
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}}
        hosted.run(client.create(NAMESPACES, made))
        if runtime:
            hosted.run(client.create(RUNTIME_CLASSES, RUNTIME))
        config: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
            "data": {"policy.yaml": yaml.safe_dump({"mode": "Enforce", "validate": validate})},
        }
        objects = [o for o in build(*components) if o["kind"] in KINDS]
        hosted.run(post_manifests(client, [*objects, config], namespace="gpuward"))

    with cluster(folder, fill, authorization="RBAC", tokens={"secret": ADMIN}) as kubectl:
        _, out, err = kubectl("preflight")
    return [line for line in (out + err).splitlines() if "test under load" in line]


def test_with_the_component_a_test_finds_all_it_needs(tmp_path: Path) -> None:
    (line,) = said(tmp_path, "validate", runtime=True, provider="Job")
    assert line.startswith("ok    test under load gpuward-validate: is there")


def test_what_is_missing_is_named_with_the_component(tmp_path: Path) -> None:
    (line,) = said(tmp_path, runtime=False, provider="Job")
    assert line.startswith("FAIL")
    assert "there is no PodTemplate gpuward-validate" in line
    assert "may not create jobs.batch" in line
    assert "add component validate" in line
