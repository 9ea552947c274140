"""A release's notes and manifest, and the workflows that name only what the repository has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hack.release.__main__ import NoSectionError, krew, notes

REPOSITORY = Path(__file__).parents[3]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yaml"))
CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n- a\n\n## [1.2.0] - 2026-11-22\n\n- b\n\n## 1.1.0\n\n- c\n"
)


def test_the_notes_are_the_versions_own_section() -> None:
    assert notes(CHANGELOG, "1.2.0") == "- b\n"
    assert notes(CHANGELOG, "1.1.0") == "- c\n"
    with pytest.raises(NoSectionError, match=r"has no section 2\.0\.0"):
        notes(CHANGELOG, "2.0.0")


def test_the_krew_manifest_lists_each_archive_with_its_digest() -> None:
    digests = {
        "kubectl-gpuward-linux-amd64.tar.gz": "a" * 64,
        "kubectl-gpuward-darwin-arm64.tar.gz": "b" * 64,
        "gpuward-1.2.0.tgz": "c" * 64,
    }
    manifest = yaml.safe_load(krew("1.2.0", "https://example.org/v1.2.0", digests))
    assert manifest["spec"]["version"] == "v1.2.0"
    assert [
        (p["selector"]["matchLabels"], p["uri"].rpartition("/")[2], p["sha256"])
        for p in manifest["spec"]["platforms"]
    ] == [
        ({"os": "darwin", "arch": "arm64"}, "kubectl-gpuward-darwin-arm64.tar.gz", "b" * 64),
        ({"os": "linux", "arch": "amd64"}, "kubectl-gpuward-linux-amd64.tar.gz", "a" * 64),
    ]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_only_what_is_here(workflow: Path) -> None:
    text = workflow.read_text()
    assert yaml.safe_load(text)["jobs"]
    for module in re.findall(r"python -m (hack\.\w+)", text):
        assert (REPOSITORY / module.replace(".", "/")).exists(), module
    for path in re.findall(r"(?:daemonset|hack)/[\w/]+(?:\.\w+)?|\.ci/run", text):
        assert (REPOSITORY / path).exists(), path
    stages = set(re.findall(r" AS (\w+)\n", (REPOSITORY / "daemonset/Dockerfile").read_text()))
    for images in re.findall(r"image: \[(.+?)\]", text):
        assert set(images.split(", ")) <= stages


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plugin",), "has no wheel of"),
        (("krew",), "needs --address"),
        (("krew", "--address", "https://example.org"), "needs an archive"),
        (("notes", "--version", "99.0.0"), "has no section 99.0.0"),
    ],
)
def test_what_a_part_is_made_of_is_named_where_it_is_missing(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hack.release", *arguments],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
