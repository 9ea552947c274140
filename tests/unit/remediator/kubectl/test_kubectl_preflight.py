"""`preflight`: ready or not, what is missing, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import (
    CONFIGMAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NAMESPACES,
    RUNTIME_CLASSES,
    Caller,
)
from hack.sim.cluster.server import HostedServer, run_in_thread
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kubectl.preflight import ADMISSION_POLICIES
from tests.support.cluster.manifest_builds import build
from tests.support.cluster.provider_definitions import DEFINITIONS
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, Object
from tests.support.scenario.provider_world import steps_for

DAEMONSET = Path(__file__).parents[4] / "daemonset"
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


LABELS = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent"}


def lines(kubectl: Kubectl, *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit status, and each line of the report by the name of its check."""
    code, out, _ = kubectl("preflight", *arguments)
    return code, {line[6:].partition(":")[0]: line for line in out.splitlines()}


def test_walk_before_the_installation_nothing_fails_that_it_brings(tmp_path: Path) -> None:
    """README: preflight first, then apply. `preflight && apply` must not end at the first."""
    root = Caller("root", ("system:masters", "system:authenticated"))
    with run_in_thread(authorization="RBAC", tokens={"secret": root}) as hosted:
        code, said = lines(Kubectl(hosted, tmp_path))
    assert code == 0
    assert "not installed yet" in said["gpuward"]
    assert not {"permissions", "admission policies", "definitions"} & set(said)


def space(hosted: HostedServer, name: str) -> None:
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    load(hosted, NAMESPACES, made)


def agents(**status: int) -> dict[str, Any]:
    template = {"spec": {"runtimeClassName": "nvidia", "containers": []}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "gpuward-agent", "namespace": "other", "labels": LABELS},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template},
        "status": status,
    }


def test_walk_another_namespace_is_named_and_its_own_checks_are_left_out(
    tmp_path: Path,
) -> None:
    def fill(hosted: HostedServer) -> None:
        space(hosted, "other")
        load(hosted, DAEMON_SETS, agents())

    with cluster(tmp_path, fill) as kubectl:
        code, said = lines(kubectl)
        there, seen = lines(kubectl, "-n", "other")
    assert (code, there) == (1, 0)
    assert "installed in other, not in gpuward" in said["namespace"]
    assert "add -n other" in said["namespace"]
    assert "permissions" not in said
    assert "namespace" not in seen
    assert "no remediator has ever led in namespace other" in seen["leader"]


def policy_map(now: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
        "data": {"policy.yaml": now},
    }


HEAD = "apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\n"


def test_walk_a_wrong_policy_is_one_failed_check_and_the_rest_is_looked_at(
    tmp_path: Path,
) -> None:
    def fill(hosted: HostedServer) -> None:
        space(hosted, "gpuward")
        load(hosted, CONFIGMAPS, policy_map(f"{HEAD}release: {{healthyFor: 5min}}\n"))

    with cluster(tmp_path, fill) as kubectl:
        code, said = lines(kubectl)
    assert code == 1
    assert said["policy"].startswith("FAIL")
    assert "'5min' is no duration" in said["policy"]
    assert "leader" in said


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


KINDS_TESTS = {
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


def said_tests(folder: Path, *components: str, runtime: bool, **validate: Any) -> list[str]:
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
        objects = [o for o in build(*components) if o["kind"] in KINDS_TESTS]
        hosted.run(post_manifests(client, [*objects, config], namespace="gpuward"))

    with cluster(folder, fill, authorization="RBAC", tokens={"secret": ADMIN}) as kubectl:
        _, out, err = kubectl("preflight")
    return [line for line in (out + err).splitlines() if "test under load" in line]


def test_with_the_component_a_test_finds_all_it_needs(tmp_path: Path) -> None:
    (line,) = said_tests(tmp_path, "validate", runtime=True, provider="Job")
    assert line.startswith("ok    test under load gpuward-validate: is there")


def test_what_is_missing_is_named_with_the_component(tmp_path: Path) -> None:
    (line,) = said_tests(tmp_path, runtime=False, provider="Job")
    assert line.startswith("FAIL")
    assert "there is no PodTemplate gpuward-validate" in line
    assert "may not create jobs.batch" in line
    assert "add component validate" in line


LATER = {"spec": "release", "status": "repair"}


def fill(hosted: HostedServer) -> None:
    load_fleet(hosted)
    client = hosted.server.client
    kept = hosted.run(client.get(r.CUSTOM_RESOURCE_DEFINITIONS, "gpuquarantines.gpuward.io"))
    schema = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part, field in LATER.items():
        del schema[part]["properties"][field]
    hosted.run(client.update(r.CUSTOM_RESOURCE_DEFINITIONS, kept))


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("older"), fill) as found:
        yield found


def test_a_release_that_would_be_dropped_is_refused(kubectl: Kubectl) -> None:
    code, out, err = kubectl("release", BLOCKED, "--reason", "x", "--yes")
    assert (code, out) == (1, "")
    assert "are older than this command" in err
    assert "do not know spec.release" in err
    assert "kubectl apply -k daemonset/crds" in err


def test_preflight_names_each_field(kubectl: Kubectl) -> None:
    code, out, _ = kubectl("preflight")
    (line,) = [one for one in out.splitlines() if "definitions" in one]
    assert code == 1
    assert line.startswith("FAIL")
    assert "GPUQuarantine.spec.release" in line
    assert "GPUQuarantine.status.repair" in line
