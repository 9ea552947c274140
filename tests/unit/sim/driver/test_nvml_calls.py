"""The benchmark of NVML calls makes the calls of that many hours of polling, and times each."""

from __future__ import annotations

import json

from hack.bench.nvml_calls import main
from hack.sim.driver import NODES

TWO_MINUTES = 120 / 3600


def test_every_call_of_two_minutes_is_made_and_timed(capsys):
    node = NODES / "t4-1.yaml"
    assert main([f"--nvml=sim:{node}", f"--hours={TWO_MINUTES}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = {(row["call"], row["asked"]): row["count"] for row in found["calls"]}
    assert counts["nvmlDeviceGetTemperature", "fast"] == 8
    assert counts["nvmlDeviceGetUtilizationRates", "medium"] == 2
    assert counts["nvmlDeviceValidateInforom", "slow"] == 1
    assert counts["nvmlDeviceGetUUID", "start"] == 1
    assert all(0 < row["median_us"] <= row["p99_us"] <= row["worst_us"] for row in found["calls"])


def test_the_table_is_markdown_and_names_the_node(capsys):
    assert main([f"--nvml=sim:{NODES / 't4-1.yaml'}", f"--hours={TWO_MINUTES}"]) == 0
    about, _, head, rule, *rows = capsys.readouterr().out.splitlines()
    assert about.startswith("1 x Tesla T4, driver 535.216.03;")
    assert len({line.count("|") for line in (head, rule, *rows)}) == 1


def test_without_a_driver_there_is_one_sentence(tmp_path, capsys):
    node = tmp_path / "node.yaml"
    node.write_text("init_error: 9\n" + (NODES / "t4-1.yaml").read_text())
    assert main([f"--nvml=sim:{node}"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
