"""What people type wrong ends in one line with the remedy, and help stands where they put it."""

from __future__ import annotations

import pytest

from remediator.kubectl.commands import COMMANDS
from tests.support.remediator.kubectl_cluster import run_command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("lst",), "there is no command 'lst'; did you mean list?", id="unknown"),
        pytest.param(("zzz",), "there is no command 'zzz'; see kubectl gpuward --help", id="far"),
        pytest.param(("why",), "required: NODE; see kubectl gpuward why --help", id="no node"),
        pytest.param(("why", "a/../b"), "cannot be a name in Kubernetes", id="path in a name"),
        pytest.param(("why", "a?b=c"), "cannot be a name in Kubernetes", id="query in a name"),
        pytest.param(("hold", "n"), "required: --reason", id="no reason"),
        pytest.param(("hold", "n", "--reason", " "), "say in one sentence why", id="empty reason"),
        pytest.param(("-o", "json", "hold", "n", "--reason", "x"), "-o is for commands that look",
                     id="form for a command that acts"),
        pytest.param(("-o", "wide", "preflight"), "-o is one of json, yaml",
                     id="form unknown here"),
        pytest.param(("list", "-o", "xml"), "invalid choice: 'xml'", id="form unknown anywhere"),
        pytest.param(("list", "--al"),
                     "kubectl gpuward list: unrecognized arguments: --al; did you mean --all?; "
                     "see kubectl gpuward list --help",
                     id="no abbreviations"),
        pytest.param(("pause", "--until", "soon", "--reason", "x"), "neither a time", id="until"),
        pytest.param(("pause", "-l", "a in b", "--reason", "x"), "is no label selector",
                     id="labels"),
        pytest.param(("quarantine", "n", "--level", "Nuke", "--reason", "x"), "'Nuke'",
                     id="level"),
        pytest.param(("get", "gpu-7"), "it is kubectl gpuward list, or fleet, or why NODE",
                     id="a word of kubectl"),
        pytest.param(("explain", "79"), "it is gpuward-agent explain", id="a word of the agent"),
        pytest.param(("policy", "check"), "it is gpuward-remediator policy", id="of the other"),
        pytest.param(("list", "gpu-7"), "takes no NODE (gpu-7); about one node: why gpu-7",
                     id="a node too many"),
        pytest.param(("show", "a", "b"), "unrecognized arguments: b; it takes one SESSION",
                     id="two sessions"),
        pytest.param(("--contxt", "x", "list"), "no option --contxt of every command; did you "
                     "mean --context?", id="an option before the command"),
        pytest.param(("quarantine", "n", "--reson", "x"), "did you mean --reason?",
                     id="what is missing is misspelled"),
        pytest.param(("-l", "a=b", "list"), "no option -l of every command; what only a command",
                     id="labels before the command"),
        pytest.param(("--all", "list"), "what only a command takes stands after it",
                     id="an option of the command before it"),
        pytest.param(("list", "--no-headers"), "take -o json, or kubectl get gq,gnh",
                     id="a flag of kubectl"),
        pytest.param(("why", "a,b"), "several are set apart by blanks", id="a comma"),
        pytest.param(("list", "--as", ""), "--as: is empty; name a user", id="nobody"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_with_the_remedy_and_64(arguments, said):
    code, out, err = run_command(*arguments)
    assert (code, out) == (64, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("help",), ("help", "why"), ("help", "list", "-A")], ids=" ".join
)
def test_walk_help_is_a_word_too(arguments: tuple[str, ...]) -> None:
    code, out, err = run_command(*arguments)
    assert (code, err) == (0, "")
    assert out == run_command(*arguments[1:2], "--help")[1]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        pytest.param("--context x help why", "why --help", id="options before help"),
        pytest.param("-n help help why", "why --help", id="a namespace of that name"),
        pytest.param("help -nx why", "why --help", id="options between"),
        pytest.param("--context=x --help", "--help", id="no command"),
        pytest.param("-h -n x why gpu-7", "why --help", id="help first"),
        pytest.param("-n x version", "--version", id="version"),
    ],
)
def test_walk_help_stands_where_people_put_it(typed: str, meant: str) -> None:
    assert run_command(*typed.split()) == run_command(*meant.split())


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
