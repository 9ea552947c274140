"""A fake kubelet's pods: start, readiness, stopping within the grace period, ends, reboots."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hack.sim.cluster.controllers.nodes.kubelet import KubeletSettings, PodMemory, act
from tests.support.cluster.controller_objects import NOW, ago, deleted, owner, pod, status

SETTINGS = KubeletSettings(start_s=2.0, stop_s=1.0)
STARTED = PodMemory(seen_at=NOW - timedelta(seconds=60), boot=0)


def sim(**annotations: str) -> dict[str, str]:
    return {f"sim.gpuward.io/{key.replace('_', '-')}": value for key, value in annotations.items()}


def running(**more: Any) -> dict[str, Any]:
    return pod("a", startTime=ago(60), **more)


@pytest.mark.parametrize(
    ("stop_s", "stops_in_s"),
    [
        pytest.param(1.0, 1.0, id="by itself"),
        pytest.param(600.0, 30.0, id="killed when the grace period ends"),
    ],
)
def test_stopping(stop_s: float, stops_in_s: float) -> None:
    going = running(terminating=True)
    going["metadata"]["deletionGracePeriodSeconds"] = 30
    settings = KubeletSettings(stop_s=stop_s)
    waiting, memory = act(going, STARTED, 0, settings, NOW)
    assert (waiting.writes, waiting.again_in_s) == ((), stops_in_s)
    outcome, _ = act(going, memory, 0, settings, NOW + timedelta(seconds=stops_in_s))
    assert deleted(outcome) == ["a"]
    (gone,) = outcome.writes
    assert getattr(gone, "grace_s", None) == 0


def test_a_job_pod_ends_failed_before_it_goes() -> None:
    going = pod("a", owner("Job", api="batch/v1"), terminating=True)
    memory = replace(STARTED, stopping_since=NOW - timedelta(seconds=5))
    outcome, _ = act(going, memory, 0, SETTINGS, NOW)
    found = status(outcome)
    assert found["phase"] == "Failed"
    assert found["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert deleted(outcome) == ["a"]


@pytest.mark.parametrize(
    ("code", "phase"),
    [pytest.param("0", "Succeeded", id="success"), pytest.param("42", "Failed", id="failure")],
)
def test_a_pod_that_ends_by_itself(code: str, phase: str) -> None:
    busy = running(annotations=sim(finish_after="90s", exit_code=code))
    waiting, memory = act(busy, STARTED, 0, SETTINGS, NOW)
    assert waiting.again_in_s == 30
    outcome, _ = act(busy, memory, 0, SETTINGS, NOW + timedelta(seconds=30))
    assert status(outcome)["phase"] == phase
    assert deleted(outcome) == []


def test_after_a_reboot_containers_start_again() -> None:
    outcome, memory = act(running(), STARTED, 1, SETTINGS, NOW)
    assert status(outcome)["containerStatuses"][0]["restartCount"] == 1
    assert memory.boot == 1
