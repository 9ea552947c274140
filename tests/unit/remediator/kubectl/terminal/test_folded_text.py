"""Sentences fit the terminal, commands in them stay in one piece, tables are left alone."""

from __future__ import annotations

import io
import sys

import pytest

from remediator.kubectl.command import fitted, fold, labelled

COMMAND = "kubectl gpuward history gpu-02"


@pytest.mark.parametrize("width", [48, 60, 73, 80, 100])
@pytest.mark.parametrize("end", ["", ".", "; then look again", ", and so on", ": it says more"])
def test_walk_a_command_in_a_sentence_is_never_torn(width: int, end: str) -> None:
    """Half a command that is pasted does something else."""
    said = f"1 ended session, the last Released 12m ago by ann (done): {COMMAND}{end}"
    lines = labelled("before", [said], width)
    assert sum(COMMAND in line for line in lines) == 1
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()) == f"before {said}"


def test_walk_a_command_wider_than_the_line_is_folded_like_words() -> None:
    said = f"see {COMMAND} {'word ' * 30}".rstrip()
    assert len(fold(said, 60)) > 1
    assert " ".join(" ".join(fold(said, 60)).split()) == said


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


ROW = "gpu-00   Healthy   8/8    " + "x" * 90
LONG = "13 GPU nodes: 4 healthy, 0 degraded, 7 unhealthy, 2 unknown; 4 cordoned, 7 open sessions"


def test_walk_a_terminal_gets_sentences_at_its_width_and_tables_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = fitted(f"{LONG}\n\n{ROW}", Screen()).split("\n")
    assert lines[-2:] == ["", ROW]
    assert max(map(len, lines[:-1])) <= 60
    assert fitted(LONG, io.StringIO()) == LONG


def test_walk_what_stands_in_the_gutter_is_folded_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """plan and history folded at 100 columns on any terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", Screen())
    assert max(map(len, labelled("next", [LONG]))) <= 60
    said = fitted(f"         {LONG}", Screen()).split("\n")
    assert max(map(len, said)) <= 60
    assert all(line.startswith("         ") for line in said)


@pytest.mark.parametrize("width", range(40, 100))
def test_a_moment_and_its_zone_stay_on_one_line(width: int) -> None:
    said = (
        "RestartNode asked of NodeConditions at 2026-11-23 04:19 UTC for a fault, it has until "
        "2026-11-23 04:20:59 UTC."
    )
    lines = fold(said, width)
    assert " ".join(" ".join(lines).split()) == said
    assert sum(line.count("2026-11-23 04:") for line in lines) == 2
    assert all(line.count("UTC") == line.count("2026") for line in lines)


def test_a_check_that_was_not_passed_is_a_sentence_and_no_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    remedy = "kubectl apply -k daemonset/crds"
    lines = fitted(f"FAIL  definitions: {LONG}; bring them up to date with {remedy}", Screen())
    assert max(map(len, lines.split("\n"))) <= 60
    assert remedy in lines
    assert lines.startswith("FAIL  definitions: ")
    passed = fitted(f"ok    definitions: {LONG}", Screen())
    assert max(map(len, passed.split("\n"))) <= 60
