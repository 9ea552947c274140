"""Which pods a fault moves: all, those with GPUs, or those that use the accused GPU."""

from typing import Any

import pytest

from tests.support.scenario.fleets import NODE, drain_of, evicted
from tests.support.scenario.repair_world import RepairWorld
from tests.support.scenario.session_world import ROOMY, World, kill_points, policy_of


def node_with(action: str = "ResetGPU", **sections: Any) -> World:
    """A node whose fault asks for `action`, with a trainer on its GPUs and a web server."""
    world = World(policy_of(budget=ROOMY, **sections))
    world.add_nodes(3)
    world.add_pod("web", NODE)
    world.add_pod("train", NODE, gpus=8)
    world.incident(NODE)
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = action
    return world


@pytest.mark.parametrize(
    ("action", "policy", "leave"),
    [
        pytest.param("ResetGPU", {}, ["train"], id="a reset concerns GPU pods"),
        pytest.param("RunDiagnostics", {}, ["train"], id="so does a diagnosis"),
        pytest.param("RestartNode", {}, ["train", "web"], id="a restart concerns all pods"),
        pytest.param("ReplaceNode", {}, ["train", "web"], id="so does a replacement"),
        pytest.param("CheckMechanicals", {}, ["train", "web"], id="and work at the machine"),
        pytest.param(
            "ResetGPU", {"drain": {"scope": "Node"}}, ["train", "web"], id="the policy widens"
        ),
        pytest.param("RestartNode", {"drain": {"scope": "GPUPods"}}, ["train"], id="or narrows"),
        pytest.param(
            "RestartNode",
            {
                "drain": {"scope": "GPUPods"},
                "reasons": {"Xid79GPUFallenOffBus": {"drainScope": "Node"}},
            },
            ["train", "web"],
            id="one reason comes before all",
        ),
    ],
)
def test_the_recommended_repair_and_the_policy_choose_the_pods(
    action: str, policy: dict[str, Any], leave: list[str]
) -> None:
    world = node_with(action, **policy)
    world.run_until(NODE, "Quarantined", limit=60)
    assert sorted(evicted(world)) == leave
    stays = "Pods without GPUs stay." in world.message(NODE)
    assert stays == ("web" not in leave)


def test_the_pdb_of_a_service_without_gpus_does_not_block_the_repair_of_a_gpu() -> None:
    world = node_with()
    world.add_pdb("strict", minAvailable=1, replicas=1)
    world.pods["team-a", "train"]["metadata"]["labels"] = {"app": "train"}
    world.run_until(NODE, "Quarantined", limit=60)
    assert evicted(world) == ["train"]


def test_pods_without_gpus_that_come_to_the_node_do_not_block_its_repair() -> None:
    world = node_with()
    world.run_until(NODE, "Quarantined", limit=60)
    world.add_pod("debug", NODE)
    world.run(120, step=5)
    assert world.condition(NODE, "Blocked") == ""


def test_a_request_of_an_operator_empties_a_node_whose_gpu_pods_have_left() -> None:
    world = node_with()
    world.run_until(NODE, "Quarantined", limit=60)
    assert evicted(world) == ["train"]
    found = world.quarantines[world.session(NODE).name]
    found["spec"]["causes"].append({"source": "Human", "reason": "Check", "by": "ann"})
    world.touch(found)
    world.run(60)
    assert evicted(world) == ["train", "web"]
    assert world.phase(NODE) == "Quarantined"


class NoReset(RepairWorld):
    """A provider that restarts nodes and never resets a GPU."""

    def _provide(self, name: str, kind: str) -> None:
        if kind != "GPUNeedsReset":
            super()._provide(name, kind)


def climbing() -> NoReset:
    """A node whose reset does not happen, so that it is restarted."""
    world = NoReset(nodes=2)
    world.add_pod("web", NODE)
    world.add_pod("train", NODE, gpus=8)
    world.incident(NODE)
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = "ResetGPU"
    return world


def test_the_rest_is_drained_before_a_restart_and_not_before_the_reset() -> None:
    world = climbing()
    world.run_until(NODE, "Repairing", limit=120)
    assert (evicted(world), world.steps_of()[-1][0]) == (["train"], "ResetGPU")
    world.run_until(NODE, "Draining", limit=3600, step=5)
    assert "RestartNode" in drain_of(world).scope_reason
    world.run_until(NODE, "Repairing", limit=120)
    assert evicted(world) == ["train", "web"]
    assert world.steps_of()[-1][0] == "RestartNode"
    assert drain_of(world).scope == "Node"


def test_a_leader_that_dies_at_any_write_of_the_second_drain_changes_nothing() -> None:
    def life(world: NoReset) -> tuple[list[str], list[str]]:
        world.run_until(NODE, "Released", limit=7200, step=5)
        return sorted(set(evicted(world))), [step for step, _ in world.steps_of()]

    world = climbing()
    world.run_until(NODE, "Repairing", limit=120)
    ends = (["train", "web"], ["ResetGPU", "RestartNode"])
    points = kill_points(world, lambda: life(world))
    assert len(points) >= 8
    for write, left in points:
        left.restart()
        assert life(left) == ends, write


def test_a_session_of_an_older_release_goes_on_emptying_its_node() -> None:
    world = node_with()
    world.add_pdb("strict", minAvailable=2, replicas=2)
    world.run_until(NODE, "Draining", limit=60)
    assert drain_of(world).scope == "GPUPods"
    found = world.quarantines[world.session(NODE).name]
    found["status"]["drain"].pop("scope")
    world.touch(found)
    world.restart()
    world.run(60)
    assert {note.name for block in drain_of(world).blocked for note in block.pods.named} == {
        "team-a/train",
        "team-a/web",
    }
