"""Commands ask before they take capacity, and take a word for an answer."""

from __future__ import annotations

import sys

import pytest

from remediator.kubectl.command import Terminal
from tests.support.remediator.kubectl_cluster import (
    cluster,
)
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, QUARANTINES


class Typed:
    """Standard input of somebody who types one line."""

    def __init__(self, line: str) -> None:
        self._line = line

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._line


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param("y\n", 0, id="y"),
        pytest.param("YES\n", 0, id="YES"),
        pytest.param("\n", 1, id="return"),
        pytest.param("n\n", 1, id="n"),
        pytest.param("", 1, id="end of input"),
    ],
)
def test_it_asks_before_it_takes_capacity(tmp_path, monkeypatch, line, code):
    with cluster(tmp_path, load_fleet) as kubectl:
        monkeypatch.setattr(sys, "stdin", Typed(line))
        found, _, err = kubectl("quarantine", BLOCKED, "--reason", "x")
        causes = kubectl.get(QUARANTINES, f"{BLOCKED}-0badcafe")["spec"]["causes"]
    assert found == code
    assert f"{BLOCKED} has an open session already (Draining): your reason is added" in err
    assert len(causes) == (1 if code else 2)


def test_ctrl_c_at_the_question_is_130_and_nothing_is_done(tmp_path, monkeypatch):
    class Impatient(Typed):
        def readline(self) -> str:
            raise KeyboardInterrupt

    with cluster(tmp_path, load_fleet) as kubectl:
        monkeypatch.setattr(sys, "stdin", Impatient(""))
        code, out, err = kubectl("quarantine", BLOCKED, "--reason", "x")
        causes = kubectl.get(QUARANTINES, f"{BLOCKED}-0badcafe")["spec"]["causes"]
    assert (code, out) == (130, "")
    assert err.endswith("interrupted\n")
    assert len(causes) == 1


def test_nobody_is_asked_when_yes_was_said():
    Terminal(agreed=True).ask("never shown")
