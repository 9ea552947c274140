"""Sentences fit the terminal, commands in them stay in one piece, tables are left alone."""

from __future__ import annotations

import io

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
