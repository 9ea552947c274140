"""Sentences: one line, bounded, stable, and nothing that grows with the number of pods."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as change

from rules.api.messages import (
    blocked_clause,
    bounded,
    draining,
    name_list,
    pending,
    shortened,
)
from rules.api.quarantine import BlockedBy, Cause, DrainStatus, PodNote, Pods, pods_of


def pods(*names: str) -> Pods:
    """As a status lists them."""
    return pods_of(PodNote(name=name) for name in names)


names = st.lists(st.text(max_size=300), max_size=300)


@given(names)
def test_a_list_spells_out_three_and_counts_the_rest(items: list[str]) -> None:
    text = name_list(items)
    assert text == name_list(list(reversed(items)))
    assert len(text) <= 3 * 122 + 20


@given(st.text(max_size=5000))
def test_any_text_becomes_one_bounded_line(text: str) -> None:
    line = bounded(text)
    assert len(line) <= 1024
    assert "\n" not in line
    assert "\x1b" not in line


def test_walk3_what_steers_a_terminal_is_spelled_as_everywhere_else() -> None:
    assert bounded("Evil \x1b[2J\n<b>x") == "Evil \\x1b[2J\\x0a<b>x"


@given(names, st.text(max_size=2000))
def test_whatever_the_pods_are_called_the_sentence_is_bounded(items: list[str], why: str) -> None:
    left = pods(*items)
    drain = DrainStatus(waiting=left, left_by_failure=left)
    assert len(draining(drain, 0.0, why)) <= 1024
    assert len(pending([Cause(reason=item) for item in items], 0.0, why)) <= 1024


def test_the_permanent_block_comes_first_whatever_the_order() -> None:
    blocks = [
        BlockedBy(pdb="a/now", why="full", permanent=False),
        BlockedBy(pdb="b/ever", why="never", permanent=True, owner="Job b/x", remedy="relax it"),
    ]
    text = blocked_clause(blocks)
    assert text == blocked_clause(blocks[::-1])
    assert text == "blocked by PDB b/ever and 1 more (permanent: never, owner Job b/x): relax it"


def test_a_long_grace_is_said_of_those_that_have_one_not_of_all_that_wait():
    drain = DrainStatus(evicted=1, waiting=pods("a/told", "a/next"))
    said = draining(drain, 0.0, "", leaves_by=3600.0)
    assert "(a/next, a/told), those with a long grace until " in said
    assert "grace" not in draining(drain, 0.0, "")


def test_a_pod_that_was_evicted_and_has_not_left_is_counted_once():
    waiting = pods("a/going", "a/next")
    drain = DrainStatus(evicted=2, recent=("a/gone", "a/going"), waiting=waiting)
    said = draining(drain, 0.0, "")
    assert said.endswith(
        ": 2 evicted, 1 of them still leaving (a/going), 1 leaving or waiting (a/next)."
    )
    told = draining(drain, 0.0, "", leaves_by=3600.0)
    assert "still leaving (a/going), those with a long grace until 1970-01-01 01:00 UTC" in told
    cut = DrainStatus(evicted=30, recent=("a/going",), waiting=change(waiting, more=7))
    assert ": 30 evicted, 9 still on it, leaving or waiting (" in draining(cut, 0.0, "")


def test_a_text_that_is_too_long_ends_with_a_whole_word_and_an_ellipsis() -> None:
    text = "Waiting: evictions of pods are refused, " * 20
    cut = shortened(text, 256)
    assert len(cut) <= 256
    assert cut.endswith("…")
    assert not text[len(cut) - 1].isalnum(), "the next letter of the same word"
    assert shortened("short", 256) == "short"
    assert shortened("x" * 300, 256) == "x" * 255 + "…"


@given(st.text(max_size=600), st.integers(10, 300))
def test_a_shortened_text_fits_and_begins_as_the_whole(text: str, most: int) -> None:
    cut = shortened(text, most)
    assert len(cut) <= most
    assert text.startswith(cut.removesuffix("…"))
