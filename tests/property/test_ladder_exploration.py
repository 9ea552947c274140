"""Every order of endings along the repair ladder: steps, providers that lie or hang, tests.

The ordinary run explores one act of others at every moment from three rungs on; the slow one two
acts. And the exploration is itself tested: what is broken on purpose is found (issue 13).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.exploration.ladder import LadderWorld, acts, explored

WORN = ("n0 is restarted and well",)
RUNGS: dict[str, tuple[str, ...]] = {
    "a step is asked for": (),
    "a test runs": WORN,
    "no step but the last is left": ("n0 is restarted in vain", "a while passes"),
}
FIRST = {"a step is asked for": 24, "a test runs": 48, "no step but the last is left": 24}
"""States of an ordinary run: in twenty each rung meets all endings that it meets in sixty-four."""


def world_at(*events: str) -> LadderWorld:
    """Two nodes at fault, the first one's step asked for; then these events."""
    world = LadderWorld()
    world.run(40, 5)
    for event in events:
        if event == "a while passes":
            world.lets_come(960, 120)
            continue
        dict(acts(world))[event](world)
        world.lets_come(60, 10)
    return world


def test_the_rungs_are_what_they_are_called() -> None:
    steps = {name: world_at(*events) for name, events in RUNGS.items()}
    assert steps["a step is asked for"].steps_of() == [("RestartNode", "Asked")]
    assert [t.state for t in steps["a test runs"].session("n0").status.validation] == ["Asked"]
    assert steps["no step but the last is left"].steps_of() == [("RestartNode", "Proven")]


@pytest.mark.parametrize("rung", RUNGS)
def test_every_single_act_of_others_on_each_rung(rung: str) -> None:
    report = explored(world_at(*RUNGS[rung]), 1, FIRST[rung])
    assert not report.what, f"\n{report}"
    assert report.states == FIRST[rung]
    if rung == "a test runs":
        assert "Released" in report.phases
        assert {"Passed", "Failed", "Unknown"} <= report.ends
    if rung == "no step but the last is left":
        assert {"ReplaceNode Asked", "ReplaceNode Failed"} <= report.ends


@pytest.mark.slow
@pytest.mark.parametrize("rung", RUNGS)
def test_two_acts_of_others_in_every_order(rung: str) -> None:
    report = explored(world_at(*RUNGS[rung]), 2, 1_500)
    assert not report.what, f"\n{report}"


# ---------------------------------------------------------------------- what is found


def finds(rung: str, words: str, most_states: int = 120, left: int = 1) -> None:
    report = explored(world_at(*RUNGS[rung]), left, most_states)
    assert words in report.what, f"\n{report}"
    assert report.events


def test_a_step_that_is_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules.session.repair.ladder.taken_in", lambda _: frozenset())
    monkeypatch.setattr("rules.session.repair.ladder.tried", lambda *_: {})
    finds("a step is asked for", "each step at most once")


def test_a_release_without_a_pass_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_tests(_: Any) -> None:
        """As if the policy wanted no test."""

    start = world_at()
    monkeypatch.setattr("rules.session.validation.phase.wanted", nobody_tests)
    report = explored(start, 1, 60)
    assert "whose test did not pass" in report.what, f"\n{report}"
    assert "n0 is restarted and well" in report.events


def test_a_boot_that_was_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def well_is_proof(_: Any, seen: Any) -> bool:
        """As if no fault in sight were a boot."""
        return not seen.causes

    monkeypatch.setattr("rules.repair.proof._rebooted", well_is_proof)
    report = explored(world_at("n0 is said to be well"), 1, 60)
    assert "runs the boot of before" in report.what, f"\n{report}"


def test_two_repairs_at_a_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.exploration.ladder.ASKED_AT_ONCE", 2)
    finds("a step is asked for", "repair.concurrent: steps run on n0, n1", most_states=5)
