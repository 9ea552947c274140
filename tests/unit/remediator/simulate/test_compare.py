"""`gpuward-remediator simulate --compare-trace` says how far the generator is from a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remediator.cli import main


def trace(path: Path, nodes: int = 3) -> Path:
    events = [
        {"node_id": f"n{node}", "event_time": node + at, "event_type": kind,
         "fault_type": {"Class": "GPU"}}
        for node in range(nodes)
        for at, kind in ((1.0, "fault_start"), (2.5, "fault_end"))
    ]  # fmt: skip
    path.write_text(json.dumps(events), encoding="utf-8")
    return path


def test_every_number_is_printed_with_its_distance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(trace(tmp_path / "trace.json"))

    assert main(["simulate", "--compare-trace", file, "--nodes", "50", "--seeds", "3"]) == 0
    said = capsys.readouterr().out

    assert said.startswith("3 faults of 50 nodes in 5 days, against 3 seeds\n")
    assert "GPU per 1,000 node-days (3)" in said
    assert "share of faults on the top 5 % of nodes" in said


def test_as_json_it_says_what_is_within(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(trace(tmp_path / "trace.json"))

    assert main(["simulate", "--compare-trace", file, "--seeds", "2", "--json"]) == 0
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)}

    assert rows["GPU per 1,000 node-days"]["trace"] == 3.0
    assert rows["GPU per 1,000 node-days"]["traceFaults"] == 3
    assert rows["GPU per 1,000 node-days"]["within"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "2"], "3 nodes failed in it; say --nodes 3 or more"),
        (["--nodes", "x"], "'x' is no whole number above 0"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    command = ["simulate", "--compare-trace", str(trace(tmp_path / "t.json")), *arguments]

    try:
        status = main(command)
    except SystemExit as end:
        status = int(str(end.code))

    assert status == 64
    assert said in capsys.readouterr().err


def test_a_file_that_is_none_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--compare-trace", "/nowhere.json"]) == 64
    assert "cannot be read" in capsys.readouterr().err
