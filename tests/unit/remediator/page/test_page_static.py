"""The files the browser gets: no address outside, no code in a page."""

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
    "call",
    [
        "innerHTML =", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
        "srcdoc", "createContextualFragment", "setHTMLUnsafe",
    ],
)  # fmt: skip
def test_the_script_puts_no_text_into_the_page_as_markup(call: str) -> None:
    """It takes over nodes of the same page as the server renders it, and runs nothing."""
    assert call not in SCRIPT


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_escapes_less_or_holds_code(path: Path) -> None:
    text = path.read_text()
    assert not re.findall(r"\|\s*safe\b|autoescape|Markup", text)
    assert not re.findall(r"\son\w+=|style=|javascript:", text)
    scripts = re.findall(r"<script[^>]*>", text)
    assert scripts == ['<script src="/static/page.js" defer>'] * (path.name == "base.html")
    # An address begins with a fixed path of this server, is made by `tile` and `runbook`, or
    # begins with `--grafana-url`, which is checked at the start.
    assert not re.findall(
        r'(?:href|src|action)="(?!/|#|\{\{ address |\{\{ reason\|runbook |\{\{ replica\.grafana )',
        text,
    )
    assert not re.findall(r"\s[\w-]+=\{\{", text), "a value in an attribute is quoted"
