"""A session that isolates GPUs by device taints, from the fault to the release."""

from typing import Any

import pytest

from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.fleet.turns import judge_fleet
from rules.repair.objects import ReadState
from tests.support.scenario.device_world import NODE, DeviceWorld, uuid


def effect(world: DeviceWorld, device: str = "gpu-3") -> str:
    return str(world.rules()[device]["spec"]["taint"]["effect"])


def in_service(world: DeviceWorld) -> bool:
    """Whether the node takes pods: it has neither taint nor cordon."""
    return not world.unschedulable(NODE) and not world.nodes[NODE]["spec"].get("taints")


def test_one_gpu_is_isolated_and_the_node_stays_in_service() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    assert world.rules().keys() == {"gpu-3"}
    rule = world.rules()["gpu-3"]
    assert rule["spec"]["deviceSelector"]["pool"] == NODE
    assert rule["spec"]["taint"]["key"] == "gpuward.io/quarantine"
    assert effect(world) == "NoSchedule"
    assert in_service(world)
    assert world.is_quarantined(NODE), "the session is on record on the node"
    (device,) = world.session(NODE).status.devices
    assert (device.uuid, device.device) == (uuid(NODE, 3), "gpu-3")
    assert device.rule_uid == rule["metadata"]["uid"]
    drain = world.session(NODE).status.drain
    assert drain is not None
    assert drain.scope == "Holders"
    world.heal_until_released(NODE)
    assert not world.rules()
    assert not world.is_quarantined(NODE)
    assert in_service(world)


def test_the_record_on_the_node_comes_first_and_goes_last() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    world.heal_until_released(NODE)
    kinds = (d.TaintAndCordon, TaintDevice, UntaintDevice, d.RemoveTaint)
    assert [type(write) for write in world.writes(*kinds)] == list(kinds)


def test_in_shadow_the_taint_has_no_effect_and_goes_with_the_session() -> None:
    world = DeviceWorld(mode="Shadow")
    world.fault(3)
    world.run(120)
    assert effect(world) == "None"
    assert not world.is_quarantined(NODE)
    assert "would isolate device gpu-3" in world.message(NODE)
    world.close_all(NODE)
    world.run_until(NODE, "Released", 300)
    assert not world.rules()


def _no_rules(world: DeviceWorld) -> None:
    world.device_rules = ""


def _forbidden(world: DeviceWorld) -> None:
    world.unreadable["devicetaintrules"] = ReadState.FORBIDDEN


def _old(world: DeviceWorld) -> None:
    world.server_version = "v1.36.2"


def _no_slice(world: DeviceWorld) -> None:
    world.publish(NODE, *range(3))


def _plugin(world: DeviceWorld) -> None:
    world.nodes[NODE]["status"]["allocatable"]["nvidia.com/gpu"] = "8"


def _one_gpu(world: DeviceWorld) -> None:
    for gpu in world.healths[NODE]["status"]["gpus"]:
        gpu["health"] = "Healthy" if gpu["uuid"] == uuid(NODE, 3) else "Unhealthy"


def _fabric(world: DeviceWorld) -> None:
    world.healths[NODE]["status"]["incidents"][0]["scope"] = "Domain"


def _reboot(world: DeviceWorld) -> None:
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = "RestartNode"


def _no_gpu(world: DeviceWorld) -> None:
    world.healths[NODE]["status"]["incidents"][0]["gpus"] = []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_no_rules, "does not serve devicetaintrules"),
        (_forbidden, "component devices is not installed"),
        (_old, "Kubernetes v1.36.2"),
        (_no_slice, "no ResourceSlice of the node shows GPU GPU-n0-3"),
        (_plugin, "device plugin"),
        (_one_gpu, "no other GPU of the node is usable"),
        (_fabric, "concerns more than one GPU"),
        (_reboot, "needs RestartNode"),
        (_no_gpu, "names no GPU"),
    ],
)
def test_the_node_is_isolated_if_the_gpu_alone_cannot_be(change: Any, why: str) -> None:
    world = DeviceWorld()
    world.fault(3, level="Cordon")
    change(world)
    world.run_until(NODE, "Marked")
    assert not world.rules()
    assert world.unschedulable(NODE)
    assert why in world.message(NODE)
    world.heal_until_released(NODE)
    assert in_service(world)


def test_the_beta_version_of_1_36_is_used() -> None:
    world = DeviceWorld()
    world.device_rules, world.server_version = "v1beta2", "v1.36.3"
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    assert world.rules()["gpu-3"]["apiVersion"] == "resource.k8s.io/v1beta2"


def test_the_policy_isolates_the_node_by_default() -> None:
    world = DeviceWorld(isolate="Node")
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    assert not world.rules()
    assert world.unschedulable(NODE)
    assert "not the GPU" not in world.message(NODE)


def test_a_second_gpu_joins_the_session() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    world.fault(5)
    world.run(30)
    assert world.rules().keys() == {"gpu-3", "gpu-5"}
    assert in_service(world)


def test_a_fault_of_the_node_widens_the_session_to_the_node() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    world.incident(NODE)
    world.run(60)
    assert world.unschedulable(NODE)
    assert not world.rules()
    assert not world.session(NODE).status.devices
    world.heal_until_released(NODE)
    assert in_service(world)


def test_a_cordon_of_an_operator_stays_after_the_session_was_widened() -> None:
    world = DeviceWorld()
    world.fault(3, level="Cordon")
    world.run_until(NODE, "Marked")
    world.run(5)
    world.cordon(NODE)
    world.incident(NODE, level="Cordon")
    world.run(60)
    world.heal_until_released(NODE)
    assert world.unschedulable(NODE)


def test_rules_that_no_controller_acts_on_are_replaced_by_the_quarantine_of_the_node() -> None:
    world = DeviceWorld()
    world.device_taints_act = False
    world.fault(3)
    world.run(180)
    assert not world.rules()
    assert world.unschedulable(NODE)
    timeline = world.session(NODE).status.timeline
    assert any("DRADeviceTaintRules" in entry.message for entry in timeline)


@pytest.mark.parametrize("change", ["deleted", "changed"])
def test_an_operator_who_removes_the_rule_ends_the_session(change: str) -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    if change == "deleted":
        world.delete_rule("gpu-3")
    else:
        world.rules()["gpu-3"]["spec"]["taint"]["effect"] = "NoExecute"
    world.run_until(NODE, "Cancelled", 120)
    assert "an operator deleted or changed DeviceTaintRule" in world.message(NODE)
    world.run(600)
    assert not world.rules(), "the override holds"
    assert not world.is_quarantined(NODE)


def test_a_gpu_keeps_its_taint_under_another_name() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    world.reboot(NODE)
    world.publish(NODE, 3, 0, 1, 2, 4, 5, 6, 7)
    world.run(120)
    assert world.rules().keys() == {"gpu-0"}
    assert [each.device for each in world.session(NODE).status.devices] == ["gpu-0"]


def test_a_gpu_that_vanished_taints_no_other_gpu() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    world.publish(NODE, 0, 1, 2)
    world.run(120)
    assert world.rules().keys() == {"gpu-3"}, "no other GPU has the name"
    world.publish(NODE, 0, 1, 2, 4)
    world.run(120)
    assert not world.rules()


def test_the_rules_go_with_a_deleted_session_and_with_the_node() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    del world.quarantines[world.session(NODE).name]
    world.run(60)
    assert not world.rules()
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    del world.nodes[NODE]
    world.run_until(NODE, "NodeGone", 120)
    assert not world.rules()


def test_a_release_waits_for_rules_that_cannot_be_deleted() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    world.refusing[UntaintDevice] = (403, "no right")
    world.close_all(NODE)
    world.run(700, step=5)
    assert world.phase(NODE) == "Validating"
    assert "could not be removed yet" in world.message(NODE)
    world.run_until(NODE, "Released", 900, step=5)
    timeline = world.session(NODE).status.timeline
    assert any("delete manually" in entry.message for entry in timeline)


def test_the_taints_of_the_driver_are_named_at_the_release() -> None:
    world = DeviceWorld()
    world.fault(3)
    world.run_until(NODE, "Quarantined", 300)
    (devices,) = (
        o["spec"]["devices"] for o in world.held("resourceslices") if o["spec"]["nodeName"] == NODE
    )
    devices[3]["taints"] = [{"key": "gpu.nvidia.com/xid", "value": "48", "effect": "NoSchedule"}]
    world.run(60)
    world.heal_until_released(NODE)
    assert "gpu-3 (gpu.nvidia.com/xid=48:NoSchedule)" in world.message(NODE)


@pytest.mark.parametrize("mode", ["Enforce", "Shadow"])
def test_an_isolated_gpu_costs_the_budget_its_share_of_the_node(mode: str) -> None:
    world = DeviceWorld(mode=mode)
    for health in world.healths:
        world.nodes[health]["metadata"]["labels"]["gpuward.io/gpus"] = "8"
    world.fault(3)
    world.run(60)
    (line,) = judge_fleet(world.snapshot()).lines
    assert line.unavailable == 1 / 8
    assert line.clause.startswith("0.125 of 2 nodes are unavailable")
    assert line.room == line.limit - 1, "a new session needs room for a node"
