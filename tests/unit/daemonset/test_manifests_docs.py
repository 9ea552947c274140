"""What docs/install.md and SECURITY.md say of the manifests is what the manifests are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.sim.manifests import read_manifests
from rules.api import mark, names
from tests.support.cluster.manifest_builds import (
    COMPONENTS,
    DAEMONSET,
    OTHER_COMPONENTS,
    PROOF_COMPONENTS,
    REPAIR_COMPONENTS,
    REPOSITORY,
)

INSTALL = (REPOSITORY / "docs" / "install.md").read_text()
SECURITY = (REPOSITORY / "SECURITY.md").read_text()
SPELLED = {2: "two", 3: "three", 9: "nine"}


def blocks(text: str) -> list[Any]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_every_component_is_described_and_exists() -> None:
    _, _, table = INSTALL.partition("\n| component |")
    rows = table.partition("\n\n")[0]
    described = set(re.findall(r"^\| `([a-z0-9-]+)` \|", rows, re.MULTILINE))
    there = {path.parent.name for path in DAEMONSET.glob("components/*/kustomization.yaml")}
    ours = {*COMPONENTS, *OTHER_COMPONENTS, *PROOF_COMPONENTS, *REPAIR_COMPONENTS}
    assert described == there == ours


def test_the_overlay_shown_names_what_exists() -> None:
    overlay = blocks(INSTALL)[0]
    for path in (*overlay["resources"], *overlay["components"]):
        assert (REPOSITORY / path.removeprefix("../gpuward/") / "kustomization.yaml").exists()


def test_the_openshift_constraints_allow_what_profile_minimal_asks_for_and_no_more() -> None:
    (constraints,) = [b for b in blocks(INSTALL) if "allowedCapabilities" in b]
    objects = read_manifests(DAEMONSET / "base")
    (agent,) = [o for o in objects if o["kind"] == "DaemonSet"]
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    asked = container["securityContext"]
    assert constraints["allowedCapabilities"] == asked["capabilities"]["add"]
    assert constraints["runAsUser"] == {"type": "MustRunAs", "uid": asked["runAsUser"]}
    assert constraints["readOnlyRootFilesystem"] is asked["readOnlyRootFilesystem"]
    assert not any(value is True for key, value in constraints.items() if key.startswith("allow"))


@pytest.mark.parametrize(
    ("count", "what"),
    [
        pytest.param(len(names.AGENT_LABELS), "labels and two conditions", id="agent"),
        pytest.param(
            len(mark.AUTOSCALER_ANNOTATIONS) + 1, "annotations; of its status", id="mark"
        ),
    ],
)
def test_the_numbers_in_the_threat_model_are_right(count: int, what: str) -> None:
    assert f"{SPELLED[count]} {what}" in SECURITY


@pytest.mark.parametrize("page", ["docs/install.md", "SECURITY.md"])
def test_links_lead_somewhere(page: str) -> None:
    path = REPOSITORY / page
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert Path(path.parent / link).exists(), link


def test_each_profile_says_its_pod_security_level() -> None:
    assert (
        "Pod security: privileged"
        in (DAEMONSET / "components/full/kustomization.yaml").read_text()
    )
    assert (
        "Pod security: privileged"
        in (DAEMONSET / "components/nvml/kustomization.yaml").read_text()
    )
    (namespace,) = [o for o in read_manifests(DAEMONSET / "base") if o["kind"] == "Namespace"]
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
