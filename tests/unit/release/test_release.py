"""A release's notes, its lowest versions, and workflows that name only what is here."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from hack.lowest import TOOLS, pins
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


def test_every_dependency_declares_a_lowest_version_that_can_be_installed() -> None:
    found = dict(pin.split("==") for pin in pins())
    assert {"urllib3", "aiohttp", "kubernetes", "rich", *TOOLS} <= found.keys()
    assert all("." in version for version in found.values())


@pytest.mark.parametrize("script", ["demo", "screenshots"])
def test_the_demo_installs_what_the_remediator_needs_but_the_client_library(script: str) -> None:
    """Its kubeconfig logs in without that."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=]", one)[0] for one in project["optional-dependencies"]["remediator"]}
    text = (REPOSITORY / "hack" / script).read_text()
    installed = re.search(r'^GPUWARD_INSTALL="\. (.*)"$', text, re.MULTILINE)
    assert installed is not None
    assert set(installed[1].split()) == needed - {"kubernetes"} | {"rich"}
