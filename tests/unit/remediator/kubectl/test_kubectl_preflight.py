"""`preflight`: ready or not, what is missing, and the remedy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.sim.cluster import resource as r
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.cluster.server import HostedServer, run_in_thread
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kubectl.preflight import ADMISSION_POLICIES
from tests.support.cluster.provider_definitions import DEFINITIONS
from tests.support.cluster.slices import gpu_device, slice_spec
from tests.support.remediator.kubectl_cluster import REPOSITORY, Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, Object, node
from tests.support.remediator.preflight_reports import ADMIN, BASE, component, having, lines
from tests.support.scenario.provider_world import steps_for

CRDS = REPOSITORY / "daemonset" / "crds"
POD_GROUPS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://example.invalid"},
    },
    "spec": {
        "group": "scheduling.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"},
        "versions": [
            {
                "name": "v1beta1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("files", [(), ("gpuwardpauses.yaml",)], ids=["fresh", "torn apart"])
def test_nothing_installed_is_where_everybody_starts_and_half_of_it_is_a_fault(
    tmp_path: Path, files: tuple[str, ...]
) -> None:
    """README: preflight first, then apply. `preflight && apply` must not end at the first."""
    with run_in_thread(**ADMIN) as hosted:
        for name in files:
            objects = read_manifests(CRDS / name)
            hosted.run(post_manifests(hosted.server.client, objects))
        code, message = lines(Kubectl(hosted, tmp_path))
    assert code == bool(files)
    if files:
        assert "missing gpuevidences" in message["definitions"]
    else:
        assert "not installed yet" in message["gpuward"]
        assert not {"permissions", "admission policies", "definitions"} & set(message)


def narrowed(manifest: Object) -> Object:
    """What is granted everywhere, granted in namespace gpuward only."""
    if not manifest["kind"].startswith("ClusterRole"):
        return manifest
    made = {**manifest, "kind": manifest["kind"].removeprefix("Cluster")}
    made["metadata"] = {"name": "everything-here", "namespace": "gpuward"}
    if "roleRef" in made:
        made["roleRef"] = {**made["roleRef"], "kind": "Role", "name": "everything-here"}
    return made


@pytest.mark.parametrize("narrow", [False, True], ids=["as it ships", "in one namespace"])
def test_what_the_remediator_needs_everywhere_is_asked_about_everywhere(
    tmp_path: Path, narrow: bool
) -> None:
    shipped = read_manifests(BASE / "remediator-rbac.yaml")
    rights = [narrowed(one) if narrow else one for one in shipped]
    with cluster(tmp_path, having(rights), **ADMIN) as kubectl:
        code, report = lines(kubectl)
    message = report["permissions"]
    assert code == narrow
    assert ("may not" in message) == narrow
    assert "leases" not in message
    for lack in (
        "patch nodes", "list pods", "create pods/eviction", "watch poddisruptionbudgets",
        "create gpuquarantines", "patch gpuquarantines/status",
    ):  # fmt: skip
        assert (lack in message) == narrow


def admission() -> list[Object]:
    files = sorted(BASE.glob("*-admission.yaml"))
    return [found for file in files for found in read_manifests(file)]


def test_the_admission_policies_that_preflight_knows_are_those_of_base() -> None:
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        names = {one["metadata"]["name"] for one in admission() if one["kind"] == kind}
        assert names == set(ADMISSION_POLICIES)


@pytest.mark.parametrize("kind", ["Policy", "PolicyBinding"])
def test_an_admission_policy_that_is_not_in_force_is_reported(tmp_path: Path, kind: str) -> None:
    left_out = (f"ValidatingAdmission{kind}", "gpuward-node-keeps-mark")
    there = [one for one in admission() if (one["kind"], one["metadata"]["name"]) != left_out]
    with cluster(tmp_path, having(there)) as kubectl:
        line = lines(kubectl)[1]["admission policies"]
    assert line.startswith("warn")
    assert "not in force: gpuward-node-keeps-mark" in line


def test_walk_a_reason_that_this_version_does_not_know_is_noted(tmp_path: Path) -> None:
    """Helm does not check the policy, so preflight reports a misspelled name."""
    policy = "reasons: {Xid79GPUFallenOfBus: {level: Report}}"
    with cluster(tmp_path, having([], policy)) as kubectl:
        line = lines(kubectl)[1]["policy"]
    assert line.startswith("warn  policy: ")
    assert "did you mean Xid79GPUFallenOffBus?" in line


def test_an_invalid_policy_is_one_failed_check_and_the_others_run(tmp_path: Path) -> None:
    with cluster(tmp_path, having([], "release: {healthyFor: 5min}")) as kubectl:
        code, message = lines(kubectl)
    assert code == 1
    assert message["policy"].startswith("FAIL")
    assert "'5min' is no duration" in message["policy"]
    assert "leader" in message


def test_walk_another_namespace_is_named_and_its_own_checks_are_left_out(tmp_path: Path) -> None:
    labels = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent"}
    agents = {
        "metadata": {"name": "gpuward-agent", "namespace": "other", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"spec": {"containers": []}}},
    }

    def fill(hosted: HostedServer) -> None:
        load(hosted, r.NAMESPACES, {"metadata": {"name": "other"}})
        load(hosted, r.DAEMON_SETS, agents)

    with cluster(tmp_path, fill) as kubectl:
        code, message = lines(kubectl)
        there, seen = lines(kubectl, "-n", "other")
    assert (code, there) == (1, 0)
    assert "installed in other, not in gpuward" in message["namespace"]
    assert "add -n other" in message["namespace"]
    assert "permissions" not in message
    assert "namespace" not in seen
    assert "no remediator has ever led in namespace other" in seen["leader"]


@pytest.mark.parametrize(
    ("resource", "result"), [("amd.com/gpu", "ok"), ("nvidia.com/gpu", "warn")]
)
def test_agents_are_missed_only_on_nodes_with_nvidia_gpus(
    tmp_path: Path, resource: str, result: str
) -> None:
    labels = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent"}
    agents = {
        "metadata": {"name": "gpuward-agent", "namespace": "gpuward", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"spec": {"containers": []}}},
        "status": {"desiredNumberScheduled": 0},
    }
    chosen = node("amd-1")
    chosen["metadata"]["labels"] = {"feature.node.kubernetes.io/amd-gpu": "true"}
    chosen["status"]["allocatable"] = {resource: "8"}
    policy = "nodeSelector: feature.node.kubernetes.io/amd-gpu=true"

    def fill(hosted: HostedServer) -> None:
        having([chosen], policy)(hosted)
        load(hosted, r.DAEMON_SETS, agents)

    with cluster(tmp_path, fill, **ADMIN) as kubectl:
        _, message = lines(kubectl)
    assert message["agents"].startswith(result)
    assert "1 by" in message["nodes selected"]
    assert "GPU nodes without an agent's label" not in message


def of_adapter(
    folder: Path, adapter: str, step: str, *components: str, definitions: bool = True
) -> tuple[int, str]:
    """Exit status and the line about the adapter, in a cluster with these components."""
    repair = {"mode": "Ask", "steps": steps_for(adapter, step)}
    policy = yaml.safe_dump({"mode": "Enforce", "repair": repair})
    there = [*component(*components), *(DEFINITIONS if definitions else ())]
    with cluster(folder, having(there, policy), **ADMIN) as kubectl:
        code, message = lines(kubectl)
    return code, message[f"repair adapter {adapter}"]


@pytest.mark.parametrize(
    ("adapter", "step", "name"),
    [
        ("ClusterAPI", "ReplaceNode", "repair-cluster-api"),
        ("GKE", "ReplaceNode", "repair-gke"),
        ("NodeConditions", "RestartNode", "repair-node-conditions"),
        ("ResetGPUJob", "ResetGPU", "repair-reset-gpu-job"),
    ],
)
def test_what_is_installed_is_enough(tmp_path: Path, adapter: str, step: str, name: str) -> None:
    _, line = of_adapter(tmp_path, adapter, step, name)
    assert line.startswith("ok"), line
    assert step in line


@pytest.mark.parametrize(
    ("adapter", "step", "lacks"),
    [
        ("Karpenter", "ReplaceNode", "may not delete nodeclaims.karpenter.sh"),
        ("GKE", "ReplaceNode", "does not name cloud.google.com/fault-behavior"),
        ("NodeConditions", "RestartNode", "does not name GPUNeedsRestart"),
        ("RestartNodeJob", "RestartNode", "there is no PodTemplate gpuward-restart-node in"),
    ],
)
def test_a_component_that_is_missing_is_named(
    tmp_path: Path, adapter: str, step: str, lacks: str
) -> None:
    code, line = of_adapter(tmp_path, adapter, step)
    assert code == 1
    assert line.startswith("FAIL"), line
    assert lacks in line
    assert "add component repair-" in line
    assert "(Helm: components.repair" in line


def test_a_system_that_is_not_installed_is_named(tmp_path: Path) -> None:
    code, line = of_adapter(
        tmp_path, "Karpenter", "ReplaceNode", "repair-karpenter", definitions=False
    )
    assert code == 1
    assert "nobody serves nodeclaims of karpenter.sh/v1" in line


@pytest.mark.parametrize("there", [False, True], ids=["missing", "installed"])
def test_missing_parts_of_the_test_under_load_are_reported(tmp_path: Path, there: bool) -> None:
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    policy = "{mode: Enforce, validate: {provider: Job}}"

    def fill(hosted: HostedServer) -> None:
        if there:
            load(hosted, r.RUNTIME_CLASSES, runtime)
        having(component(*(["validate"] if there else [])), policy)(hosted)

    with cluster(tmp_path, fill, **ADMIN) as kubectl:
        line = lines(kubectl)[1]["test under load gpuward-validate"]
    if there:
        assert line.startswith("ok    test under load gpuward-validate: is there")
    else:
        assert line.startswith("FAIL")
        assert "there is no PodTemplate gpuward-validate" in line
        assert "may not create jobs.batch" in line
        assert "add component validate" in line


@pytest.mark.parametrize("there", [False, True], ids=["missing", "installed"])
def test_a_notice_without_its_component_is_reported(tmp_path: Path, there: bool) -> None:
    chosen = component(*(["notice"] if there else []))
    fill = having(chosen, "{mode: Enforce, drain: {notice: 10m}}")
    with cluster(tmp_path, fill, **ADMIN) as kubectl:
        found = lines(kubectl)[1]
    assert found["permissions"].startswith("ok")
    assert ("notice" in found) != there
    assert there or "apply component notice" in found["notice"]


@pytest.mark.parametrize("there", [False, True], ids=["missing", "installed"])
def test_node_conditions_without_their_component_are_reported(tmp_path: Path, there: bool) -> None:
    chosen = component(*(["lifecycle-conditions"] if there else []))
    fill = having(chosen, "{mode: Enforce, drain: {nodeConditions: true}}")
    with cluster(tmp_path, fill, **ADMIN) as kubectl:
        found = lines(kubectl)[1]
    assert ("node conditions" in found) != there
    assert there or "apply component lifecycle-conditions" in found["node conditions"]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A cluster whose definitions lack two fields of this release."""

    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        client = hosted.server.client
        kept = hosted.run(client.get(r.CUSTOM_RESOURCE_DEFINITIONS, "gpuquarantines.gpuward.io"))
        schema = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for part, field in {"spec": "release", "status": "repair"}.items():
            del schema[part]["properties"][field]
        hosted.run(client.update(r.CUSTOM_RESOURCE_DEFINITIONS, kept))

    with cluster(tmp_path_factory.mktemp("older"), fill) as found:
        yield found


def test_a_release_that_would_be_dropped_is_refused(older: Kubectl) -> None:
    code, out, err = older("release", BLOCKED, "--reason", "x", "--yes")
    assert (code, out) == (1, "")
    assert "are older than this command" in err
    assert "do not know spec.release" in err
    assert "kubectl apply -k daemonset/crds" in err


def gpu_slice(node: str, *, uuid: bool = True) -> Object:
    device = gpu_device(0) if uuid else {"name": "gpu-0", "attributes": {}}
    return {"metadata": {"name": node}, "spec": slice_spec(node, device)}


def test_what_isolated_devices_need_is_checked_if_the_policy_asks_for_them(tmp_path: Path) -> None:
    rights = component("devices")
    with cluster(tmp_path, having(rights, "isolate: Device"), **ADMIN) as kubectl:
        for name in ("gpu-1", "gpu-2"):
            made = node(name)
            made["status"]["allocatable"] = {"nvidia.com/gpu": "8"} if name == "gpu-2" else {}
            load(kubectl.hosted, r.NODES, made)
        load(kubectl.hosted, r.RESOURCE_SLICES, gpu_slice("gpu-1"))
        load(kubectl.hosted, r.RESOURCE_SLICES, gpu_slice("gpu-2", uuid=False))
        _, report = lines(kubectl)
    assert report["device taints"].startswith("ok") or "version" in report["device taints"]
    assert report["device UUIDs"] == (
        "warn  device UUIDs: no ResourceSlice with attribute uuid for gpu-2"
    )
    assert "gpu-2 offer nvidia.com/gpu" in report["device plugin"]


@pytest.mark.parametrize("may", [True, False])
def test_device_taint_triggers_need_the_right_to_watch_slices(tmp_path: Path, may: bool) -> None:
    rights = component()
    for each in rights if not may else ():
        for rule in each.get("rules") or ():
            if "resourceslices" in rule.get("resources", ()):
                rule["verbs"] = ["list"]
    trigger = "external: [{match: deviceTaint neuron.aws.com a, reason: NeuronTainted}]"
    with cluster(tmp_path, having(rights, trigger), **ADMIN) as kubectl:
        _, report = lines(kubectl)
    expected = "has all required permissions" if may else "may not watch resourceslices"
    assert expected in report["permissions"]


def test_nodes_that_do_not_report_which_pod_uses_which_gpu_are_named(tmp_path: Path) -> None:
    scope = "drain: {scope: Holders}"
    with cluster(tmp_path, having(component(), scope), **ADMIN) as kubectl:
        for name, gpus in (("gpu-1", "8"), ("gpu-2", "8"), ("gpu-dra", "0")):
            made = node(name)
            made["status"]["allocatable"] = {"nvidia.com/gpu": gpus}
            load(kubectl.hosted, r.NODES, made)
        reports = {"sources": [{"name": "pod-resources", "state": "Up"}]}
        health = {
            "apiVersion": GPU_NODE_HEALTHS.api_version,
            "kind": GPU_NODE_HEALTHS.kind,
            "metadata": {"name": "gpu-1"},
            "status": reports,
        }
        load(kubectl.hosted, GPU_NODE_HEALTHS, health)
        _, report = lines(kubectl)
    assert report["drain scope Holders"] == (
        "warn  drain scope Holders: on gpu-2 it is not known which pod uses which GPU, so all GPU "
        "pods leave; add component pod-resources"
    )


def test_component_devices_is_missed(tmp_path: Path) -> None:
    with cluster(tmp_path, having(component(), "isolate: Device"), **ADMIN) as kubectl:
        _, report = lines(kubectl)
    assert "add component devices" in report["device taints"]


@pytest.mark.parametrize("narrow", [False, True], ids=["base", "without the rule"])
def test_pod_groups_are_checked_where_they_are_served(tmp_path: Path, narrow: bool) -> None:
    rights = [one for one in component() if not narrow or one["kind"] != "ClusterRole"]
    with cluster(tmp_path, having(rights), **ADMIN) as kubectl:
        assert "pod groups" not in lines(kubectl)[1]
        hosted = kubectl.hosted
        hosted.run(post_manifests(hosted.server.client, [POD_GROUPS]))
        _, report = lines(kubectl)
    served, lacking = "PodGroups are served", "may not get PodGroups"
    assert (lacking if narrow else served) in report["pod groups"]
