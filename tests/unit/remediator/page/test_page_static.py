"""The files the browser gets: no address outside, and nothing that parses markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remediator.page.markup import ATTRIBUTES, TAGS

PAGE = Path(__file__).resolve().parents[4] / "remediator" / "page"
FILES = [*sorted(PAGE.glob("*.css")), PAGE / "page.js", PAGE / "icon.svg"]
NAMESPACE = "http://www.w3.org/2000/svg"
SCRIPT = (PAGE / "page.js").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_an_address_outside(path: Path) -> None:
    text = path.read_text().replace(NAMESPACE, "")

    assert re.findall(r"//[a-z0-9]|@import|url\(|http", text.replace("// ", "")) == []


@pytest.mark.parametrize(
    "word",
    [
        "innerHTML", "outerHTML", "insertAdjacentHTML", "DOMParser", "document.write", "eval(",
        "Function(", "srcdoc", "createContextualFragment",
    ],
)  # fmt: skip
def test_the_script_never_parses_markup(word: str) -> None:
    assert word not in SCRIPT


def names_in(start: str) -> set[str]:
    """The words of one of the script's lists."""
    found = re.search(re.escape(start) + r" = new Set\(\s*\((.*?)\)\.split", SCRIPT, re.DOTALL)
    assert found is not None
    return set(" ".join(re.findall(r'"([^"]*)"', found[1])).split())


def test_the_script_builds_nothing_that_the_server_would_not() -> None:
    assert names_in("TAGS") < TAGS
    assert names_in("ATTRIBUTES") < ATTRIBUTES
    assert not names_in("TAGS") & {"script", "link", "meta", "form", "input"}
    assert "src" not in names_in("ATTRIBUTES")


def colours(dark: bool) -> dict[str, str]:
    """The style sheet's named colours in one scheme."""
    light, night = (PAGE / "page.css").read_text().split("prefers-color-scheme: dark", 1)
    named = r"--([a-z-]+): (#[0-9a-f]{6});"
    return dict(re.findall(named, light)) | (dict(re.findall(named, night)) if dark else {})


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio as WCAG 2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


TEXT_ON = [
    *((ink, ground) for ink in ("ink", "soft", "link") for ground in ("ground", "surface")),
    *((f"{kind}-ink", f"{kind}-wash") for kind in ("ok", "warn", "bad", "act", "held", "dim")),
    *(("ink", wash) for wash in ("warn-wash", "bad-wash", "code")),
    *((ink, "surface") for ink in ("bad-ink", "warn-ink")),
]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT_ON, ids=lambda name: str(name))
def test_text_can_be_read_by_weak_eyes(ink: str, ground: str, dark: bool) -> None:
    """4.5 to 1 is what WCAG 2 asks of text at level AA."""
    found = colours(dark)

    assert contrast(found[ink], found[ground]) >= 4.5


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("mark", ["ok", "warn", "bad", "dim", "focus", "held"])
def test_shapes_can_be_seen_by_weak_eyes(mark: str, dark: bool) -> None:
    """3 to 1 is what WCAG 2 asks of shapes that mean something."""
    found = colours(dark)

    assert contrast(found[mark], found["surface"]) >= 3.0
