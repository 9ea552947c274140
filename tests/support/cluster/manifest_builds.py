"""Builds of daemonset/ with the real kubectl, as an installer makes them; used by manifest
tests.
"""

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.sim.manifests import LOADER
from rules.repair.adapter import ADAPTERS
from rules.repair.component import actions_of, folder_of, needs_component

REPOSITORY = Path(__file__).parents[3]
DAEMONSET = REPOSITORY / "daemonset"
COMPONENTS = (
    "nvml",
    "full",
    "enforce",
    "force",
    "gpu-operator",
    "prometheus-operator",
)
PROOF_COMPONENTS = ("validate",)
"""What a node is tested with before it comes back; independent of all others."""
REPAIR_COMPONENTS = tuple(
    folder_of(name) for name, adapter in ADAPTERS.items() if needs_component(actions_of(adapter))
)
"""One for each adapter of `rules.repair.adapter` that needs a permission."""
OTHER_COMPONENTS = ("preempting", "pod-resources", "devices", "notice", "lifecycle-conditions")
"""What changes one object and combines with everything."""
OLDEST_MINOR = 27

Object = dict[str, Any]


def build(
    *components: str, inner_namespace: str = "", namespace: str = "", root: str = "daemonset"
) -> list[Object]:
    """What `kubectl kustomize` makes of an overlay that lists these components."""
    return json.loads(_build(components, inner_namespace, namespace, root))


def without_crds(objects: Sequence[Object]) -> list[Object]:
    """All but the definitions, which hack/crds compares with the types they come from."""
    return [obj for obj in objects if obj["kind"] != "CustomResourceDefinition"]


def one(objects: Sequence[Object], kind: str, name: str) -> Object:
    """The object of that kind and name."""
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def agent_container(objects: Sequence[Object]) -> Object:
    """The agent's container."""
    spec = one(objects, "DaemonSet", "gpuward-agent")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return container


def environment(objects: Sequence[Object]) -> dict[str, str]:
    """The agent's literal environment."""
    return {e["name"]: e["value"] for e in agent_container(objects)["env"] if "value" in e}


@functools.cache
def _build(components: tuple[str, ...], inner: str, namespace: str, root: str) -> str:
    program = kubectl()
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder).resolve() / "overlay"
        base = os.path.relpath(REPOSITORY / root, overlay)
        if inner:
            renamed = Path(folder).resolve() / "renamed"
            _write(renamed, {"namespace": inner, "resources": [base]})
            base = "../renamed"
        listed = [os.path.relpath(DAEMONSET / "components" / c, overlay) for c in components]
        content: Object = {"resources": [base], "components": listed}
        _write(overlay, content | ({"namespace": namespace} if namespace else {}))
        done = subprocess.run(
            [program, "kustomize", str(overlay)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    objects = [obj for obj in yaml.load_all(done.stdout, LOADER) if obj]
    objects.sort(
        key=lambda o: (o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"])
    )
    return json.dumps(objects)


def _write(folder: Path, content: Object) -> None:
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))


@functools.cache
def kubectl() -> str:
    """A kubectl whose kustomize knows components and patches as we write them; else skip."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    output = subprocess.run(
        [program, "version", "--client", "-o", "json"], capture_output=True, text=True, check=False
    ).stdout
    version = json.loads(output)["clientVersion"] if output.startswith("{") else {"minor": "0"}
    if int(version["minor"].rstrip("+") or 0) < OLDEST_MINOR:
        pytest.skip(f"kubectl is older than 1.{OLDEST_MINOR}: {version.get('gitVersion')}")
    return program
