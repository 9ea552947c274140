"""The fleet benchmark with a few nodes on a real API server. It needs KUBEBUILDER_ASSETS."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.control_plane import ASSETS

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(
    not os.environ.get(ASSETS), reason=f"the benchmark starts a real API server: set {ASSETS}"
)
def test_a_small_fleet_is_measured_from_detection_to_back_in_service() -> None:
    options = ("--nodes=10", "--faults=2", "--pods=2", "--rate=4", "--output=json")
    done = subprocess.run(
        [sys.executable, "-m", "hack.bench.fleet", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    stages = figures["stages"]
    assert [stages[name]["nodes"] for name in stages] == [2, 2, 2]
    tainted, empty, back = (stages[name]["p50"] for name in stages)
    assert 0 < tainted < empty < back
    numbers = {f"{one['verb']} {one['resource']}": one["number"] for one in figures["calls"]}
    assert numbers["create pods/eviction"] == 4
    assert figures["API calls per session"] == sum(numbers.values()) / 2
    assert figures["remediator memory MiB"] > 0
