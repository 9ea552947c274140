"""The output of `kubectl kustomize` for base and components: golden files, valid for
Kubernetes."""

import difflib
import os
from pathlib import Path

import pytest
import yaml

from hack.sim.cluster.http.resource_calls import InProcessClient
from hack.sim.cluster.resource import CONFIGMAPS, DAEMON_SETS
from hack.sim.cluster.store.engine import Engine
from hack.sim.manifests import post_manifests
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.cluster.manifest_builds import (
    COMPONENTS,
    Object,
    build,
    one,
    without_crds,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "kustomize"
KUBERNETES = "1.32"
# The alert rules and monitors are compared with rules/alerts in another test.
REVIEWED = (
    ("nvml",),
    ("full",),
    ("enforce",),
    ("force",),
    ("gpu-operator",),
    ("nvml", "gpu-operator", "enforce"),
    ("full", "gpu-operator", "enforce", "force"),
)


def text(objects: list[Object]) -> list[str]:
    shown = yaml.dump_all(without_crds(objects), Dumper=yaml.CSafeDumper, width=1000)
    return shown.splitlines(keepends=True)


def compare(name: str, actual: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(actual)
    assert actual == path.read_text(), f"{name} changed: review, then UPDATE_GOLDEN=1"


def test_base_matches_the_golden_file() -> None:
    compare("base.yaml", "".join(text(build())))


@pytest.mark.parametrize("components", REVIEWED, ids="+".join)
def test_component_changes_match_the_golden_files(components: tuple[str, ...]) -> None:
    changes = difflib.unified_diff(text(build()), text(build(*components)), "base", "built", n=2)
    # Without line numbers, which change with every edit of base.
    hunks = ("@@\n" if line.startswith("@@") else line for line in changes)
    compare(f"{'+'.join(components)}.diff", "".join(hunks))


@pytest.mark.parametrize("oldest", [True, False], ids=["oldest supported", "newest known"])
def test_every_object_is_valid_for_kubernetes(oldest: bool) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    version = KUBERNETES if oldest else validate.latest_version()
    seen: list[Object] = []
    # Each component alone and all together: combinations differ only in what these change.
    for components in ((), *((c,) for c in COMPONENTS), COMPONENTS[1:]):
        seen += [obj for obj in build(*components) if obj not in seen]
    for obj in seen:
        if obj["apiVersion"] != "monitoring.coreos.com/v1":
            validate.validate(obj, version, strict=True)


async def test_a_build_can_be_applied_twice_and_extended_by_components() -> None:
    client = InProcessClient(Engine())
    operators = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}
    for components in ((), (), ("full", "gpu-operator", "enforce", "force")):
        await post_manifests(client, [operators, *build(*components)])
    policy = await client.get(CONFIGMAPS, "gpuward-policy", "gpuward")
    assert "mode: Enforce" in policy["data"]["policy.yaml"]
    agent = await client.get(DAEMON_SETS, "gpuward-agent", "gpuward")
    (found,) = agent["spec"]["template"]["spec"]["containers"]
    assert found["securityContext"]["privileged"] is True


@pytest.mark.parametrize(
    ("components", "mode"), [((), "Shadow"), (("enforce",), "Enforce")], ids=["base", "enforce"]
)
def test_the_policy_shipped_is_valid(components: tuple[str, ...], mode: str) -> None:
    shipped = one(build(*components), "ConfigMap", "gpuward-policy")["data"]["policy.yaml"]
    policy = load_policy(yaml.safe_load(shipped))
    assert isinstance(policy, Policy)
    assert policy.mode == mode


def test_another_namespace_applies_to_all_objects() -> None:
    objects = build("enforce", "force", "gpu-operator", inner_namespace="gpu-health")
    places = {o["metadata"]["namespace"] for o in objects if "namespace" in o["metadata"]}
    assert places == {"gpu-health", "gpu-operator"}
    assert one(objects, "Namespace", "gpu-health")
    subjects = [s for o in objects for s in o.get("subjects", ())]
    assert {(s["name"], s["namespace"]) for s in subjects} == {
        ("gpuward-agent", "gpu-health"),
        ("gpuward-remediator", "gpu-health"),
    }
    service = one(objects, "Service", "gpuward-dcgm-exporter")
    assert service["metadata"]["namespace"] == "gpu-operator"
