"""`gpuward-remediator simulate` plays a small fleet and prints, writes or explains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remediator.cli import main
from remediator.simulate.benchmark import write_benchmark
from remediator.simulate.runs import interval
from remediator.simulate.studies import StudySize
from rules.simulate.peers.policies import PEERS
from rules.simulate.score import Score

SMALL_STUDIES = StudySize(
    lemon_nodes=10,
    lemon_days=5.0,
    lemon_seeds=1,
    failing_nodes=0,
    sound_gpu_days=80.0,
    ledger_nodes=50,
    ledger_days=30.0,
)
SMALL = ["simulate", "--nodes", "20", "--days", "3"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--policy", "nothing"]) == 0
    said = capsys.readouterr().out

    assert said.startswith("nothing: 20 nodes, 3 days, 1 seed from 1\n")
    assert "terminal faults found, %" in said


def test_a_policy_file_is_played_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\nmode: Shadow\n")

    planted = [*SMALL, "--false-alarms", "200", "--seed", "3"]
    assert main([*planted, "--policy", str(file), "--json"]) == 0
    (shadow,) = json.loads(capsys.readouterr().out)
    assert main([*planted, "--json"]) == 0
    (enforce,) = json.loads(capsys.readouterr().out)

    assert shadow["taken"] == 0
    assert enforce["wrong"] > 0


def test_a_policy_that_is_none_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--policy", "nvsentinel"]) == 64
    said = capsys.readouterr().err

    assert "nvsentinel-like" in said
    assert said.count("\n") == 1


def test_issue15_walk_names_in_the_help_are_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name broken at its hyphen cannot be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    said = capsys.readouterr().out
    assert [name for name in PEERS if name not in said] == []


def test_one_command_writes_page_numbers_and_plots(tmp_path: Path) -> None:
    write_benchmark(tmp_path, nodes=12, days=2, seeds=1, size=SMALL_STUDIES)

    page = (tmp_path / "benchmark.md").read_text(encoding="utf-8")
    counts = json.loads((tmp_path / "benchmark.json").read_text(encoding="utf-8"))
    assert set(counts["fleet"]) == {"gpuward", *PEERS}
    assert "a fleet of 12 eight-GPU nodes in 2 simulated days, 1 seeds" in page
    assert "{" not in page
    assert "| nothing is wrong, drivers change | 10 | - | - | - | 80 | 0.0 (up to" in page
    assert "| 3 sessions in 7 days |" in page
    assert {"lemons", "foresight", "ledger"} <= set(counts)
    for name in ("lost", "recall", "wrong", "avoidable"):
        drawn = (tmp_path / "images" / f"benchmark-{name}.svg").read_text(encoding="utf-8")
        assert drawn.startswith("<svg ")
        assert f"images/benchmark-{name}.svg" in page


def test_an_interval_widens_with_the_spread_of_few_seeds() -> None:
    scores = [Score(nodes=1, days=1.0, taken=taken) for taken in (8, 10, 12)]

    assert interval(scores, lambda s: s.taken).text() == "10 ± 5"
    assert interval(scores[:1], lambda s: s.taken).text() == "8"


def test_one_question_is_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--study", "ledger", "--nodes", "40", "--days", "30"]) == 0
    said = capsys.readouterr().out

    assert said.split("\n")[0].split()[:3] == ["nodes", "faults", "records"]
    assert said.split("\n")[1].startswith("40 ")


def test_a_question_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--nodes", "10", "--days", "5", "--seeds", "1"]
    assert main(["simulate", "--study", "lemons", *few, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)

    assert set(said) == {"bad", "ours", "plain"}
