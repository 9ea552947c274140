"""A release's notes, and the workflows that name only what the repository has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hack.release_notes import notes

REPOSITORY = Path(__file__).parents[3]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yaml"))
CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n- a\n\n## [1.2.0] - 2026-11-22\n\n- b\n\n## 1.1.0\n\n- c\n"
)


def test_the_notes_are_the_versions_own_section() -> None:
    assert notes(CHANGELOG, "1.2.0") == "- b\n"
    assert notes(CHANGELOG, "1.1.0") == "- c\n"
    with pytest.raises(LookupError, match=r"has no section 2\.0\.0"):
        notes(CHANGELOG, "2.0.0")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_only_what_is_here(workflow: Path) -> None:
    text = workflow.read_text()
    assert yaml.safe_load(text)["jobs"]
    for module in re.findall(r"python -m (hack\.\w+)", text):
        path = REPOSITORY / module.replace(".", "/")
        assert path.exists() or path.with_suffix(".py").exists(), module
    for named in re.findall(r"(?:daemonset|hack)/[\w/]+(?:\.\w+)?|\.ci/run", text):
        assert (REPOSITORY / named).exists(), named
    stages = set(re.findall(r" AS (\w+)\n", (REPOSITORY / "daemonset/Dockerfile").read_text()))
    for images in re.findall(r"image: \[(.+?)\]", text):
        assert set(images.split(", ")) <= stages
