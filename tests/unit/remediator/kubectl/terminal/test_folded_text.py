"""Sentences fit the terminal, commands in them stay in one piece, tables are left alone."""

from __future__ import annotations

import pytest

from remediator.kubectl.command import fold, labelled

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
