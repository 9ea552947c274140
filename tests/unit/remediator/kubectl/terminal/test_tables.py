"""A table fits the terminal it is shown on; a pipe, and who asks for all of it, gets all."""

from __future__ import annotations

import io
import sys

import pytest

from remediator.kubectl.command import fitted, table

NODE = "ip-10-0-37-214.eu-west-1.compute.internal"
HEADER = ["NODE", "PHASE", "SINCE", "REASON", "PEOPLE", "SESSION"]
REASON = "Xid95UncontainedMemoryError"
ROWS = [
    [NODE, "Draining", "14m", REASON, "", f"{NODE}-0badcafe"],
    [NODE.replace("214", "9"), "Marked (Shadow)", "2h", REASON, "", f"{NODE}-1badcafe"],
]
SPARE = ("SESSION", "SINCE", "PEOPLE")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, width: int, *, wide: bool = False) -> list[str]:
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", str(width))
    return table(HEADER, ROWS, spare=SPARE, wide=wide).splitlines()


def test_spare_columns_go_in_their_order_until_the_others_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, 200)[0].split() == HEADER
    lines = shown(monkeypatch, 120)
    assert lines[0].split() == ["NODE", "PHASE", "SINCE", "REASON", "PEOPLE"]
    assert lines[-1] == "left out to fit; -o wide shows: SESSION"
    assert shown(monkeypatch, 95)[0].split() == ["NODE", "PHASE", "REASON"]
    text = "\n".join(lines)
    assert fitted(text, Screen()) == text, "nothing that is printed later tears it"


def test_what_was_asked_for_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 80, wide=True)[0].split() == HEADER


def test_a_pipe_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "80")
    piped = table(HEADER, ROWS, spare=SPARE)
    assert piped == "\n".join(shown(monkeypatch, 80, wide=True))


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
