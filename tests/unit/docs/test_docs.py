"""The docs are complete, and every link and quoted path exists."""

import re
import tomllib
from pathlib import Path

import pytest

from hack.reference import MEANINGS
from rules.api import names

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("daemonset/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
QUOTED_PATH = re.compile(r"`((?:agent|daemonset|hack|remediator|rules|tests)/[\w./-]+\w)`")
WRITTEN = re.compile(r"^(LABEL|ANNOTATION|CONDITION|TAINT)_")
DOCUMENTED_ELSEWHERE = {"LABEL_DRIVER_UPGRADE", "LABEL_MIG_STATE", "LABEL_QUARANTINE"}
"""Names of others that gpuward reads, or documented with the taint of the same name."""


def test_the_docs_stay_small() -> None:
    files = [path for path in (ROOT / "docs").rglob("*") if path.is_file()]
    size = sum(len(path.read_text("utf-8").split()) for path in files if path.suffix == ".md")

    assert len(files) <= 80
    assert size <= 45_000


def test_every_written_name_has_a_meaning() -> None:
    """The reference explains every name that gpuward writes to a node."""
    written = {n for n in vars(names) if WRITTEN.match(n)} - DOCUMENTED_ELSEWHERE

    assert written == set(MEANINGS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_exist(path: Path) -> None:
    """Every relative link and picture exists."""
    targets = LINK.findall(path.read_text(encoding="utf-8"))

    assert [t for t in targets if not (path.parent / t).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_quoted_paths_of_the_repository_exist(path: Path) -> None:
    quoted = set(QUOTED_PATH.findall(path.read_text(encoding="utf-8")))

    assert path.name == "CHANGELOG.md" or {q for q in quoted if not (ROOT / q).exists()} == set()


def test_the_version_is_the_same_everywhere() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    named = re.compile(r"(?:gpuward-[\w$]+:|newTag: \"?|image\.version=)(\d[\w.]*)")
    installed = ("base/kustomization.yaml", "Dockerfile")
    pages = ("README.md", "docs/install.md", *(f"daemonset/{file}" for file in installed))
    found = {page: set(named.findall((ROOT / page).read_text(encoding="utf-8"))) for page in pages}

    assert {page: {one.rstrip(".") for one in versions} for page, versions in found.items()} == {
        page: {version} for page in found
    }
