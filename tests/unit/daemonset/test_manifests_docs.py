"""What docs/install.md and SECURITY.md say of the manifests is what the manifests are."""

from __future__ import annotations

import re
from typing import Any

import yaml

from hack.sim.manifests import read_manifests
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


def blocks(text: str) -> list[Any]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_every_component_is_described_and_exists() -> None:
    _, _, table = INSTALL.partition("\n| component |")
    rows = table.partition("\n\n")[0]
    described = set(re.findall(r"^\| `([a-z0-9-]+)` \|", rows, re.MULTILINE))
    there = {path.parent.name for path in DAEMONSET.glob("components/*/kustomization.yaml")}
    ours = {*COMPONENTS, *OTHER_COMPONENTS, *PROOF_COMPONENTS, *REPAIR_COMPONENTS}
    assert described == there == ours


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
