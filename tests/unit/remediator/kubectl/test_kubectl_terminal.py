"""What is typed wrong, what a shell completes, and how lines and tables are laid out."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.cluster.resource import NODES
from hack.sim.cluster.server import HostedServer
from remediator.kubectl.command import COMMANDS, labelled, table
from rules.repair.ladder import LADDER
from tests.support.remediator.kubectl_cluster import (
    REPOSITORY,
    Kubectl,
    cluster,
    load,
    run_command,
)
from tests.support.remediator.kubectl_objects import BLOCKED, HEALTHY, node


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("flet",), "there is no command 'flet'; did you mean fleet?", id="unknown"),
        pytest.param(("zzz",), "there is no command 'zzz'; see kubectl gpuward --help", id="far"),
        pytest.param(("why",), "required: NODE; see kubectl gpuward why --help", id="no node"),
        pytest.param(("why", "a/../b"), "cannot be a name in Kubernetes", id="path in a name"),
        pytest.param(("why", "a?b=c"), "cannot be a name in Kubernetes", id="query in a name"),
        pytest.param(("hold", "n"), "required: --reason", id="no reason"),
        pytest.param(("hold", "n", "--reason", " "), "give a reason in one sentence",
                     id="empty reason"),
        pytest.param(("fleet", "-o", "xml"), "'xml' is not one of", id="form unknown anywhere"),
        pytest.param(("fleet", "--out", "json"), "unrecognized arguments: --out",
                     id="no abbreviations"),
        pytest.param(("pause", "-l", "a in b", "--reason", "x"), "is no label selector",
                     id="labels"),
        pytest.param(("quarantine", "n", "--level", "Nuke", "--reason", "x"), "'Nuke'",
                     id="level"),
        pytest.param(("quarantine", "n", "--reson", "x"), "did you mean --reason?",
                     id="what is missing is misspelled"),
        pytest.param(("why", "a,b"), "separate names with spaces", id="a comma"),
        pytest.param(("why", "n", "-l", "a=b"), "not both", id="names and labels"),
        pytest.param(("plan", "n", "-l", "a=b"), "not both", id="of what writes nothing"),
        pytest.param(("fleet", "--dry-run"), "unrecognized", id="a check has no dry run"),
        pytest.param(("approve", "n", "--step", "Hit"), "invalid choice: 'Hit'", id="no step"),
        pytest.param(("fleet", "--as", ""), "--as: is empty; name a user", id="nobody"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_with_the_remedy_and_64(arguments, message):
    code, out, err = run_command(*arguments)
    assert (code, out) == (64, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_steps_of_repair_are_those_of_the_ladder() -> None:
    (command,) = (one for one in COMMANDS if one.name == "approve")
    assert command.options[0]["choices"] == [str(step) for step in LADDER]


def test_without_a_command_it_shows_the_help():
    code, out, err = run_command()
    assert (code, err) == (0, "")
    assert "Start here:" in out


@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_the_help_fits_80_columns_and_has_examples_that_can_be_typed(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run_command(command.name, "--help")
    assert code == 0
    lines = (out + run_command()[1]).splitlines()
    examples = {f"  kubectl gpuward {text}" for text, _ in command.examples}
    assert [line for line in lines if len(line) > 80 and line not in examples] == []
    assert all(f"kubectl gpuward {text}" in out for text, _ in command.examples)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_written_wide_takes_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    wide, narrow = "\u5f20\u4f1f", "ann"
    rows = [["n", wide, "x"], ["n", "e\u0301", "x"], ["n", narrow, "x"]]
    with contextlib.redirect_stdout(Screen()):
        head, *lines = table(["NODE", "BY", "WHY"], rows).splitlines()
    assert head == "NODE   BY     WHY"
    assert lines == [f"n      {wide}   x", "n      e\u0301      x", "n      ann    x"]


def test_a_sentence_is_folded_and_a_command_is_never_torn() -> None:
    """Half a command that is pasted does something else."""
    message = "the remediator waits, " * 8
    command = f"{message}until kubectl gpuward resume pause-0badcafe"
    lines = labelled("next", [message, command])
    assert max(map(len, lines[:-1])) <= 100
    assert " ".join(" ".join(lines[:-1]).split()) == f"next {message.strip()}"
    assert lines[-1] == f"{' ' * 9}{command}"


def offered(folder: Path, kubeconfig: Path, *parts: str) -> set[str]:
    """The offers of the documented script after `arguments`, the last one incomplete."""
    page = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```sh\n(#!/bin/sh\n.*?)```", page, re.DOTALL)
    program = folder / "kubectl-gpuward"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m remediator.kubectl.cli "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script, "kubectl_complete-gpuward", *parts],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(REPOSITORY), "HOME": str(folder),
        },
        capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60,
    )  # fmt: skip
    *lines, directive = done.stdout.splitlines()
    assert (done.returncode, done.stderr, directive) == (0, "", ":4")
    return {line.strip() for line in lines if line.strip()}


def test_commands_options_and_nodes_are_offered(fleet: Kubectl, tmp_path: Path) -> None:
    assert offered(tmp_path, fleet.kubeconfig, "pre") == {"preflight"}
    assert "--kubeconfig" in offered(tmp_path, fleet.kubeconfig, "fleet", "--")
    assert offered(tmp_path, fleet.kubeconfig, "fleet", "-o", "j") == {"json", "jsonpath="}
    for _ in range(10):  # names are offered within two seconds or not at all
        if nodes := offered(tmp_path, fleet.kubeconfig, "why", "gpu-"):
            break
    assert {BLOCKED, HEALTHY} <= nodes


def test_the_nvlink_domains_of_the_nodes_are_offered(tmp_path: Path) -> None:
    def fill(hosted: HostedServer) -> None:
        for name, domain in (("a", "d1"), ("b", "d1"), ("c", "d2")):
            load(hosted, NODES, node(name, labels={"gpuward.io/nvlink-domain": domain}))

    with cluster(tmp_path, fill) as kubectl:
        for _ in range(10):  # names are offered within two seconds or not at all
            if found := offered(tmp_path, kubectl.kubeconfig, "release", "--nvlink-domain", ""):
                break
    assert found == {"d1", "d2"}


def test_a_cluster_that_is_away_offers_no_node_and_no_error(tmp_path: Path) -> None:
    with cluster(tmp_path) as kubectl:
        kubeconfig = kubectl.kubeconfig
    assert offered(tmp_path, kubeconfig, "why", "gpu-") == set()
