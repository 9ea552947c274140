"""`preflight` says what the repair adapters of the policy need and do not find (issue 13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.sim.cluster.calls import Caller
from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from hack.sim.manifests import post_manifests
from tests.support.cluster.manifest_builds import build
from tests.support.cluster.provider_definitions import DEFINITIONS
from tests.support.remediator.kubectl_cluster import cluster
from tests.support.scenario.provider_world import steps_for

ADMIN = Caller("root", ("system:masters", "system:authenticated"))
KINDS = {
    "ClusterRole",
    "PodTemplate",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def said(
    folder: Path, adapter: str, step: str, *components: str, definitions: bool = True
) -> tuple[int, str]:
    """Exit status and the line about the adapter, in a cluster with these components."""
    repair = {"mode": "Ask", "steps": steps_for(adapter, step)}
    policy = yaml.safe_dump({"mode": "Enforce", "repair": repair})

    def fill(hosted: HostedServer) -> None:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}}
        client = hosted.server.client
        hosted.run(client.create(NAMESPACES, made))
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
            "data": {"policy.yaml": policy},
        }
        objects = [o for o in build(*components) if o["kind"] in KINDS]
        hosted.run(post_manifests(client, [*objects, config], namespace="gpuward"))
        for definition in DEFINITIONS if definitions else ():
            hosted.run(client.create(CUSTOM_RESOURCE_DEFINITIONS, definition))

    with cluster(folder, fill, authorization="RBAC", tokens={"secret": ADMIN}) as kubectl:
        code, out, err = kubectl("preflight")
    (line,) = [x for x in (out + err).splitlines() if f"repair adapter {adapter}:" in x]
    return code, line


@pytest.mark.parametrize(
    ("adapter", "step", "component"),
    [
        ("ClusterAPI", "ReplaceNode", "repair-cluster-api"),
        ("GKE", "ReplaceNode", "repair-gke"),
        ("NodeConditions", "RestartNode", "repair-node-conditions"),
        ("ResetGPUJob", "ResetGPU", "repair-reset-gpu-job"),
    ],
)
def test_what_is_installed_is_enough(
    tmp_path: Path, adapter: str, step: str, component: str
) -> None:
    _, line = said(tmp_path, adapter, step, component)
    assert line.startswith("ok"), line
    assert step in line


@pytest.mark.parametrize(
    ("adapter", "step", "lacks"),
    [
        ("Karpenter", "ReplaceNode", "may not delete nodeclaims.karpenter.sh"),
        ("GKE", "ReplaceNode", "does not name cloud.google.com/fault-behavior"),
        ("NodeConditions", "RestartNode", "does not name GPUNeedsRestart"),
        (
            "RestartNodeJob",
            "RestartNode",
            "there is no PodTemplate gpuward-restart-node in gpuward",
        ),
    ],
)
def test_a_component_that_is_missing_is_named(
    tmp_path: Path, adapter: str, step: str, lacks: str
) -> None:
    code, line = said(tmp_path, adapter, step)
    assert code == 1
    assert line.startswith("FAIL"), line
    assert lacks in line
    assert "add component repair-" in line
    assert "(Helm: components.repair" in line


def test_a_system_that_is_not_installed_is_named(tmp_path: Path) -> None:
    component = "repair-karpenter"
    code, line = said(tmp_path, "Karpenter", "ReplaceNode", component, definitions=False)
    assert code == 1
    assert "nobody serves nodeclaims of karpenter.sh/v1" in line
