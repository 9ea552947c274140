"""Test status messages: one line, bounded, stable, independent of the number of pods."""

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
    """Return the pods as a status lists them."""
    return pods_of(PodNote(name=name) for name in names)


names = st.lists(st.text(max_size=300), max_size=300)


@given(names)
def test_a_list_names_three_and_counts_the_rest(items: list[str]) -> None:
    text = name_list(items)
    assert text == name_list(list(reversed(items)))
    assert len(text) <= 3 * 122 + 20


@given(st.text(max_size=5000))
def test_any_text_becomes_one_bounded_line(text: str) -> None:
    line = bounded(text)
    assert len(line) <= 1024
    assert "\n" not in line
    assert "\x1b" not in line


def test_control_characters_are_escaped() -> None:
    assert bounded("Evil \x1b[2J\n<b>x") == "Evil \\x1b[2J\\x0a<b>x"


@given(names, st.text(max_size=2000))
def test_messages_are_bounded_for_any_pod_names(items: list[str], why: str) -> None:
    left = pods(*items)
    drain = DrainStatus(waiting=left, left_by_failure=left)
    assert len(draining(drain, why)) <= 1024
    assert len(pending([Cause(reason=item) for item in items], why)) <= 1024


def test_a_permanent_block_comes_first() -> None:
    blocks = [
        BlockedBy(pdb="a/now", why="full", permanent=False),
        BlockedBy(pdb="b/ever", why="never", permanent=True, owner="Job b/x", remedy="relax it"),
    ]
    text = blocked_clause(blocks)
    assert text == blocked_clause(blocks[::-1])
    assert text == (
        "PDB b/ever allows no disruption: never (owner Job b/x). Relax it. 1 more blocks the drain"
    )


def test_a_long_grace_period_is_reported_for_terminating_pods_only():
    drain = DrainStatus(evicted=1, waiting=pods("a/sent", "a/next"))
    text = draining(drain, "", long_grace=True)
    assert "(a/next, a/sent), in a long grace period" in text
    assert "grace" not in draining(drain, "")


def test_an_evicted_pod_that_still_terminates_is_counted_once():
    waiting = pods("a/going", "a/next")
    drain = DrainStatus(evicted=2, recent=("a/gone", "a/going"), waiting=waiting)
    text = draining(drain, "")
    assert text.endswith(
        ": 2/3 pods evicted, 1 of them still terminating (a/going), "
        "1 terminating or waiting (a/next)."
    )
    text = draining(drain, "", long_grace=True)
    assert "still terminating (a/going), in a long grace period" in text
    cut = DrainStatus(evicted=30, recent=("a/going",), waiting=change(waiting, more=7))
    assert ": 30 pods evicted, 9 terminating or waiting (" in draining(cut, "")


def test_a_long_text_is_cut_at_a_space_with_an_ellipsis() -> None:
    text = "Waiting: evictions of pods are refused, " * 20
    cut = shortened(text, 256)
    assert len(cut) <= 256
    assert cut.endswith("…")
    assert not text[len(cut) - 1].isalnum(), "cut inside a name"
    assert shortened("short", 256) == "short"
    assert shortened("x" * 300, 256) == "x" * 255 + "…"


@given(st.text(max_size=600), st.integers(10, 300))
def test_a_shortened_text_fits_and_is_a_prefix(text: str, most: int) -> None:
    cut = shortened(text, most)
    assert len(cut) <= most
    assert text.startswith(cut.removesuffix("…"))
