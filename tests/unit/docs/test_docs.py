"""The docs are part of the change: current, complete, and every link leads somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

from hack.reference import MEANINGS
from rules.api import names

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("daemonset/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
WRITTEN = re.compile(r"^(LABEL|ANNOTATION|CONDITION|TAINT)_")
NOT_OURS = {"LABEL_DRIVER_UPGRADE", "LABEL_MIG_STATE", "LABEL_QUARANTINE"}
"""Read from others, or documented with the taint of the same name."""


def test_every_name_we_write_has_a_meaning() -> None:
    """Nothing appears on a node that the reference does not explain."""
    written = {n for n in vars(names) if WRITTEN.match(n)} - NOT_OURS

    assert written == set(MEANINGS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link and picture exists."""
    targets = LINK.findall(path.read_text(encoding="utf-8"))

    assert [t for t in targets if not (path.parent / t).exists()] == []


def test_the_version_stands_in_one_place() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    named = re.compile(r"(?:gpuward-[\w$]+:|newTag: \"?|image\.version=)(\d[\w.]*)")
    installed = ("base/kustomization.yaml", "Dockerfile")
    pages = ("README.md", "docs/install.md", *(f"daemonset/{file}" for file in installed))
    found = {page: set(named.findall((ROOT / page).read_text(encoding="utf-8"))) for page in pages}

    assert {page: {one.rstrip(".") for one in said} for page, said in found.items()} == {
        page: {version} for page in found
    }
