"""A table fits the terminal it is shown on; a pipe, and who asks for all of it, gets all."""

from __future__ import annotations

import io
import sys

import pytest

from remediator.view.text import fitted, table

NODE = "ip-10-0-37-214.eu-west-1.compute.internal"
HEADER = ["NODE", "PHASE", "SINCE", "REASON", "PEOPLE", "SESSION"]
REASON = "Xid95UncontainedMemoryError"
ROWS = [
    [NODE, "Draining", "14m", REASON, "", f"{NODE}-0badcafe"],
    [NODE.replace("214", "9"), "Marked (Shadow)", "2h", REASON, "", f"{NODE}-1badcafe"],
]
SPARE = ("SESSION", "SINCE", "PEOPLE")
SAID = "Waiting since noon to quarantine it: 2 of 24 nodes are unavailable, the budget allows 2."


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, width: int, *, wide: bool = False) -> list[str]:
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", str(width))
    return table(HEADER, ROWS, spare=SPARE, wide=wide).splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_what_says_most_is_whole_in_lines_that_fit(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(monkeypatch, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert all(word in text for row in ROWS for word in (row[0], row[1], row[3]))
    assert fitted(text, Screen()) == text, "nothing that is printed later tears it"


def test_the_empty_go_first_and_then_the_spare_ones_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, 200)[0].split() == HEADER
    assert shown(monkeypatch, 155)[0].split() == ["NODE", "PHASE", "SINCE", "REASON", "SESSION"]
    lines = shown(monkeypatch, 100)
    assert lines[0].split() == ["NODE", "PHASE", "SINCE", "REASON"]
    assert lines[-1] == "left out to fit; -o wide shows: PEOPLE, SESSION"


def test_a_name_that_leaves_no_room_stands_above_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80)
    assert lines[0] == "NODE"
    assert lines[1].split() == ["PHASE", "SINCE", "REASON"]
    assert lines[2] == NODE
    assert lines[3].split() == ["Draining", "14m", REASON]
    assert lines[-1] == "left out to fit; -o wide shows: PEOPLE, SESSION"


def test_what_was_asked_for_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 80, wide=True)[0].split() == HEADER


def test_a_pipe_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "80")
    piped = table(HEADER, ROWS, spare=SPARE)
    assert piped == "\n".join(shown(monkeypatch, 80, wide=True))


def test_a_sentence_in_the_last_column_is_folded_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "80")
    lines = table(["AT", "WHAT"], [["2026-03-05 12:00 UTC", SAID]]).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line[: len("2026-03-05 12:00 UTC")].strip() for line in lines[2:]] == [""]
    assert " ".join(" ".join(lines[1:]).split()) == f"2026-03-05 12:00 UTC {SAID}"


def test_what_is_written_wide_takes_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "40")
    wide, narrow = "\u5f20\u4f1f", "ann"
    rows = [["n", wide, "x"], ["n", "e\u0301", "x"], ["n", narrow, "x"]]
    head, *lines = table(["NODE", "BY", "WHY"], rows).splitlines()
    assert head == "NODE   BY     WHY"
    assert lines == [f"n      {wide}   x", "n      e\u0301      x", "n      ann    x"]
    only = [["n", wide * 20, "kept"]]
    assert table(["NODE", "BY", "WHY"], only, spare=("BY",)).splitlines()[0] == "NODE   WHY"


@pytest.mark.parametrize("width", [40, 80])
def test_a_table_of_one_column_is_total(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", str(width))
    name = "x" * 100
    assert table(["NODE"], [[name]]) == f"NODE\n{name}"
    assert table(["NODE"], [["a"]], spare=("NODE",)) == "NODE\na"
    assert table(["NODE"], []) == "NODE"
    assert table(["NODE"], [[name]], spare=("NODE",)) == f"NODE\n{name}"
