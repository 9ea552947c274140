"""What kustomize makes of the base and of each component, by the real kubectl."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

DAEMONSET: Final = Path(__file__).resolve().parents[2] / "daemonset"
PROFILES: Final = ("nvml", "full")
"""Components of which at most one is chosen."""
NO_SWITCH: Final = frozenset({*PROFILES, "enforce"})
"""Components that are no switch of the chart: profiles, and what value `mode` says."""

Object = dict[str, Any]
Identity = tuple[str, str]


def components() -> list[str]:
    """Every component that is a switch of the chart."""
    found = (path.parent.name for path in (DAEMONSET / "components").glob("*/kustomization.yaml"))
    return sorted(set(found) - NO_SWITCH)


def build(*chosen: str) -> dict[Identity, Object]:
    """The objects of base, definitions and `chosen` components; CalledProcessError as
    kubectl's.
    """
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder).resolve()
        content = {
            "resources": [os.path.relpath(DAEMONSET, overlay)],
            "components": [
                os.path.relpath(DAEMONSET / "components" / each, overlay) for each in chosen
            ],
        }
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
        text = subprocess.run(
            ["kubectl", "kustomize", str(overlay)], check=True, capture_output=True, text=True
        ).stdout
    objects = [obj for obj in yaml.load_all(text, yaml.CSafeLoader) if obj]
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
