"""The files the browser gets: no address outside, no code in a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[4] / "remediator" / "page"
TEMPLATES = sorted((PAGE / "templates").glob("*.html"))
FILES = [*sorted(PAGE.glob("*.css")), PAGE / "page.js", PAGE / "icon.svg", *TEMPLATES]
NAMESPACE = "http://www.w3.org/2000/svg"
SCRIPT = (PAGE / "page.js").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_an_address_outside(path: Path) -> None:
    text = path.read_text().replace(NAMESPACE, "")

    assert re.findall(r"//[a-z0-9]|@import|url\(|http", text.replace("// ", "")) == []


@pytest.mark.parametrize(
    "word",
    [
        "innerHTML =", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
        "srcdoc", "createContextualFragment", "setHTMLUnsafe",
    ],
)  # fmt: skip
def test_the_script_puts_no_text_into_the_page_as_markup(word: str) -> None:
    """It takes over nodes of the same page as the server renders it, and runs nothing."""
    assert word not in SCRIPT


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_escapes_less_or_holds_code(path: Path) -> None:
    text = path.read_text()
    assert not re.findall(r"\|\s*safe\b|autoescape|Markup", text)
    assert not re.findall(r"\son\w+=|style=|javascript:", text)
    scripts = re.findall(r"<script[^>]*>", text)
    assert scripts == ['<script src="/static/page.js" defer>'] * (path.name == "base.html")
    # An address begins with a fixed path of this server or is made by `tile` and `runbook`.
    assert not re.findall(
        r'(?:href|src|action)="(?!/|#|\{\{ address |\{\{ reason\|runbook )', text
    )
    assert not re.findall(r"\s[\w-]+=\{\{", text), "a value in an attribute is quoted"


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
