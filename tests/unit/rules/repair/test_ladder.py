"""The ladder of repairs: which step is next, and what proves that it happened."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from rules.api.quarantine import RepairBefore, RepairGpu
from rules.catalog.reason import Action
from rules.repair.ladder import (
    BEGINS,
    LADDER,
    LadderPosition,
    Seen,
    Step,
    begins_at,
    next_rung,
    prove,
)

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
        (["ActionOfANewerAgent", ""], None),
        (["ActionOfANewerAgent", "RestartFabricManager"], Step.RESTART_DRIVER),
    ],
)
def test_it_begins_at_the_most_severe_action(actions: list[str], begins: Step | None) -> None:
    assert begins_at(actions) == begins


def led(begins: Step | None = Step.RESET_GPU, **known: object) -> LadderPosition:
    given: dict[str, Any] = {"adapters": ALL, "taken": set(), "tried": {}, "attempts": 2}
    given |= {"chosen": "", "named": {}, "unfit": {}}
    return next_rung(begins, **{**given, **known})


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


def test_a_chosen_step_precedes_the_ladder() -> None:
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


def test_the_reason_for_each_skipped_step_is_reported() -> None:
    found = led(
        Step.RESTART_NODE,
        adapters={Step.RESTART_NODE: "x", Step.REPLACE_NODE: "x"},
        taken={"RestartNode"},
        tried={"RestartNode": 1, "ReplaceNode": 2},
    )
    assert found.clause == (
        "RestartNode was tried in this session, PowerCycle has no adapter, ReplaceNode was tried "
        "2 times recently"
    )


@pytest.mark.parametrize("chosen", ["", "ResetGPU"])
def test_a_step_that_cannot_be_requested_is_skipped(chosen: str) -> None:
    found = led(unfit={"ResetGPU": "would name nobody"}, chosen=chosen)
    assert found.rung is not None
    assert found.rung.step is Step.RESTART_DRIVER
    assert found.passed == ((Step.RESET_GPU, "would name nobody"),)


BEFORE = RepairBefore(
    boot_id="b1",
    node_uid="n1",
    gpus=(RepairGpu(uuid="G0", serial="S0", accused=True), RepairGpu(uuid="G1", serial="S1")),
    reset_pending=True,
)
SAME = Seen(
    node_uid="n1",
    boot_id="b1",
    ready="True",
    old_heartbeat=False,
    stale="",
    serials={"G0": "S0", "G1": "S1"},
    pending=False,
    causes=0,
    resets=frozenset(),
    expected_gpus=2,
)
ILL = replace(SAME, causes=1, pending=True)
BOOTED = replace(SAME, boot_id="b2")
REPLACED = replace(SAME, serials={"G9": "S9", "G1": "S1"})


@pytest.mark.parametrize(
    ("step", "seen", "expected"),
    [
        (Step.RESET_GPU, replace(SAME, resets=frozenset({"G0"})), "each accused GPU was reset"),
        (Step.RESET_GPU, SAME, "no reset is pending"),
        (
            Step.RESTART_DRIVER,
            replace(ILL, resets=frozenset({"G0", "G1"})),
            "reloaded with 2 GPUs",
        ),
        (Step.RESTART_DRIVER, BOOTED, "reloaded"),
        (Step.RESTART_NODE, BOOTED, "new boot, Ready"),
        (Step.RESTART_NODE, replace(BOOTED, causes=1), "new boot, Ready"),
        (Step.POWER_CYCLE, BOOTED, "new boot, Ready"),
        (
            Step.REPLACE_NODE,
            replace(SAME, node_uid="n2", stale="no health status"),
            "the Node was replaced",
        ),
        (Step.REPLACE_NODE, REPLACED, "were replaced"),
    ],
)
def test_proven(step: Step, seen: Seen, expected: str) -> None:
    proof = prove(step, BEFORE, seen)
    assert proof.proven
    assert expected in proof.clause


@pytest.mark.parametrize(
    ("step", "seen", "lacks"),
    [
        (Step.RESET_GPU, replace(SAME, stale="the agent's pod is gone"), "pod is gone"),
        (Step.RESET_GPU, replace(SAME, serials={"G1": "S1"}), "GPU G0 is missing"),
        (Step.RESET_GPU, replace(SAME, pending=True), "still requests a reset"),
        (Step.RESET_GPU, replace(SAME, causes=1), "no reset closed its causes"),
        (Step.RESTART_DRIVER, SAME, "was not reloaded"),
        (Step.RESTART_DRIVER, replace(SAME, resets=frozenset({"G0"})), "was not reloaded"),
        (Step.RESTART_DRIVER, replace(BOOTED, serials={"G1": ""}), "1 of 2 GPUs"),
        (Step.RESTART_NODE, SAME, "the node did not reboot"),
        (Step.RESTART_NODE, replace(SAME, boot_id=""), "the node did not reboot"),
        (Step.RESTART_NODE, replace(BOOTED, ready="False"), "is not Ready"),
        (Step.RESTART_NODE, replace(BOOTED, old_heartbeat=True), "has not reported since"),
        (Step.RESTART_NODE, replace(BOOTED, stale="another boot's"), "another boot's"),
        (Step.REPLACE_NODE, BOOTED, "still present"),
        (Step.REPLACE_NODE, replace(REPLACED, serials={"G9": "S9"}), "1 of 2 GPUs"),
        (Step.REPLACE_NODE, replace(REPLACED, stale="x"), "x"),
    ],
)
def test_not_proven_and_what_is_missing(step: Step, seen: Seen, lacks: str) -> None:
    proof = prove(step, BEFORE, seen)
    assert not proof.proven
    assert lacks in proof.clause


@pytest.mark.parametrize("step", LADDER)
def test_a_node_as_it_was_proves_nothing(step: Step) -> None:
    assert not prove(step, BEFORE, ILL).proven


def test_without_serials_only_another_node_proves_a_replacement() -> None:
    unknown: Any = RepairBefore(node_uid="n1", gpus=(RepairGpu(uuid="G0", accused=True),))
    assert not prove(Step.REPLACE_NODE, unknown, REPLACED).proven


def test_each_gpu_accused_must_be_reset_and_others_prove_nothing() -> None:
    both = msgspec.structs.replace(
        BEFORE, gpus=tuple(msgspec.structs.replace(g, accused=True) for g in BEFORE.gpus)
    )
    half = prove(Step.RESET_GPU, both, replace(SAME, resets=frozenset({"G1"})))
    assert not half.proven
    assert "no reset of GPU G0 was observed" in half.clause
    assert prove(Step.RESET_GPU, both, replace(SAME, resets=frozenset({"G0", "G1"}))).proven
    other = prove(Step.RESET_GPU, BEFORE, replace(SAME, resets=frozenset({"G1"}), pending=True))
    assert not other.proven, "another GPU than the accused one was reset"
