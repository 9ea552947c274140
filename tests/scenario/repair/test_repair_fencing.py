"""Fencing of a silent node: nothing ends its pods before its power is off (s23, issue 13)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rules.api.quarantine import Mode
from rules.api.repair.writes import WriteRepairObject
from rules.session.repair.fencing import OFF_S, PODS_S
from tests.support.scenario.deaths import deaths
from tests.support.scenario.fence_world import NOTE, FenceWorld
from tests.support.scenario.provider_world import HELD_OFF
from tests.support.scenario.repair_world import NODE

Act = Callable[[FenceWorld], object]


def silent(does: str = "heals", **more: Any) -> FenceWorld:
    world = FenceWorld(does, **more)
    world.fall_silent()
    return world


def until(world: FenceWorld, there: Callable[[], bool], limit: float = 3600.0) -> FenceWorld:
    end = world.now + limit
    while not there():
        assert world.now < end, world.message(NODE)
        world.run(10, step=10)
    return world


def live(world: FenceWorld, seconds: float) -> None:
    world.run(seconds, step=10)
    assert world.harm == []


def ended(world: FenceWorld) -> bool:
    return world.session(NODE).status.phase in {"Released", "Cancelled"}


def taints(world: FenceWorld) -> list[WriteRepairObject]:
    return [w for w in world.writes(WriteRepairObject) if w.ends_pods]


def test_s23_power_off_is_seen_before_the_taint_and_pods_are_gone_before_power_comes_back() -> (
    None
):
    world = silent()
    live(world, 560)
    assert world.asked_through() == [], "ten minutes of silence first"
    until(world, lambda: world.held_off)
    live(world, 60)
    assert not world.out_of_service(), "asked for is not off"
    until(world, lambda: not world.alive)
    off_at = world.now
    until(world, lambda: bool(world.tainted))
    assert world.tainted[0] - off_at >= OFF_S
    assert world.host["status"]["poweredOn"] is False
    record = world.session(NODE).status.repair[0].fence
    assert record is not None
    assert record.taint_at, "on record before it is set"
    until(world, lambda: not world.held_off)
    assert [key for key in world.pods if world.pods[key]["spec"]["nodeName"] == NODE] == []
    until(world, lambda: ended(world))
    assert world.phase(NODE) == "Released"
    assert not world.out_of_service()
    assert NOTE not in world.nodes[NODE]["metadata"]["annotations"]
    assert world.steps_of() == [("PowerCycle", "Proven")]
    assert len(taints(world)) == 1
    assert world.harm == []
    assert world.requests() == []


def test_s23_the_taint_is_off_before_the_verdict_of_the_new_boot_is_awaited() -> None:
    """DaemonSets do not tolerate it: with it no agent would ever judge the new boot."""
    world = silent("boots ill")
    until(world, lambda: bool(world.tainted))
    until(world, lambda: world.node(NODE).boot_id.endswith("-2"))
    live(world, 20)
    assert not world.out_of_service()
    assert world.phase(NODE) == "Repairing"


@pytest.mark.parametrize("more", [{"fence": {}}, {"mode": "Off"}], ids=["no fence", "no repair"])
def test_s23_by_default_a_silent_node_is_left_alone(more: dict[str, Any]) -> None:
    world = silent(**more)
    live(world, 7200)
    assert world.asked_through() == []
    assert world.phase(NODE) == "Draining"
    assert world.condition(NODE, "Blocked") == "NodeUnreachable"


def test_s23_shadow_fences_nothing() -> None:
    world = FenceWorld()
    _shadow(world)
    world.fall_silent()
    live(world, 3600)
    assert world.writes(WriteRepairObject) == []


def test_s23_without_the_taint_in_the_policy_the_power_comes_back_at_once() -> None:
    world = silent(taint=False)
    until(world, lambda: not world.alive)
    until(world, lambda: not world.held_off, limit=120)
    until(world, lambda: ended(world))
    assert taints(world) == []
    assert world.steps_of() == [("PowerCycle", "Proven")]
    assert len([p for p in world.pods.values() if p["spec"]["nodeName"] == NODE]) == 4


@pytest.mark.parametrize("does", ["hangs", "gives up"])
def test_s23_power_that_is_not_seen_off_ends_no_pod(does: str) -> None:
    world = silent(does)
    live(world, 3600)
    assert world.steps_of() == [("PowerCycle", "Failed")]
    assert taints(world) == []
    assert not world.held_off
    assert world.phase(NODE) == "Marked"
    assert world.condition(NODE, "NeedsHuman") == "NodeUnreachable"
    assert "a person decides" in world.message(NODE)
    assert len(world.pods) == 4


def test_s23_a_host_that_was_off_before_anybody_asked_proves_nothing() -> None:
    world = silent("hangs")
    world.host["status"]["poweredOn"] = False
    live(world, 3600)
    assert world.asked_through() == []
    assert "says that its power is off already" in world.message(NODE)


def test_s23_power_that_comes_back_by_itself_is_not_off() -> None:
    world = silent("hangs")
    until(world, lambda: world.held_off)
    for on in (False, True):
        world.host["status"]["poweredOn"] = on
        world.touch(world.host)
        live(world, 20)
    live(world, 300)
    assert taints(world) == []


def test_s23_a_kubelet_that_speaks_again_before_is_not_powered_off() -> None:
    world = silent("hangs")
    until(world, lambda: world.held_off)
    world.speak_again()
    live(world, 30)
    assert not world.held_off
    assert world.steps_of() == [("PowerCycle", "Failed")]
    assert world.phase(NODE) == "Draining", "its drain goes on"


def test_s23_pods_that_do_not_go_keep_the_power_off_no_longer_than_five_minutes() -> None:
    world = FenceWorld()
    world.fall_silent()
    world.add_pod("stays", NODE, tolerations=[{"operator": "Exists"}])
    until(world, lambda: bool(world.tainted))
    live(world, PODS_S - 30)
    assert world.held_off
    until(world, lambda: not world.held_off, limit=60)
    until(world, lambda: ended(world) or world.phase(NODE) == "Validating")
    assert not world.out_of_service()


def _hold(world: FenceWorld) -> None:
    world.quarantines[world.session(NODE).name]["spec"]["hold"] = True
    world.touch(world.quarantines[world.session(NODE).name])


def _release(world: FenceWorld) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ada", "reason": "mine"}
    world.touch(session)


def _delete(world: FenceWorld) -> None:
    world.quarantines.pop(world.session(NODE).name)


def _opt_out(world: FenceWorld) -> None:
    world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
    world.touch(world.nodes[NODE])


def _shadow(world: FenceWorld) -> None:
    world.policy = msgspec.structs.replace(world.policy, mode=Mode.SHADOW)


HOLDS: dict[str, Act] = {
    "pause": lambda world: world.pause(),
    "hold": _hold,
    "annotation": lambda world: world.annotate(NODE, "gpuward.io/hold", "look at it"),
    "opt-out": _opt_out,
    "stand-down": lambda world: world.taint(NODE, "ToBeDeletedByClusterAutoscaler"),
    "shadow": _shadow,
}
ENDS: dict[str, Act] = {
    "uncordoned": lambda world: world.cordon(NODE, on=False),
    "released": _release,
    "deleted": _delete,
}
POINTS: dict[str, Callable[[FenceWorld], bool]] = {
    "silent": lambda world: True,
    "asked": lambda world: world.held_off,
    "off": lambda world: not world.alive,
    "tainted": lambda world: world.out_of_service(),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("what", HOLDS)
def test_s23_what_stops_harm_stops_the_next_stage(what: str, point: str) -> None:
    world = silent()
    until(world, lambda: POINTS[point](world))
    asked, tainted = len(world.asked_through()), len(taints(world))
    HOLDS[what](world)
    live(world, 3600)
    assert len(world.asked_through()) - len(taints(world)) == asked - tainted, (
        "no power cycle more"
    )
    assert len(taints(world)) == tainted, "no pod is ended any more"
    assert not world.held_off, "its power is not kept off for ever"
    assert not world.out_of_service()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("what", ENDS)
def test_s23_whoever_ends_the_session_gets_the_node_as_it_was(what: str, point: str) -> None:
    world = silent()
    until(world, lambda: POINTS[point](world))
    ENDS[what](world)
    world.close_all(NODE)
    live(world, 60)
    assert not world.held_off or what == "deleted"
    assert not world.out_of_service()
    assert NOTE not in world.nodes[NODE]["metadata"]["annotations"]
    assert not world.is_marked(NODE)


def test_s23_a_taint_that_somebody_takes_off_is_not_set_again() -> None:
    world = FenceWorld()
    world.fall_silent()
    world.add_pod("stays", NODE, tolerations=[{"operator": "Exists"}])
    until(world, lambda: world.out_of_service())
    world.untaint(NODE, "node.kubernetes.io/out-of-service")
    live(world, 1200)
    assert len(taints(world)) == 1


def test_s23_the_taint_of_somebody_else_stays() -> None:
    world = silent()
    until(world, lambda: not world.alive)
    world.taint(NODE, "node.kubernetes.io/out-of-service", "NoExecute")
    until(world, lambda: ended(world))
    assert taints(world) == []
    assert world.out_of_service()


def test_s23_a_network_that_is_gone_fences_nobody() -> None:
    world = FenceWorld(concurrent=1)
    world.add_nodes(4)
    world.fall_silent()
    for index in range(1, 4):
        world.go_silent(f"n{index}")
    live(world, 3600)
    assert world.asked_through() == []
    assert "fell silent together" in world.message(NODE)


def test_s23_a_control_plane_node_is_never_fenced() -> None:
    world = FenceWorld()
    world.nodes[NODE]["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = ""
    world.fall_silent()
    live(world, 3600)
    assert world.asked_through() == []


def test_s23_one_place_is_one_fence() -> None:
    world = silent(concurrent=1)
    world.own_node = NODE
    live(world, 1800)
    assert world.asked_through() == [], "our own node waits for another leader"
    assert world.hand_overs


def test_s23_a_person_lets_it_go() -> None:
    world = silent(mode="Ask")
    live(world, 1200)
    assert world.asked_through() == []
    assert world.condition(NODE, "RepairProposed") == "PowerCycle"
    assert world.condition(NODE, "NeedsHuman") == "Approval"
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["repair"] = {"step": "PowerCycle", "by": "ada"}
    world.touch(session)
    until(world, lambda: ended(world))
    assert world.steps_of() == [("PowerCycle", "Proven")]


def test_s23_a_node_that_comes_back_ill_is_drained_then() -> None:
    world = silent("boots ill")
    until(world, lambda: world.node(NODE).boot_id.endswith("-2"))
    world.add_pod("new", NODE, gpus=1)
    world.pdbs.clear()
    until(world, lambda: world.phase(NODE) == "Quarantined")
    assert "PowerCycle" in [step for step, _ in world.steps_of()]
    assert len(world.asked_through()) == 2, "the power cycle and the taint, each once"


def test_s23_a_drained_node_that_fell_silent_is_powered_off_too() -> None:
    world = FenceWorld()
    world.fault()
    world.policy = msgspec.structs.replace(
        world.policy, repair=msgspec.structs.replace(world.policy.repair, mode="Ask")
    )
    world.run_until(NODE, "Quarantined", limit=120)
    world.go_silent()
    world.policy = FenceWorld().policy
    until(world, lambda: ended(world))
    assert world.steps_of() == [("PowerCycle", "Proven")]
    assert taints(world) == [], "no pod was left that needs it"


def test_s23_a_node_lost_to_an_earlier_step_goes_on_up_its_ladder() -> None:
    steps = {
        "RestartNode": {"adapter": "NodeConditions", "timeout": "5m"},
        "PowerCycle": {"adapter": "Metal3", "timeout": "5m"},
        "ReplaceNode": {"adapter": "NodeConditions", "timeout": "5m"},
    }
    world = FenceWorld("hangs", steps=steps)
    world.incident(NODE)
    live(world, 20)
    until(world, lambda: world.steps_of() == [("RestartNode", "Asked")])
    world.go_silent()
    live(world, 1800)
    assert [step for step, _ in world.steps_of()] == ["RestartNode", "PowerCycle", "ReplaceNode"]


def test_s23_fence_agents_are_told_to_end_the_pods_themselves() -> None:
    world = silent("hangs", adapter="FenceAgentsRemediation")
    until(world, lambda: bool(world.held("fenceagentsremediations")))
    (made,) = world.held("fenceagentsremediations")
    assert made["spec"]["remediationStrategy"] == "OutOfServiceTaint"
    assert made["spec"]["agent"] == "fence_ipmilan"
    made["status"] = {"conditions": [{"type": "FenceAgentActionSucceeded", "status": "True"}]}
    world.touch(made)
    live(world, 120)
    assert taints(world) == [], "its operator sets it and takes it off"
    world.reboot(NODE)
    world.speak_again()
    world.close_all(NODE)
    until(world, lambda: ended(world))
    assert world.steps_of() == [("PowerCycle", "Proven")]


@functools.cache
def dying() -> tuple[FenceWorld, ...]:
    """What a leader leaves that dies before a write, from the silence on."""
    world = silent()
    died = deaths(world, lambda: until(world, lambda: ended(world)))
    return tuple(left for _, left in died)


@pytest.mark.parametrize("part", range(4))
def test_s23_a_leader_that_dies_at_any_write_fences_once(part: int) -> None:
    assert len(dying()) > 12
    for left in dying()[part::4]:
        _fences_once(until(world := left.fork(), lambda: ended(world)))


def _fences_once(world: FenceWorld) -> None:
    assert world.phase(NODE) == "Released"
    assert world.steps_of() == [("PowerCycle", "Proven")]
    assert len([w for w in world.asked_through() if HELD_OFF in str(w.body)]) == 1
    assert len(taints(world)) == 1
    assert int(world.node(NODE).boot_id.rpartition("-")[2]) == 2
    assert world.harm == []
