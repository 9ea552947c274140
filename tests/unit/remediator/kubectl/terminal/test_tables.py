"""A table fits the terminal it is shown on; a pipe, and who asks for all of it, gets all."""

from __future__ import annotations

import io
import sys

import pytest

from remediator.kubectl.command import table


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_written_wide_takes_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "40")
    wide, narrow = "\u5f20\u4f1f", "ann"
    rows = [["n", wide, "x"], ["n", "e\u0301", "x"], ["n", narrow, "x"]]
    head, *lines = table(["NODE", "BY", "WHY"], rows).splitlines()
    assert head == "NODE   BY     WHY"
    assert lines == [f"n      {wide}   x", "n      e\u0301      x", "n      ann    x"]
