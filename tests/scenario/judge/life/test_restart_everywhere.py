"""For every scenario in the tree: an agent restart at every step (issue 11, Must show).

Each scenario tries two steps by itself (`conftest`); here the same is done at every step of the
short ones and at a hundred of the long ones.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scenario.judgement_world import World
from tests.support.scenario.restarts import difference

SCENARIOS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("GPUWARD_EXHAUSTIVE"),
    reason="plays a quarter of an hour; GPUWARD_EXHAUSTIVE=1 hack/test -m slow runs it",
)
def test_a_restart_at_every_step_of_every_scenario_changes_nothing_undocumented() -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "not slow",
            "-n",
            str(os.cpu_count() or 1),
            str(SCENARIOS),
        ],
        env={**os.environ, "GPUWARD_RESTART_AT": "every"},
        cwd=SCENARIOS.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]


def test_a_restart_that_loses_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World().start()
    world.xid(79)
    world.advance(60)
    states, at = [*world.states, world.state], len(world.steps)
    assert difference(world.steps, states, at, 10) is None
    monkeypatch.setattr("rules.judge.restore._incidents", lambda *_: ())
    found = difference(world.steps, states, at, 10)
    assert found is not None
    assert not found.documented
