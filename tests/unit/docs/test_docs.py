"""The docs are part of the change: current, complete, and every link leads somewhere."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from hack.reference import MEANINGS, PAGE, page
from rules.api import names
from rules.catalog.reasons import REASONS

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("daemonset/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
WRITTEN = re.compile(r"^(LABEL|ANNOTATION|CONDITION|TAINT)_")
NOT_OURS = {"LABEL_DRIVER_UPGRADE", "LABEL_MIG_STATE", "LABEL_QUARANTINE"}
"""Read from others, or documented with the taint of the same name."""


def test_the_reference_is_what_the_code_says() -> None:
    """`python -m hack.reference` after changing a flag, a name or a reason."""
    assert page() == PAGE.read_text()


def test_every_name_we_write_has_a_meaning() -> None:
    """Nothing appears on a node that the reference does not explain."""
    written = {n for n in vars(names) if WRITTEN.match(n)} - NOT_OURS

    assert written == set(MEANINGS)


def test_every_reason_is_listed() -> None:
    """What a condition's reason may say can be looked up."""
    text = PAGE.read_text()

    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []


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


@pytest.mark.parametrize("program", ["rules", "agent", "remediator"])
def test_the_top_of_a_program_can_be_seen_at_a_glance(program: str) -> None:
    """At most 8 modules."""
    assert len([path for path in (ROOT / program).glob("*.py") if path.stem != "__init__"]) <= 8


def test_a_package_can_be_seen_at_a_glance() -> None:
    """At most 30 files in any folder, tests too."""
    folders = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for top in ("rules", "agent", "remediator", "hack", "tests")
        for path in (ROOT / top).rglob("*.py")
    )
    assert {folder: count for folder, count in folders.items() if count > 30} == {}


def test_each_test_file_has_a_name_of_its_own() -> None:
    """pytest imports test files by their bare names: of two alike, one is not collected."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))

    assert [name for name, count in names.items() if count > 1] == []
