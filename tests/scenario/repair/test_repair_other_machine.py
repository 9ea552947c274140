"""Whose word says which machine a node is: a kubelet that names another one's gets nobody harmed.

A kubelet writes annotations and provider ID of its own Node (issue 13).
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.repair.judging import Sight
from rules.repair.ladder import Step
from rules.repair.shipped import ADAPTERS
from tests.support.scenario.provider_world import MACHINE_ANNOTATION, ROWS, ProviderWorld
from tests.support.scenario.repair_world import NODE

OTHER = "n1"
METAL = ("Metal3", "PowerCycle")
BY_NODE = [
    (name, str(step))
    for name, adapter in ADAPTERS.items()
    for step, action in adapter.steps.items()
    if (action.target is not None and action.target.reference) or action.witness is not None
]
"""Whoever acts on an object that the Node names, or lets another do that."""


def test_whatever_the_node_names_is_confirmed_by_somebody_else() -> None:
    assert set(BY_NODE) <= set(ROWS)
    assert {name for name, _ in BY_NODE} == {"ClusterAPI", "Metal3", "MachineDeletionRemediation"}
    for name, adapter in ADAPTERS.items():
        for action in adapter.steps.values():
            if action.target is None or not action.target.reference:
                continue
            itself = any(
                match.field == "status.nodeRef.name" and match.value == "{node}" and match.negated
                for match in action.refuse
            )
            assert itself or action.witness is not None, name


def world_of(name: str, step: str) -> ProviderWorld:
    world = ProviderWorld(name, step)
    world.fault()
    return world


def names_the_other(world: ProviderWorld) -> None:
    """The node's own kubelet says that it is the other one's machine."""
    mine, others = world.nodes[NODE], world.nodes[OTHER]
    mine["spec"]["providerID"] = others["spec"]["providerID"]
    for key in ("cluster.x-k8s.io/machine", MACHINE_ANNOTATION):
        mine["metadata"]["annotations"][key] = others["metadata"]["annotations"][key]
    world.touch(mine)


def nothing_happens(world: ProviderWorld, words: str) -> None:
    world.run(300, step=20)
    assert words in world.message(NODE)
    world.run(900, step=30)
    assert world.steps_of() == [(world.step, "Failed")]
    assert words in world.session(NODE).status.repair[0].proof
    assert world.asked_through() == []
    assert world.requests() == []


@pytest.mark.parametrize(("name", "step"), BY_NODE)
def test_who_names_the_machine_of_another_node_has_nobody_harmed(name: str, step: str) -> None:
    world = world_of(name, step)
    names_the_other(world)
    said = {
        "ClusterAPI": "lacks field status.nodeRef.name=n0",
        "Metal3": "(spec.consumerRef.name 'm3m-n1') and machines.cluster.x-k8s.io capi/m-n0",
        "MachineDeletionRemediation": "machines.machine.openshift.io openshift/m-n1 does not",
    }
    nothing_happens(world, said[name])


def machine(world: ProviderWorld, node: str = NODE) -> dict[str, Any]:
    """The Machine of Cluster API behind a node."""
    return world.objects[f"/apis/cluster.x-k8s.io/v1beta2/namespaces/capi/machines/m-{node}"]


def test_a_host_that_nobody_else_knows_is_not_switched_off() -> None:
    world = world_of(*METAL)
    machine(world)["status"]["nodeRef"] = {}
    nothing_happens(world, "none of the machines belongs to the node")


def test_two_machines_for_one_node_are_no_witness() -> None:
    world = world_of(*METAL)
    machine(world, OTHER)["status"]["nodeRef"] = {"name": NODE}
    nothing_happens(world, "2 of the machines belong to the node")


@pytest.mark.parametrize("hostile", [None, "", 5, ["m3m-n0"], {"name": "m3m-n0"}])
def test_what_neither_says_is_no_agreement(hostile: Any) -> None:
    world = world_of(*METAL)
    machine(world)["spec"]["infrastructureRef"]["name"] = hostile
    (host,) = [o for o in world.held("baremetalhosts") if o["metadata"]["name"] == "host-n0"]
    host["spec"]["consumerRef"]["name"] = hostile
    nothing_happens(world, "(spec.consumerRef.name says nothing)")


@pytest.mark.parametrize(
    ("sight", "words"),
    [
        (Sight.FORBIDDEN, "may not read machines.cluster.x-k8s.io"),
        (Sight.UNREAD, "machines.cluster.x-k8s.io cannot be read"),
    ],
)
def test_a_witness_that_cannot_be_read_says_nothing(sight: Sight, words: str) -> None:
    world = world_of(*METAL)
    world.unreadable["machines"] = sight
    nothing_happens(world, words)


@pytest.mark.parametrize("step", [Step.RESTART_NODE, Step.POWER_CYCLE])
def test_what_was_asked_of_the_other_machine_is_no_request_of_this_node(
    step: Step,
) -> None:
    world = world_of("Metal3", step)
    names_the_other(world)
    (host,) = [o for o in world.held("baremetalhosts") if o["metadata"]["name"] == "host-n1"]
    wanted = ADAPTERS["Metal3"].steps[step].patch or {}
    host["metadata"].setdefault("annotations", {}).update(wanted["metadata"]["annotations"])
    before = dict(host["metadata"]["annotations"])
    world.run(300, step=20)
    assert "nobody is asked through another machine" in world.message(NODE)
    world.run(900, step=30)
    assert world.steps_of() == [(step, "Failed")]
    assert host["metadata"]["annotations"] == before


def test_a_reboot_meanwhile_makes_it_no_request_of_this_node_either() -> None:
    world = world_of(*METAL)
    names_the_other(world)
    (host,) = [o for o in world.held("baremetalhosts") if o["metadata"]["name"] == "host-n1"]
    wanted = ADAPTERS["Metal3"].steps[Step.POWER_CYCLE].patch or {}
    host["metadata"].setdefault("annotations", {}).update(wanted["metadata"]["annotations"])
    world.run(120, step=10)
    assert world.session(NODE).status.repair[0].target is None, "it may be another node's"
    world.reboot(NODE)
    world.run(3600, step=60)
    assert host["metadata"]["annotations"] == wanted["metadata"]["annotations"]
