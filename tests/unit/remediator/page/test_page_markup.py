"""Markup from values: whatever text goes in comes out as text, never as markup."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.page.markup import MAX_TEXT, as_tree, digest, document, el, render, shown


class Reader(HTMLParser):
    """What a browser makes of it: tags in order, attributes, all text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.said = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attrs)

    def handle_data(self, data: str) -> None:
        self.said += data


HOSTILE = st.text(st.one_of(st.sampled_from("<>&\"'/!-=;#as "), st.characters()), max_size=60)


@given(HOSTILE, HOSTILE)
def test_any_text_stays_text(said: str, title: str) -> None:
    read = Reader(render(el("p", {"title": title}, said)))

    assert read.tags == ["p"]
    assert read.said == shown(said)
    assert read.attributes == {"title": shown(title)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("<script>x</script>", "<p>&lt;script&gt;x&lt;/script&gt;</p>", id="script"),
        pytest.param("a & b", "<p>a &amp; b</p>", id="ampersand"),
        pytest.param("a\x1b[31m\nb", "<p>a\\x1b[31m\\x0ab</p>", id="terminal control"),
        pytest.param("a\u202eb", "<p>a\\u202eb</p>", id="direction override"),
        pytest.param("Prüfung 日本", "<p>Prüfung 日本</p>", id="other scripts stay"),
    ],
)
def test_hostile_text(text: str, expected: str) -> None:
    assert render(el("p", text)) == expected


def test_an_attribute_cannot_be_left() -> None:
    assert render(el("p", {"title": '" onclick="x'})) == '<p title="&quot; onclick=&quot;x"></p>'


def test_no_text_is_longer_than_the_bound() -> None:
    assert len(shown("x" * 100_000)) == MAX_TEXT


@pytest.mark.parametrize(
    ("tag", "attributes"),
    [
        pytest.param("iframe", {}, id="unknown element"),
        pytest.param("p", {"onclick": "x"}, id="handler"),
        pytest.param("p", {"style": "color:red"}, id="inline style"),
        pytest.param("a", {"href": "https://example.com/"}, id="another server"),
        pytest.param("a", {"href": "//example.com/"}, id="another server without scheme"),
        pytest.param("a", {"href": "/\\example.com/"}, id="another server by backslash"),
        pytest.param("a", {"href": "javascript:x"}, id="script address"),
        pytest.param("script", {"src": "data:x"}, id="inline script"),
    ],
)
def test_a_page_cannot_be_made_to_leave(tag: str, attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"page|server"):
        el(tag, attributes)


def test_nothing_among_the_content_is_nothing() -> None:
    assert render(el("p", "", [el("em", "a"), None, "b"], ("c",))) == ("<p><em>a</em>bc</p>")


def test_elements_without_content_have_no_end() -> None:
    assert render(el("input", {"type": "search"})) == '<input type="search">'


def test_the_tree_says_what_the_html_says() -> None:
    element = el("p.a", "x < y ", el("em", "\x07"))

    assert as_tree(element) == ["p", {"class": "a"}, "x < y ", ["em", {}, "\\x07"]]


def test_a_digest_follows_what_is_shown() -> None:
    one, same, other = (el("p", text) for text in ("a", "a", "b"))

    assert digest(one) == digest(same) != digest(other)


def test_a_document_says_what_it_is() -> None:
    assert document(el("html", {"lang": "en"})) == '<!doctype html>\n<html lang="en"></html>\n'
