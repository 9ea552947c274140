"""One bad NVLink disturbs a domain: which node is quarantined, and when an operator is called."""

from collections.abc import Iterable

import pytest

from rules.fleet.turns import judge_fleet
from tests.support.scenario.fleets import ours, share
from tests.support.scenario.session_world import ROOMY, World, kill_points, policy_of

DOMAIN = "d1"
OWN, REMOTE = "Xid149NVLinkNetIRError", "Xid145NVLinkRLWError"
LABEL = "gpuward.io/nvlink-domain"


def rack(count: int = 16, elsewhere: int = 84) -> World:
    """A domain of 16 nodes with four GPUs each, in a fleet of a hundred."""
    world = World(policy_of(budget=share(10)))
    for name in world.add_nodes(count + elsewhere)[:count]:
        world.nodes[name]["metadata"]["labels"][LABEL] = DOMAIN
    return world


def errors(
    world: World, nodes: Iterable[str], reason: str = REMOTE, *, level: str = "Cordon"
) -> None:
    for name in nodes:
        world.incident(name, reason, severity="Degraded", level=level)


def witnesses(world: World) -> list[str]:
    return [f"n{at}" for at in range(16) if at != 7]


def public_case(world: World) -> None:
    """64 GPUs of 16 nodes: 63 have Xid 145, one has Xid 149."""
    errors(world, witnesses(world))
    errors(world, ["n7"], OWN)
    errors(world, ["n7"])


def test_the_node_with_the_bad_link_is_quarantined_and_its_fifteen_witnesses_stay() -> None:
    world = rack()
    public_case(world)
    world.run(3)
    assert ours(world) == ["n7"]
    world.run(900, step=5)
    assert ours(world) == ["n7"]
    assert {world.condition(name, "Blocked") for name in witnesses(world)} == {"NVLinkWitness"}
    assert not any(world.condition(name, "NeedsHuman") for name in witnesses(world))
    assert not judge_fleet(world.snapshot()).breaker.open


def test_the_report_of_the_bad_link_may_come_after_those_of_the_witnesses() -> None:
    world = rack()
    errors(world, witnesses(world))
    world.run(8)
    assert ours(world) == []
    errors(world, ["n7"], OWN)
    world.run(3)
    assert ours(world) == ["n7"]


def test_a_bad_link_that_is_only_reported_still_explains_its_witnesses() -> None:
    world = rack()
    errors(world, ["n7"], OWN, level="Report")
    errors(world, witnesses(world))
    world.run(60)
    assert ours(world) == []
    assert world.condition("n0", "Blocked") == "NVLinkWitness"


def test_a_history_of_link_errors_accuses_a_node_where_no_link_is_bad() -> None:
    world = rack()
    errors(world, ["n7"], "NVLinkErrorRate", level="Report")
    world.sleep(5 * 86_400)
    errors(world, [*witnesses(world), "n7"])
    world.run(30)
    assert world.condition("n0", "Blocked") == "NVLinkWitness"
    assert "n7" in world.message("n0")


@pytest.mark.parametrize("bad_links", [0, 2])
def test_without_one_node_at_fault_operators_are_called_with_the_name_of_the_domain(
    bad_links: int,
) -> None:
    world = rack()
    errors(world, [f"n{at}" for at in range(16)])
    errors(world, [f"n{at}" for at in range(bad_links)], OWN)
    world.run(60)
    assert ours(world) == []
    assert {world.condition(f"n{at}", "NeedsHuman") for at in range(16)} == {"NVLinkDomain"}
    (finding,) = judge_fleet(world.snapshot()).breaker.findings
    assert finding.shared == f"{LABEL}={DOMAIN}"
    assert finding.nodes == tuple(sorted(f"n{at}" for at in range(16)))
    assert not judge_fleet(world.snapshot()).breaker.open


def test_errors_of_remote_links_on_one_node_alone_are_its_own() -> None:
    world = rack()
    errors(world, ["n3"])
    world.run(30)
    assert ours(world) == ["n3"]


def test_errors_in_two_domains_do_not_explain_each_other() -> None:
    world = rack()
    for at in range(8, 16):
        world.nodes[f"n{at}"]["metadata"]["labels"][LABEL] = "d2"
    errors(world, ["n1"], OWN)
    errors(world, ["n2", "n9"])
    world.run(30)
    assert ours(world) == ["n1", "n9"]


def test_a_witness_with_a_fault_of_its_own_is_quarantined_for_that() -> None:
    world = rack()
    public_case(world)
    world.incident("n2")
    world.run(5)
    assert ours(world) == ["n2", "n7"]


def test_an_operator_may_quarantine_a_witness() -> None:
    world = rack()
    public_case(world)
    world.run(3)
    found = world.quarantines[world.session("n2").name]
    found["spec"]["causes"].append({"source": "Human", "reason": "Check", "by": "ann"})
    world.touch(found)
    world.run(5)
    assert ours(world) == ["n2", "n7"]


def test_errors_that_end_cancel_the_witnesses_and_a_later_fault_counts_from_the_start() -> None:
    world = rack()
    public_case(world)
    world.run(20)
    for name in witnesses(world):
        world.close_all(name)
    world.run(20)
    assert {world.phase(name) for name in witnesses(world)} == {"Cancelled"}
    world.incident("n50")
    world.run(5)
    assert ours(world) == ["n50", "n7"], "the witnesses have opened no circuit breaker"


def test_a_leader_that_dies_at_any_write_leaves_the_same_node_accused() -> None:
    world = rack(count=4, elsewhere=26)
    errors(world, ["n0", "n1", "n2"])
    errors(world, ["n3"], OWN)
    for write, left in kill_points(world, lambda: world.run(30)):
        left.restart()
        left.run(60)
        assert ours(left) == ["n3"], write


def rooms(world: World) -> dict[str, int]:
    return {line.value: line.limit for line in judge_fleet(world.snapshot()).lines}


def test_a_domain_keeps_its_healthy_nodes_although_the_fleet_has_room() -> None:
    keeps = {**ROOMY, "perDomain": {"minHealthy": 16}}
    world = World(policy_of(budget=keeps))
    for name in world.add_nodes(30)[:18]:
        world.nodes[name]["metadata"]["labels"][LABEL] = DOMAIN
    assert rooms(world)[DOMAIN] == 2
    for name in ("n1", "n2", "n3", "n20"):
        world.incident(name)
    world.run(60)
    assert ours(world) == ["n1", "n2", "n20"]
    assert world.condition("n3", "Blocked") == "Budget"
    assert "18 nodes with gpuward.io/nvlink-domain=d1" in world.message("n3")
    world.close_all("n1")
    world.run_until("n1", "Released", limit=1200, step=5)
    world.run(60)
    assert "n3" in ours(world), "the domain has room again"


def test_a_domain_that_has_too_few_nodes_already_gives_none() -> None:
    world = World(policy_of(budget={**ROOMY, "perDomain": {"minHealthy": 16}}))
    for name in world.add_nodes(20)[:15]:
        world.nodes[name]["metadata"]["labels"][LABEL] = DOMAIN
    world.incident("n1")
    world.run(60)
    assert ours(world) == []
    assert rooms(world)[DOMAIN] == 0
