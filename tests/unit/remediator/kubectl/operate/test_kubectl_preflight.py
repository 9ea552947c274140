"""`preflight` before the first install, and when only some definitions are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.calls import Caller
from hack.sim.cluster.http.threaded import HostedServer, run_in_thread
from hack.sim.cluster.resource import NAMESPACES
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kubectl.preflight import ADMISSION_POLICIES
from tests.support.remediator.kubectl_cluster import Kubectl, cluster

DAEMONSET = Path(__file__).parents[5] / "daemonset"
CRDS = DAEMONSET / "crds"
BASE = DAEMONSET / "base"


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        pytest.param((), 0, "not installed yet", id="before the first install"),
        pytest.param(("gpuwardpauses.yaml",), 1, "missing gpuevidences", id="torn apart"),
    ],
)
def test_definitions(tmp_path: Path, files: tuple[str, ...], code: int, said: str) -> None:
    """Nothing installed is where everybody starts; half of it is a fault."""
    with run_in_thread() as hosted:
        for name in files:
            objects = read_manifests(CRDS / name)
            hosted.run(post_manifests(hosted.server.client, objects))

        ended, out, err = Kubectl(hosted, tmp_path)("preflight")

    assert ended == code
    assert said in out + err


def narrowed(manifest: dict[str, Any]) -> dict[str, Any]:
    """What is granted everywhere, granted in namespace gpuward only."""
    if not manifest["kind"].startswith("ClusterRole"):
        return manifest
    made = {**manifest, "kind": manifest["kind"].removeprefix("Cluster")}
    made["metadata"] = {"name": "everything-here", "namespace": "gpuward"}
    if "roleRef" in made:
        made["roleRef"] = {**made["roleRef"], "kind": "Role", "name": "everything-here"}
    return made


def permissions(
    folder: Path, grant: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[int, str]:
    """How preflight ends, and its line about what the remediator may do."""
    admin = Caller("root", ("system:masters", "system:authenticated"))

    def fill(hosted: HostedServer) -> None:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}}
        hosted.run(hosted.server.client.create(NAMESPACES, made))
        objects = [grant(each) for each in read_manifests(BASE / "remediator-rbac.yaml")]
        hosted.run(post_manifests(hosted.server.client, objects, namespace="gpuward"))

    with cluster(folder, fill, authorization="RBAC", tokens={"secret": admin}) as kubectl:
        ended, out, err = kubectl("preflight")

    return ended, next(line for line in (out + err).splitlines() if "permissions:" in line)


@pytest.mark.parametrize(
    ("grant", "lacks"),
    [
        pytest.param(lambda manifest: manifest, [], id="as it ships"),
        pytest.param(
            narrowed,
            [
                "patch nodes",
                "list pods",
                "create pods/eviction",
                "watch poddisruptionbudgets",
                "create gpuquarantines",
                "patch gpuquarantines/status",
            ],
            id="in one namespace",
        ),
    ],
)
def test_what_the_remediator_needs_everywhere_is_asked_about_everywhere(
    tmp_path: Path, grant: Callable[[dict[str, Any]], dict[str, Any]], lacks: list[str]
) -> None:
    ended, said = permissions(tmp_path, grant)
    assert ended == bool(lacks)
    assert all(lack in said for lack in lacks), said
    assert ("may not" in said) == bool(lacks)
    assert "leases" not in said


def shipped() -> list[dict[str, Any]]:
    files = sorted(BASE.glob("*-admission.yaml"))
    return [found for file in files for found in read_manifests(file)]


def test_the_admission_policies_that_preflight_knows_are_those_of_base() -> None:
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        names = {one["metadata"]["name"] for one in shipped() if one["kind"] == kind}
        assert names == set(ADMISSION_POLICIES)


@pytest.mark.parametrize(
    ("left_out", "verdict", "said"),
    [
        pytest.param(set(), "ok", "in force", id="as it ships"),
        pytest.param(
            {"ValidatingAdmissionPolicy"},
            "warn",
            "not in force: gpuward-node-keeps-mark",
            id="policy",
        ),
        pytest.param(
            {"ValidatingAdmissionPolicyBinding"},
            "warn",
            "not in force: gpuward-node-keeps-mark",
            id="binding",
        ),
    ],
)
def test_an_admission_policy_that_is_not_in_force_is_said(
    tmp_path: Path, left_out: set[str], verdict: str, said: str
) -> None:
    def fill(hosted: HostedServer) -> None:
        made = [
            one
            for one in shipped()
            if one["kind"] not in left_out or one["metadata"]["name"] != "gpuward-node-keeps-mark"
        ]
        hosted.run(post_manifests(hosted.server.client, made))

    with cluster(tmp_path, fill) as kubectl:
        _, out, err = kubectl("preflight")

    line = next(line for line in (out + err).splitlines() if "admission policies:" in line)
    assert line.startswith(verdict)
    assert said in line


def test_walk_a_reason_that_this_version_does_not_know_is_noted(tmp_path: Path) -> None:
    """Helm takes the policy as it is; only `policy check` said that a name is misspelled."""
    reasons = "reasons: {Xid79GPUFallenOfBus: {level: Report}}"

    def fill(hosted: HostedServer) -> None:
        client = hosted.server.client
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}}
        hosted.run(client.create(NAMESPACES, made))
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
            "data": {"policy.yaml": reasons},
        }
        hosted.run(post_manifests(client, [*read_manifests(CRDS), config], namespace="gpuward"))

    with cluster(tmp_path, fill) as kubectl:
        _, out, err = kubectl("preflight")

    (line,) = [one for one in (out + err).splitlines() if "Xid79GPUFallenOfBus" in one]
    assert line.startswith("warn  policy: ")
    assert "did you mean Xid79GPUFallenOffBus?" in line
