"""The observation table of a session, row by phase: which test shows it, or why it cannot
occur.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PENDING, MARKED, DRAINING, QUARANTINED, VALIDATING = PHASES = (
    "Pending",
    "Marked",
    "Draining",
    "Quarantined",
    "Validating",
)
NO_MARK = "never: there is no mark yet that anybody could undo"

NODE, PEOPLE, POLICY, EVERYWHERE = (
    "test_session_node_rows.py",
    "test_session_people_rows.py",
    "test_session_policy_rows.py",
    "test_session_rows_everywhere.py",
)


def everywhere(file: str, test: str, **others: str) -> dict[str, str]:
    """One test, parametrized over the phases, and what differs from it."""
    return dict.fromkeys(PHASES, f"{file}::{test}") | others


ROWS: dict[str, dict[str, str]] = {
    "node deleted": everywhere(NODE, "test_a_deleted_node_ends_the_session"),
    "node UID changed": everywhere(NODE, "test_nothing_is_applied_to_a_namesake"),
    "bootID changed": everywhere(
        NODE,
        "test_s34_a_healthy_new_boot_is_validated_and_released",
        Pending=f"{EVERYWHERE}::test_a_reboot_while_waiting_waits_on_with_the_new_boot",
    ),
    "cordon lost right after a boot": everywhere(
        "test_session_boot_cordon.py",
        "test_its_uncordon_is_put_back_once_and_said_aloud",
        Pending=NO_MARK,
    ),
    "Ready=Unknown": everywhere(
        EVERYWHERE, "test_a_silent_kubelet_is_said_and_nothing_is_evicted_or_released"
    ),
    "agent gone or verdict stale": everywhere(
        NODE,
        "test_nothing_is_released_while_the_agent_is_silent",
        Pending=f"{NODE}::test_a_waiting_session_does_not_start_on_a_stale_verdict",
    ),
    "a person uncordons": everywhere(PEOPLE, "test_uncordon_cancels", Pending=NO_MARK),
    "a person removes our taint": everywhere(
        PEOPLE, "test_removing_the_taint_cancels_and_uncordons", Pending=NO_MARK
    ),
    "an owner undid it": everywhere(
        NODE,
        "test_the_taint_stays_and_the_session_stands_down",
        Pending=NO_MARK,
        Marked=f"{EVERYWHERE}::test_what_an_owner_undid_is_no_cancel",
        Validating=f"{EVERYWHERE}::test_what_an_owner_undid_is_no_cancel",
    ),
    "stand-down": everywhere(NODE, "test_s40_stand_down_does_no_further_harm_and_keeps_records"),
    "hold": everywhere(EVERYWHERE, "test_hold_never_stops_the_way_to_quarantine"),
    "pause": everywhere(EVERYWHERE, "test_a_pause_does_no_new_harm_and_keeps_the_mark"),
    "opt-out": everywhere(
        PEOPLE,
        "test_s10_the_mark_stays_until_a_person_releases",
        Pending=f"{EVERYWHERE}::test_an_opt_out_while_waiting_means_no_mark",
    ),
    "spec.release": everywhere(PEOPLE, "test_a_person_releases_at_every_phase"),
    "GPUQuarantine deleted": everywhere(
        PEOPLE,
        "test_deleting_the_object_cancels",
        Pending=f"{EVERYWHERE}::test_deleting_a_waiting_session_marks_nothing",
    ),
    "Shadow": {
        PENDING: f"{POLICY}::test_its_virtual_marks_count_in_a_shadow_budget",
        MARKED: f"{POLICY}::test_s06_nothing_is_written_to_nodes_or_pods",
        DRAINING: "never: a Shadow session stops at Marked",
        QUARANTINED: "never: a Shadow session stops at Marked",
        VALIDATING: "never: a Shadow session is released from Marked",
    },
    "a flip to Shadow": everywhere(
        EVERYWHERE, "test_a_flip_to_shadow_does_no_new_harm_at_any_phase"
    ),
    "third session in the window": everywhere(
        EVERYWHERE,
        "test_a_repeat_offender_is_never_released_by_itself_at_any_phase",
        Pending="never: a session counts once its node is marked",
    ),
    "DaemonSets that do not tolerate the taint": {
        PENDING: "never: it is said with the mark, and by plan before it",
        MARKED: f"{POLICY}::test_daemonsets_that_could_not_come_back_are_named",
        DRAINING: "never: the sentence tells what blocks the drain",
        QUARANTINED: "never: said when it was marked, the timeline keeps it",
        VALIDATING: "never: said when it was marked, the timeline keeps it",
    },
    "flapping cause": everywhere(EVERYWHERE, "test_a_cause_that_flaps_stays_one_session"),
}

CELLS = [
    pytest.param(row, phase, id=f"{row}-{phase}".replace(" ", "-"))
    for row in ROWS
    for phase in PHASES
]


@pytest.mark.parametrize(("row", "phase"), CELLS)
def test_every_row_is_shown_at_every_phase_where_it_can_occur(row: str, phase: str) -> None:
    shown = ROWS[row][phase]
    if shown.startswith("never: "):
        assert len(shown) > len("never: ")
        return
    file, _, test = shown.partition("::")
    assert phase in phases_of(HERE / file, test), f"{shown} leaves out {phase}"


def phases_of(file: Path, test: str) -> set[str]:
    """The phases that a test is parametrized with, or speaks of."""
    source = file.read_text()
    for node in ast.walk(ast.parse(source)):
        for child in (
            getattr(node, "body", []) if isinstance(node, ast.Module | ast.ClassDef) else []
        ):
            if isinstance(child, ast.FunctionDef) and child.name == test:
                around = node.decorator_list if isinstance(node, ast.ClassDef) else []
                words = " ".join(
                    ast.unparse(part) for part in (*around, *child.decorator_list, child)
                )
                named = {phase for phase in PHASES if f"'{phase}'" in words}
                named |= set(PHASES) if "'phase', OPEN" in words else set()
                named |= set(PHASES[1:]) if "'phase', MARKED" in words else set()
                return named
    raise AssertionError(f"{file.name} has no {test}")
