"""The runbooks as pages: what to do stands beside what is wrong, also without a way to the
Internet.

Their text is `runbooks.json`, made of `docs/runbooks` by `python -m hack.runbooks`.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from remediator.page.layout import page
from remediator.page.markup import Child, Element, el
from remediator.view.shapes import ReplicaShown

_TEXT: Final = Path(__file__).with_name("runbooks.json")
FOLDER: Final = "docs/runbooks"
_INLINE: Final = re.compile(r"`([^`]+)`|\[([^\]]+)\]\(([^)]+)\)|\*\*([^*]+)\*\*")


@functools.cache
def runbooks() -> Mapping[str, str]:
    """Markdown by path under `docs/runbooks`, such as `blocked/Budget.md`."""
    return msgspec.json.decode(_TEXT.read_bytes(), type=dict[str, str])


def runbook_link(path: str, words: str) -> Element | None:
    """A link to a runbook; None where there is none of that name."""
    return el("a", {"href": f"/{FOLDER}/{path}"}, words) if path in runbooks() else None


def runbook_page(path: str, replica: ReplicaShown) -> Element:
    """One runbook; KeyError where there is none."""
    text = runbooks()[path]
    title = text.partition("\n")[0].removeprefix("# ")
    body = list(_blocks(text.partition("\n")[2], posixpath.dirname(path)))
    return page(title, "", replica, el("h1", title), el("div.runbook", body))


def _blocks(text: str, folder: str) -> Iterator[Element]:
    fence: list[str] | None = None
    words: list[str] = []
    items: list[Element] = []

    def flush() -> Iterator[Element]:
        if items:
            yield el("ul", list(items))
            items.clear()
        if words and words[0].startswith("|"):
            yield el("pre", el("code", "\n".join(words)))
        elif words:
            yield el("p", _spans(" ".join(words), folder))
        words.clear()

    for line in text.split("\n"):
        said = line.strip()
        if said.startswith("```"):
            if fence is None:
                yield from flush()
                fence = []
            else:
                yield el("pre.copy", el("code", "\n".join(fence)))
                fence = None
        elif fence is not None:
            fence.append(line)
        elif said.startswith("## "):
            yield from flush()
            yield el("h2", said[3:])
        elif said.startswith("- "):
            if words and not items:
                yield from flush()
            items.append(el("li", _spans(said[2:], folder)))
        elif not said:
            yield from flush()
        elif items:
            last = items.pop()
            items.append(el("li", [*last.children, " ", *_spans(said, folder)]))
        else:
            words.append(said)
    yield from flush()


def _spans(text: str, folder: str) -> list[Child]:
    """Words with code, links within the runbooks, and weight."""
    found: list[Child] = []
    at = 0
    for match in _INLINE.finditer(text):
        found.append(text[at : match.start()])
        code, words, target, strong = match.groups()
        if code:
            found.append(el("code", code))
        elif strong:
            found.append(el("strong", strong))
        else:
            inside = posixpath.normpath(posixpath.join(folder, target))
            found.append(runbook_link(inside, words) or words)
        at = match.end()
    return [*found, text[at:]]
