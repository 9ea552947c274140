"""Pages of a list: everything once, whatever comes and goes meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.view.lists.paging import RequestError, page_of


def key(item: tuple[int, str]) -> tuple[int, str]:
    return item


@given(st.sets(st.tuples(st.integers(0, 3), st.text(max_size=4))), st.integers(1, 7))
def test_pages_together_are_the_list(items: set[tuple[int, str]], limit: int) -> None:
    ordered, token, found = sorted(items), "", []
    for _ in range(len(ordered) + 1):
        shown, token = page_of(ordered, key, {"limit": str(limit), "continue": token})
        found += shown
        assert len(shown) <= limit
        if not token:
            break

    assert found == ordered


def test_an_item_that_goes_hides_no_other() -> None:
    items = [(0, name) for name in "abcdef"]
    _, token = page_of(items, key, {"limit": "2"})
    items.remove((0, "b"))

    shown, _ = page_of(items, key, {"limit": "2", "continue": token})

    assert shown == [(0, "c"), (0, "d")]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"limit": "0"}, id="no items"),
        pytest.param({"limit": "1001"}, id="too many"),
        pytest.param({"limit": "-1"}, id="negative"),
        pytest.param({"limit": "ten"}, id="a word"),
        pytest.param({"limit": "٣"}, id="a digit of another script"),
        pytest.param({"continue": "%%%"}, id="not a token"),
        pytest.param({"continue": "e30"}, id="another JSON value"),
        pytest.param({"continue": "WyJ4Il0"}, id="a token of another list"),
        pytest.param({"continue": "W1" * 2000}, id="too long"),
    ],
)
def test_what_cannot_be_understood_is_said(query: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=r"limit must|continue is not"):
        page_of([(0, "a")], key, query)
