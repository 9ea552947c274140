"""What people type wrong ends in one line with the remedy, and help stands where they put it."""

from __future__ import annotations

import pytest

from remediator.kubectl.command import COMMANDS
from tests.support.remediator.kubectl_cluster import run_command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("flet",), "there is no command 'flet'; did you mean fleet?", id="unknown"),
        pytest.param(("zzz",), "there is no command 'zzz'; see kubectl gpuward --help", id="far"),
        pytest.param(("why",), "required: NODE; see kubectl gpuward why --help", id="no node"),
        pytest.param(("why", "a/../b"), "cannot be a name in Kubernetes", id="path in a name"),
        pytest.param(("why", "a?b=c"), "cannot be a name in Kubernetes", id="query in a name"),
        pytest.param(("hold", "n"), "required: --reason", id="no reason"),
        pytest.param(("hold", "n", "--reason", " "), "say in one sentence why", id="empty reason"),
        pytest.param(("fleet", "-o", "xml"), "invalid choice: 'xml'", id="form unknown anywhere"),
        pytest.param(("fleet", "--out", "json"), "unrecognized arguments: --out",
                     id="no abbreviations"),
        pytest.param(("pause", "-l", "a in b", "--reason", "x"), "is no label selector",
                     id="labels"),
        pytest.param(("quarantine", "n", "--level", "Nuke", "--reason", "x"), "'Nuke'",
                     id="level"),
        pytest.param(("quarantine", "n", "--reson", "x"), "did you mean --reason?",
                     id="what is missing is misspelled"),
        pytest.param(("why", "a,b"), "several are set apart by blanks", id="a comma"),
        pytest.param(("fleet", "--as", ""), "--as: is empty; name a user", id="nobody"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_with_the_remedy_and_64(arguments, said):
    code, out, err = run_command(*arguments)
    assert (code, out) == (64, "")
    assert said in err
    assert err.count("\n") == 1


def test_without_a_command_it_shows_the_help():
    code, out, err = run_command()
    assert (code, err) == (0, "")
    assert "Start here:" in out


@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_the_help_of_every_command_has_examples_that_can_be_typed(command):
    code, out, _ = run_command(command.name, "--help")
    assert code == 0
    assert "examples:" in out
    assert all(f"kubectl gpuward {text}" in out for text, _ in command.examples)


@pytest.mark.parametrize("command", ["", *(command.name for command in COMMANDS)])
def test_the_help_fits_a_terminal_of_80_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run_command(*filter(None, [command]), "--help")
    assert [line for line in out.splitlines() if len(line) > 80] == []
