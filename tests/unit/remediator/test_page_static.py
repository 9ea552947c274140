"""The files the browser gets: no address outside, and nothing that parses markup."""

import re
from pathlib import Path

import pytest

from remediator.page.markup import ATTRIBUTES, TAGS

PAGE = Path(__file__).resolve().parents[3] / "remediator" / "page"
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
