"""Pods that are bound to a quarantined node by name: watched until release, named, never
evicted.
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.api import writes as d
from tests.support.scenario.fleets import fleet
from tests.support.scenario.session_world import World

NODE = "n0"
DAEMON = ("apps/v1", "DaemonSet", "agent")
OPERATOR = ("nvidia.com/v1", "ClusterPolicy", "cluster-policy")
DRIVER = ("nvidia.com/v1alpha1", "NVIDIADriver", "default")
NAMESAKE = ("example.com/v1", "ClusterPolicy", "cluster-policy")
LISTED_S = 125
"""A drained node is listed every one to two minutes."""
MIRROR = {"kubernetes.io/config.mirror": "x"}


def drained(**sections: Any) -> World:
    world = fleet(4, **sections)
    world.add_pod("was-here", NODE, owner=None, gpus=1)
    world.fail_until(NODE, "Quarantined")
    world.run(5)
    return world


def test_a_pod_that_stayed_by_policy_is_no_arrival() -> None:
    world = drained()
    world.run(120)
    assert world.condition(NODE, "Blocked") == ""
    assert world.session(NODE).status.drain is not None
    assert "1 left by policy" in world.message(NODE)


@pytest.mark.parametrize(
    ("pod", "named"),
    [
        pytest.param({"gpus": 8}, "team-a/new of ReplicaSet web", id="GPU pod of a controller"),
        pytest.param({}, "team-a/new of ReplicaSet web", id="any pod a drain would evict"),
        pytest.param({"owner": None, "gpus": 1}, "team-a/new", id="GPU pod by hand"),
        pytest.param({"owner": None}, "", id="debugging pod by hand"),
        pytest.param({"owner": DAEMON, "gpus": 1}, "", id="DaemonSet"),
        pytest.param({"owner": OPERATOR, "gpus": 1}, "", id="validation by the GPU Operator"),
        pytest.param({"owner": DRIVER, "gpus": 1}, "", id="validation of a driver"),
        pytest.param(
            {"owner": NAMESAKE, "gpus": 1},
            "team-a/new of ClusterPolicy cluster-policy",
            id="a kind of the same name",
        ),
        pytest.param({"owner": None, "annotations": MIRROR, "gpus": 1}, "", id="static pod"),
        pytest.param({"phase": "Succeeded", "gpus": 1}, "", id="finished"),
        pytest.param({"namespace": "kube-system", "owner": DAEMON}, "", id="system DaemonSet"),
    ],
)
def test_who_comes_past_the_scheduler_is_named_until_it_is_gone(
    pod: dict[str, Any], named: str
) -> None:
    world = drained()
    evictions = len(world.writes(d.EvictPod))
    if pod.get("owner") == DAEMON:
        world.add_daemonset_owner(f"DaemonSet-{pod.get('namespace', 'team-a')}-agent")
    world.add_pod("new", NODE, **pod)
    world.run(LISTED_S, step=5)
    assert world.phase(NODE) == "Quarantined"
    reason = "PodArrived" if named else ""
    assert world.condition(NODE, "Blocked") == world.condition(NODE, "NeedsHuman") == reason
    if named:
        assert f"1 pod came past the scheduler since ({named})" in world.message(NODE)
        assert "make their owner respect the cordon" in world.message(NODE)
    world.restart()
    world.run(5)
    assert world.condition(NODE, "Blocked") == reason, "a new process says the same"
    assert len(world.writes(d.EvictPod)) == evictions, "it is reported, not fought"
    del world.pods[pod.get("namespace", "team-a"), "new"]
    world.run(LISTED_S, step=5)
    assert world.condition(NODE, "Blocked") == ""
    assert "past the scheduler" not in world.message(NODE)


def test_an_arrival_holds_up_no_release() -> None:
    world = drained()
    world.add_pod("new", NODE, gpus=8)
    world.run(60)
    world.heal_until_released(NODE)
    world.run(2)
    assert not world.is_marked(NODE)
    assert world.condition(NODE, "Blocked") == ""


def test_many_arrivals_stay_one_sentence_and_one_event() -> None:
    world = drained()
    for number in range(30):
        world.add_pod(f"new-{number}", NODE, gpus=1)
    world.run(300)
    assert "30 pods came past the scheduler" in world.message(NODE)
    assert "and 27 more" in world.message(NODE)
    told = [e for e in world.events.values() if e["reason"] == "QuarantineNeedsHuman"]
    assert len(told) == 1
