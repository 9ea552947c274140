"""The runbooks of `docs/runbooks` as HTML for the review page.

Their text is `runbooks.json`, made by `python -m hack.runbooks`.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_HERE: Final = Path(__file__).parent
FOLDER: Final = "docs/runbooks"
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")


@functools.cache
def runbooks() -> Mapping[str, str]:
    """Markdown by path under `docs/runbooks`, such as `blocked/Budget.md`."""
    return msgspec.json.decode((_HERE / "runbooks.json").read_bytes(), type=dict[str, str])


def runbook_title(path: str) -> str:
    """The first heading of a runbook; KeyError where there is none of that path."""
    return runbooks()[path].partition("\n")[0].removeprefix("# ")


@functools.cache
def runbook_html(path: str) -> Markup:
    """The text of a runbook as HTML. A link that leads to no runbook is its words alone."""
    tokens = _MARKDOWN.parse(runbooks()[path])
    for token in tokens:
        if token.children:
            token.children = _with_own_links(token.children, posixpath.dirname(path))
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704 (escaped)


def _with_own_links(tokens: list[Token], folder: str) -> list[Token]:
    kept: list[Token] = []
    leads = False
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrs["href"])
            inside = posixpath.normpath(posixpath.join(folder, target))
            leads = inside in runbooks()
            token.attrs["href"] = f"/{FOLDER}/{inside}"
        if leads or token.type not in {"link_open", "link_close"}:
            kept.append(token)
    return kept
