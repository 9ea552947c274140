"""Repairs that people, another machine or a lost record interrupt."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from rules.api import writes as d
from rules.repair.objects import ReadState
from rules.session.status import condition
from tests.support.scenario.provider_world import ProviderWorld
from tests.support.scenario.repair_world import NODE, RepairWorld
from tests.support.scenario.session_world import kill_points

STEPS = {
    step: {"adapter": "NodeConditions", "timeout": "5m"} for step in ("RestartNode", "ReplaceNode")
}
KINDS = ("GPUNeedsReset", "GPUNeedsRestart", "GPUNeedsReplace")
LADDER_S = 840.0
"""Both steps are asked for and fail within it."""


def ladder() -> RepairWorld:
    world = RepairWorld(nodes=2, does="hangs", steps=STEPS)
    world.incident(NODE)
    return world


def _hold(world: RepairWorld) -> None:
    world.quarantines[world.session(NODE).name]["spec"]["hold"] = True
    world.touch(world.quarantines[world.session(NODE).name])


def _opt_out(world: RepairWorld) -> None:
    world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
    world.touch(world.nodes[NODE])


def _release(world: RepairWorld) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ada", "reason": "mine"}
    world.touch(session)


def _delete(world: RepairWorld) -> None:
    del world.quarantines[world.session(NODE).name]


FORBIDS: dict[str, Callable[[RepairWorld], None]] = {
    "pause": lambda world: world.pause(),
    "pause of this node": lambda world: world.pause(nodes=[NODE]),
    "hold": _hold,
    "hold on the node": lambda world: world.annotate(NODE, "gpuward.io/hold", "look at it"),
    "opt-out": _opt_out,
    "another owner": lambda world: world.taint(NODE, "ToBeDeletedByClusterAutoscaler"),
}
ENDS: dict[str, Callable[[RepairWorld], None]] = {
    "uncordoned": lambda world: world.cordon(NODE, on=False),
    "untainted": lambda world: world.untaint(NODE, "gpuward.io/quarantine"),
    "released": _release,
    "deleted": _delete,
}


@functools.cache
def points() -> tuple[RepairWorld, ...]:
    """The ladder as a leader leaves it that dies before a write, from the first that has a step
    on record.
    """
    world = ladder()
    died = kill_points(world, lambda: world.run(LADDER_S, step=30))
    assert [step for step, _ in world.steps_of()] == ["RestartNode", "ReplaceNode"]
    recorded = [
        isinstance(write, d.WriteSessionStatus) and bool(write.status.repair) for write, _ in died
    ]
    return tuple(left for _, left in died[recorded.index(True) :])


@pytest.mark.parametrize("act", FORBIDS)
def test_every_halt_stops_the_next_step_at_every_point(
    act: str,
) -> None:
    assert len(points()) > 6
    for point, left in enumerate(points()):
        world = left.fork()
        asked = len(world.asked())
        FORBIDS[act](world)
        world.run(LADDER_S, step=60)
        assert len(world.asked()) == asked, point
        assert world.is_quarantined(NODE), point


@pytest.mark.parametrize("act", ENDS)
def test_every_end_withdraws_the_requests_at_every_point(act: str) -> None:
    for point, left in enumerate(points()):
        world = left.fork()
        asked = len(world.asked())
        ENDS[act](world)
        if act == "deleted":
            world.close_all(NODE)
        world.run(120, step=30)
        assert len(world.asked()) == asked, point
        assert not any(world.asks(NODE, kind) for kind in KINDS), point
        assert not world.is_quarantined(NODE), point
        world.restart()
        world.run(LADDER_S, step=60)
        assert len(world.asked()) == asked, point


OTHER = "n1"
ROWS = [("ClusterAPI", "machines"), ("Karpenter", "nodeclaims")]


def world_of(name: str) -> ProviderWorld:
    world = ProviderWorld(name, "ReplaceNode")
    world.fault()
    return world


def nothing_happens(world: ProviderWorld, arguments: str) -> None:
    world.run(300, step=20)
    assert arguments in world.message(NODE)
    world.run(900, step=30)
    assert world.steps_of() == [(world.step, "Failed")]
    assert arguments in world.session(NODE).status.repair[0].proof
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


def test_a_nodeclaim_is_found_independent_of_node_fields() -> None:
    world = world_of("Karpenter")
    world.nodes[NODE]["spec"]["providerID"] = "aws:///eu/i-1"
    world.run(300, step=20)
    (write,) = world.asked_through()
    assert write.address.name.endswith(NODE)


@pytest.mark.parametrize("expected", [f"m-{OTHER}", ""])
def test_the_machine_of_another_cluster_with_such_a_node_is_left_alone(expected: str) -> None:
    """A management cluster keeps the Machines of many clusters, and node names repeat."""
    world = world_of("ClusterAPI")
    world.annotate(NODE, "cluster.x-k8s.io/machine", expected)
    nothing_happens(world, "cluster.x-k8s.io/machine does not name machines.cluster.x-k8s.io")


@pytest.mark.parametrize(("name", "resource"), ROWS)
@pytest.mark.parametrize("named", [OTHER, None, "", 5, [NODE], {"name": NODE}])
def test_a_node_without_an_object_gets_no_request(name: str, resource: str, named: Any) -> None:
    world = world_of(name)
    names(world, resource, NODE, named)
    nothing_happens(world, f"none of the {resource} belongs to the node")


@pytest.mark.parametrize(("name", "resource"), ROWS)
def test_two_objects_for_one_node_get_no_request(name: str, resource: str) -> None:
    world = world_of(name)
    names(world, resource, OTHER, NODE)
    nothing_happens(world, f"2 of the {resource} belong to the node")


@pytest.mark.parametrize(("name", "resource"), ROWS)
@pytest.mark.parametrize(
    ("state", "arguments"),
    [(ReadState.FORBIDDEN, "may not read {}"), (ReadState.UNREAD, "{} cannot be read")],
)
def test_an_unreadable_list_is_no_answer(
    name: str, resource: str, state: ReadState, arguments: str
) -> None:
    world = world_of(name)
    world.unreadable[resource] = state
    full = {"machines": "machines.cluster.x-k8s.io", "nodeclaims": "nodeclaims.karpenter.sh"}
    nothing_happens(world, arguments.format(full[resource]))


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


HOUR_S = 3600.0
AGAIN_S = 3600.0
"""After so long it is tried again."""


AT_THE_PLAN = (
    "repair",
    "repair.action",
    "repair.adapter",
    "repair.before",
    "repair.before.bootID",
    "repair.before.nodeUID",
    "repair.object",
    "repair.startedAt",
    "repair.state",
)
"""What an entry is written with before anybody is asked."""


def blocked(world: RepairWorld) -> str:
    """The message of condition Blocked; "" while it is not True."""
    text = condition(world.session(NODE).status, "Blocked")
    return text.message if text is not None and text.status == "True" else ""


def session_writes(world: RepairWorld) -> int:
    return len(world.writes(d.WriteSessionStatus))


@pytest.mark.parametrize("field", AT_THE_PLAN)
def test_no_step_is_requested_if_the_crd_drops_its_record(field: str) -> None:
    world = RepairWorld(does="hangs")
    world.drops = {field}
    world.incident(NODE)
    world.run(2.5 * HOUR_S, step=10)
    assert not world.asked()
    assert world.phase(NODE) == "Quarantined"
    assert f"drops status.{field}" in blocked(world)
    assert "kubectl apply -k daemonset/crds" in world.message(NODE)
    needs = condition(world.session(NODE).status, "NeedsHuman")
    assert needs is not None
    assert needs.status == "True"
    assert session_writes(world) <= 20 + 8 * 2, "one try in an hour"
    events = [e for e in world.writes(d.EmitEvent) if "drops" in e.message]
    assert len(events) <= 2 + 2 * 3, "reported once, and again by the session of each try"


def test_the_step_follows_once_the_definition_is_applied() -> None:
    world = RepairWorld()
    world.drops = {"repair.adapter", "repair.startedAt"}
    world.incident(NODE)
    world.run(HOUR_S, step=10)
    assert not world.asked()
    world.drops = set()
    world.run(AGAIN_S + 120, step=10)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert not blocked(world)
    world.run_until(NODE, "Released")


@pytest.mark.parametrize("field", ["repair", "repair.adapter", "repair.startedAt", "repair.state"])
def test_a_new_leader_makes_no_request_either(field: str) -> None:
    world = RepairWorld(does="hangs")
    world.drops = {field}
    world.incident(NODE)
    for _ in range(4):
        world.run(300, step=10)
        world.restart()
    world.run(300, step=10)
    assert not world.asked()
    assert f"drops status.{field}" in blocked(world)


def test_a_step_without_a_start_time_times_out_by_its_request() -> None:
    world = RepairWorld(does="hangs")
    world.incident(NODE)
    world.run_until(NODE, "Repairing")
    world.run(60)
    assert len(world.asked()) == 1
    world.drops = {"repair.startedAt"}
    stored: dict[str, Any] = world.quarantines[world.session(NODE).name]
    del stored["status"]["repair"][0]["startedAt"]
    world.touch(stored)
    before = session_writes(world)
    world.run(2 * HOUR_S, step=10)
    assert world.steps_of()[0] == ("RestartNode", "Failed")
    assert session_writes(world) - before <= 30
