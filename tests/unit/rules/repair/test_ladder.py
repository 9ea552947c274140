"""The ladder as a table: where it begins, and over what it climbs."""

from __future__ import annotations

import pytest

from rules.catalog.reason import Action
from rules.repair.ladder import BEGINS, LADDER, Climb, Step, begins_at, climb

ALL = dict.fromkeys(LADDER, "someone")


def test_every_action_of_the_catalog_has_its_place() -> None:
    assert set(BEGINS) == set(Action)


@pytest.mark.parametrize(
    ("actions", "begins"),
    [
        ([], None),
        (["Investigate", "RestartApp", "None"], None),
        (["ResetGPU"], Step.RESET_GPU),
        (["ResetGPU", "RestartNode", "Investigate"], Step.RESTART_NODE),
        (["ReplaceNode", "ResetGPU"], Step.REPLACE_NODE),
        (["ANewerAgentsWord", ""], None),
        (["ANewerAgentsWord", "RestartFabricManager"], Step.RESTART_DRIVER),
    ],
)
def test_it_begins_where_the_gravest_action_asks(actions: list[str], begins: Step | None) -> None:
    assert begins_at(actions) == begins


def led(begins: Step | None = Step.RESET_GPU, **known: object) -> Climb:
    given: dict[str, object] = {"adapters": ALL, "taken": set(), "tried": {}, "attempts": 2}
    return climb(begins, **{**given, **known})  # type: ignore[arg-type]


def test_the_lowest_step_that_may_be_taken() -> None:
    rung = led().rung
    assert rung is not None
    assert (rung.step, rung.attempt) == (Step.RESET_GPU, 1)


@pytest.mark.parametrize(
    ("known", "step"),
    [
        ({"adapters": {Step.RESTART_NODE: "x"}}, Step.RESTART_NODE),
        ({"taken": {"ResetGPU"}}, Step.RESTART_DRIVER),
        ({"tried": {"ResetGPU": 2, "RestartDriver": 5}}, Step.RESTART_NODE),
        ({"taken": set(LADDER)}, None),
        ({"adapters": {}}, None),
        ({"begins": None}, None),
        ({"begins": Step.REPLACE_NODE, "taken": {"ReplaceNode"}}, None),
    ],
)
def test_it_climbs_and_never_goes_down(known: dict[str, object], step: object) -> None:
    found = led(**known)  # type: ignore[arg-type]
    assert (found.rung.step if found.rung else None) == step
    if found.rung is None:
        assert found.clause


def test_what_a_person_chose_goes_before_the_first_rung_and_the_tried() -> None:
    found = led(Step.REPLACE_NODE, chosen="ResetGPU", tried={"ResetGPU": 9})
    assert found.rung is not None
    assert (found.rung.step, found.rung.attempt) == (Step.RESET_GPU, 10)
    again = led(Step.REPLACE_NODE, chosen="ResetGPU", taken={"ResetGPU"})
    assert again.rung is not None
    assert again.rung.step is Step.REPLACE_NODE


def test_no_name_comes_twice_in_a_session() -> None:
    rung = led(tried={"ResetGPU": 1}, named={"ResetGPU": 3}).rung
    assert rung is not None
    assert (rung.step, rung.attempt) == (Step.RESET_GPU, 4)


def test_why_no_step_is_left_is_said_step_by_step() -> None:
    found = led(
        Step.RESTART_NODE,
        adapters={Step.RESTART_NODE: "x", Step.REPLACE_NODE: "x"},
        taken={"RestartNode"},
        tried={"RestartNode": 1, "ReplaceNode": 2},
    )
    assert found.clause == (
        "RestartNode was tried in this session, PowerCycle has no adapter, ReplaceNode was tried "
        "2 times lately"
    )


@pytest.mark.parametrize("chosen", ["", "ResetGPU"])
def test_a_step_that_nobody_can_be_asked_for_is_passed_over(chosen: str) -> None:
    found = led(unfit={"ResetGPU": "would name nobody"}, chosen=chosen)
    assert found.rung is not None
    assert found.rung.step is Step.RESTART_DRIVER
    assert found.passed == ((Step.RESET_GPU, "would name nobody"),)
