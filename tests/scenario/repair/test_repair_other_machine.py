"""Which machine a node is, the provider says: what a kubelet writes has nobody harmed."""

from __future__ import annotations

from typing import Any

import pytest

from rules.api import writes as d
from rules.repair.objects import Sight
from tests.support.scenario.provider_world import ProviderWorld
from tests.support.scenario.repair_world import NODE

OTHER = "n1"
ROWS = [("ClusterAPI", "machines"), ("Karpenter", "nodeclaims")]


def world_of(name: str) -> ProviderWorld:
    world = ProviderWorld(name, "ReplaceNode")
    world.fault()
    return world


def nothing_happens(world: ProviderWorld, words: str) -> None:
    world.run(300, step=20)
    assert words in world.message(NODE)
    world.run(900, step=30)
    assert world.steps_of() == [(world.step, "Failed")]
    assert words in world.session(NODE).status.repair[0].proof
    assert world.asked_through() == []
    assert world.requests() == []


def names(world: ProviderWorld, resource: str, of: str, node: Any) -> None:
    """The provider's object of a node names this one."""
    (one,) = [o for o in world.held(resource) if o["metadata"]["name"].endswith(of)]
    if world.adapter == "Karpenter":
        one["status"]["nodeName"] = node
    else:
        one["status"]["nodeRef"] = {"name": node}
    world.touch(one)


def test_a_claim_is_found_whatever_the_node_says_of_itself() -> None:
    world = world_of("Karpenter")
    world.nodes[NODE]["spec"]["providerID"] = "aws:///eu/i-1"
    world.run(300, step=20)
    (write,) = world.asked_through()
    assert write.address.name.endswith(NODE)


@pytest.mark.parametrize("says", [f"m-{OTHER}", ""])
def test_the_machine_of_another_cluster_with_such_a_node_is_left_alone(says: str) -> None:
    """A management cluster keeps the Machines of many clusters, and node names repeat."""
    world = world_of("ClusterAPI")
    world.annotate(NODE, "cluster.x-k8s.io/machine", says)
    nothing_happens(world, "cluster.x-k8s.io/machine does not name machines.cluster.x-k8s.io")


@pytest.mark.parametrize(("name", "resource"), ROWS)
@pytest.mark.parametrize("named", [OTHER, None, "", 5, [NODE], {"name": NODE}])
def test_a_node_that_no_object_names_has_nobody_asked(
    name: str, resource: str, named: Any
) -> None:
    world = world_of(name)
    names(world, resource, NODE, named)
    nothing_happens(world, f"none of the {resource} belongs to the node")


@pytest.mark.parametrize(("name", "resource"), ROWS)
def test_of_two_objects_that_name_one_node_nobody_is_asked(name: str, resource: str) -> None:
    world = world_of(name)
    names(world, resource, OTHER, NODE)
    nothing_happens(world, f"2 of the {resource} belong to the node")


@pytest.mark.parametrize(("name", "resource"), ROWS)
@pytest.mark.parametrize(
    ("sight", "words"),
    [(Sight.FORBIDDEN, "may not read {}"), (Sight.UNREAD, "{} cannot be read")],
)
def test_a_list_that_cannot_be_read_says_nothing(
    name: str, resource: str, sight: Sight, words: str
) -> None:
    world = world_of(name)
    world.unreadable[resource] = sight
    full = {"machines": "machines.cluster.x-k8s.io", "nodeclaims": "nodeclaims.karpenter.sh"}
    nothing_happens(world, words.format(full[resource]))


def test_an_object_that_names_another_node_before_the_call_is_left_alone() -> None:
    world = world_of("ClusterAPI")

    def moves(write: d.Write) -> None:
        if isinstance(write, d.WriteSessionStatus) and write.status.repair:
            names(world, "machines", NODE, OTHER)

    world.meddler = moves
    world.run(1500, step=30)
    world.meddler = None
    assert world.asked_through() == []
    assert "lacks field status.nodeRef.name=n0" in world.session(NODE).status.repair[0].proof
