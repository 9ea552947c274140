"""HTML as values: the only way this package makes markup.

There is no raw text: every string a page holds is either a tag or attribute name from the lists
below or it is escaped. So a kernel line, a process name or an annotation can never become markup.
The same element goes out as HTML (`render`) or as the JSON tree that the page's script turns into
DOM nodes (`as_tree`), so a page is written once.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rules.text.printable import printable

Tree = list[object]
"""`[tag, {attribute: value}, child, ...]`; a child is a string or a tree."""

_NAMES_OF_TAGS: Final = """
    html head meta title link script body header nav main footer section article aside h1 h2 h3 h4
    p a ul ol li dl dt dd div span strong em small code pre time table caption thead tbody tr th td
    form label input button details summary figure figcaption wbr svg g rect line path text
"""
_NAMES_OF_ATTRIBUTES: Final = """
    href src rel type name content charset lang id class title role for value method action
    placeholder maxlength datetime scope colspan open tabindex defer autocomplete spellcheck
    viewBox width height x y x1 x2 y1 y2 rx d text-anchor
"""
TAGS: Final = frozenset(_NAMES_OF_TAGS.split())
_VOID: Final = frozenset({"meta", "link", "input", "wbr"})
ATTRIBUTES: Final = frozenset(_NAMES_OF_ATTRIBUTES.split())
_ADDRESSES: Final = frozenset({"href", "src", "action"})
MAX_TEXT: Final = 2_000
"""No single piece of text on a page is longer; everything shown is bounded at its source too."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element with its attributes and children; children that are strings are text."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Child, ...]


Child = Element | str
Content = Child | Sequence[Child | None] | None
Attributes = dict[str, str]


def el(name: str, *content: Content | Attributes) -> Element:
    """An element by its tag and classes (`p.under`). What comes first may be more attributes.

    None among the content is nothing; lists and tuples are taken apart. ValueError for a name that
    is not in the lists or an address that leaves this server: both are defects of the page, never
    of what it shows.
    """
    tag, *classes = name.split(".")
    if tag not in TAGS:
        raise ValueError(f"{tag!r} is not an element of this page")
    given = [("class", " ".join(classes))] if classes else []
    for item in content:
        if isinstance(item, dict):
            given += item.items()
    for attribute, value in given:
        _check(attribute, value)
    return Element(tag, tuple(given), tuple(_flat(content)))


def _check(name: str, value: str) -> None:
    if name not in ATTRIBUTES and not name.startswith(("aria-", "data-")):
        raise ValueError(f"{name!r} is not an attribute of this page")
    if name in _ADDRESSES and (value[:1] not in {"/", "#", "?"} or value[:2] in {"//", "/\\"}):
        raise ValueError(f"{value!r} is not an address on this server")


def _flat(content: tuple[Content | Attributes, ...]) -> list[Child]:
    children: list[Child] = []
    for item in content:
        if item is None or item == "" or isinstance(item, dict):
            continue
        if isinstance(item, (str, Element)):
            children.append(item)
        else:
            children.extend(child for child in item if child is not None and child != "")
    return children


def shown(text: str) -> str:
    """Text as a person may see it: bounded, control and formatting characters spelled out."""
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "…"
    return text if text.isprintable() else printable(text)


def render(element: Child) -> str:
    """The element as HTML, everything in it escaped."""
    parts: list[str] = []
    _write(element, parts)
    return "".join(parts)


def _write(item: Child, parts: list[str]) -> None:
    if isinstance(item, str):
        parts.append(html.escape(shown(item), quote=False))
        return
    parts.append(f"<{item.tag}")
    for name, value in item.attributes:
        parts.append(f' {name}="{html.escape(shown(value))}"')
    parts.append(">")
    if item.tag in _VOID:
        return
    for child in item.children:
        _write(child, parts)
    parts.append(f"</{item.tag}>")


def as_tree(element: Element) -> Tree:
    """The element as JSON builtins, for the page's script."""
    children = [
        shown(child) if isinstance(child, str) else as_tree(child) for child in element.children
    ]
    return [element.tag, {name: shown(value) for name, value in element.attributes}, *children]


def digest(element: Element) -> str:
    """Twelve hex digits that change when what a person sees of the element changes."""
    body = json.dumps(as_tree(element), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def document(root: Element) -> str:
    """A whole page."""
    return "<!doctype html>\n" + render(root) + "\n"
