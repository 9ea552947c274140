"""What is offered at a Tab: commands, options, nodes, sessions, and steps that would be taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.sim.cluster import resource as r
from remediator.kubectl.commands import COMMANDS
from remediator.kubectl.typed.completion import SHELLS, complete
from rules.repair.ladder import LADDER
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load, run_command
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, QUARANTINES, session


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("completed"), load_fleet) as kubectl:
        yield kubectl


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        pytest.param(["wh"], ["why"], id="a command"),
        pytest.param(["hold", "--rea"], ["--reason"], id="an option"),
        pytest.param(["list", "-o", "w"], ["wide"], id="a value"),
        pytest.param(["completion", "f"], ["fish"], id="one of a few words"),
        pytest.param(["nonsense", "--"], None, id="nonsense"),
    ],
)
def test_words_are_completed(words, offered):
    found = complete(COMMANDS, words)
    assert found == offered or (offered is None and "--kubeconfig" in found)


def test_names_of_the_cluster_are_completed(fleet):
    place = ("--kubeconfig", str(fleet.kubeconfig))
    ask = lambda *words: run_command("__complete", *place, *words)[1].split()  # noqa: E731
    assert ask("why", "gpu-b") == ["gpu-blocked", "gpu-budget"]
    assert ask("show", "gpu-h") == ["gpu-held-0badcafe"]
    assert ask("resume", "") == ["pause-0badcafe"]


def test_evidence_is_completed_too(fleet):
    place = ("--kubeconfig", str(fleet.kubeconfig))
    assert run_command("__complete", *place, "evidence", "")[1].split() == [f"{BLOCKED}-0badcafe"]


REPAIRS = """{mode: Enforce, repair: {mode: Auto, steps: {
  RestartNode: {adapter: NodeConditions}, ReplaceNode: {adapter: ClusterAPI}}}}"""
BOTH = ["ReplaceNode", "RestartNode"]


@pytest.mark.parametrize(
    ("policy", "words", "offered"),
    [
        pytest.param(REPAIRS, ["--step"], BOTH, id="adapters"),
        pytest.param(REPAIRS, ["gpu-7", "--step"], BOTH[:1], id="one-was-tried"),
        pytest.param(REPAIRS, ["node/gpu-7", "--reason", "x", "--step"], BOTH[:1], id="spelled"),
        pytest.param(REPAIRS, ["gpu-8", "--step"], [], id="no-session"),
        pytest.param("mode: Enforce", ["--step"], [], id="repair-is-off"),
        pytest.param("mode: Sometimes", ["--step"], sorted(map(str, LADDER)), id="unreadable"),
    ],
)
def test_walk_only_steps_that_would_be_taken_are_offered(tmp_path, policy, words, offered):
    def fill(hosted):
        load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
        meta = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"policy.yaml": policy}})
        tried = [{"step": "RestartNode", "adapter": "NodeConditions", "state": "Failed"}]
        load(hosted, QUARANTINES, session("gpu-7-s", "gpu-7", "Quarantined", "x", repair=tried))

    with cluster(tmp_path, fill) as kubectl:
        place = ("--kubeconfig", str(kubectl.kubeconfig))
        code, out, err = run_command("__complete", *place, "repair", *words, "")
    assert (code, out.split(), err) == (0, offered, "")


def test_without_a_cluster_all_steps_are_offered(tmp_path):
    away = ("--kubeconfig", str(tmp_path / "no"))
    found = run_command("__complete", *away, "repair", "--step", "Re")[1].split()
    assert found == sorted(step for step in map(str, LADDER) if step.startswith("Re"))


def test_completion_never_fails(tmp_path):
    code, out, err = run_command("__complete", "--kubeconfig", str(tmp_path / "no"), "why", "")
    assert (code, out.strip(), err) == (0, "", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(shell):
    code, out, _ = run_command("completion", shell)
    assert (code, "__complete" in out) == (0, True)
