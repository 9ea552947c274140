"""An operator quarantines an NVLink domain: all nodes are tainted before the first eviction."""

from collections.abc import Callable
from typing import Any

import pytest

from rules.api import writes as d
from rules.api.quarantine import Phase
from rules.api.repair_writes import SetRepairCondition
from rules.api.timestamps import format_time
from rules.policy.policy import Policy
from rules.policy.pools import load_policies
from rules.session.causes import requested_domain
from tests.support.scenario.fleets import fleet, gang_pod, ours, share
from tests.support.scenario.repair_world import RepairWorld
from tests.support.scenario.session_world import ROOMY, World, kill_points

DOMAIN, LABEL = "d1", "gpuward.io/nvlink-domain"
RACK = ["n0", "n1", "n2", "n3"]
TRIAL: dict[str, Any] = {"metadata": {"name": "trial"}, "nodeSelector": "team=trial"}


def rack(world: World | None = None) -> World:
    """Four nodes of one domain, each with a pod; `n4` and `n5` are in no domain."""
    world = world or fleet(6)
    for name in RACK:
        world.nodes[name]["metadata"]["labels"][LABEL] = DOMAIN
        world.add_pod(f"job-{name}", name)
    return world


def request(world: World, *nodes: str) -> None:
    """What `kubectl gpuward quarantine --nvlink-domain d1` writes."""
    cause = {"source": "Human", "reason": "Requested", "message": "bad switch", "by": "ann"}
    cause |= {"severity": "Degraded", "at": format_time(world.now), "nvlinkDomain": DOMAIN}
    for name in nodes or RACK:
        if world.sessions(name) and not Phase(world.phase(name)).ended:
            session = world.quarantines[world.session(name).name]
            session["spec"]["causes"].append(cause)
            world.touch(session)
        else:
            at = f"{world.now:.0f}"
            world.open_by_operator(name, f"{name}-by-hand-{at}", causes=[cause])


def label(world: World, node: str, key: str, value: str | None) -> None:
    labels = world.nodes[node]["metadata"]["labels"]
    labels.pop(key, None)
    labels |= {key: value} if value is not None else {}
    world.touch(world.nodes[node])


def sent(world: World, kind: type) -> list[tuple[float, str]]:
    """Time and node of every write of the kind that was not refused."""
    return [(at, w.node) for at, w, _, code in world.sent if isinstance(w, kind) and code < 300]


def is_drained_after_the_last_taint(world: World) -> bool:
    assert {world.phase(name) for name in RACK} == {"Quarantined"}
    assert {node for _, node in sent(world, d.EvictPod)} == set(RACK)
    last = max(at for at, _ in sent(world, d.TaintAndCordon))
    return min(at for at, _ in sent(world, d.EvictPod)) >= last


def test_all_nodes_are_tainted_before_the_first_eviction() -> None:
    world = rack()
    request(world)
    world.run(60)
    assert is_drained_after_the_last_taint(world)
    assert ours(world) == RACK


def pooled() -> World:
    policy = load_policies([{"mode": "Enforce", "budget": ROOMY}, {**TRIAL, "mode": "Shadow"}])
    assert isinstance(policy, Policy), policy
    world = World(policy)
    world.add_nodes(6)
    return world


def refused(world: World) -> None:
    world.refusing[d.TaintAndCordon] = (403, 'admission webhook "keep" denied the request: no')
    world.refusing_on = {"n3"}


def returned_to_enforce(world: World) -> None:
    """A session in Shadow ends with the move, so the command is repeated."""
    label(world, "n3", "team", None)
    world.run(5)
    assert world.phase("n3") == "Cancelled"
    request(world, "n3")


BLOCKERS: dict[str, tuple[Callable[[World], object], Callable[[World], object]]] = {
    "Shadow pool": (
        lambda world: label(world, "n3", "team", "trial"),
        returned_to_enforce,
    ),
    "taint refused": (refused, lambda world: world.refusing.clear()),
    "opted out": (
        lambda world: label(world, "n3", "gpuward.io/opt-out", "true"),
        lambda world: label(world, "n3", "gpuward.io/opt-out", None),
    ),
    "paused": (
        lambda world: world.pause(nodes=["n3"]),
        lambda world: world.pauses.clear(),
    ),
}


@pytest.mark.parametrize("blocker", BLOCKERS)
def test_one_node_that_cannot_be_tainted_keeps_the_domain_from_its_drain(blocker: str) -> None:
    world = rack(pooled())
    appears, ends = BLOCKERS[blocker]
    appears(world)
    request(world)
    world.run(30)
    assert world.condition("n0", "NeedsHuman") == "", "the last taints may take a moment"
    world.run(120)
    assert ours(world) == ["n0", "n1", "n2"]
    assert [at for at, w, _, _ in world.sent if isinstance(w, d.EvictPod) and not w.dry_run] == []
    for name in ours(world):
        assert world.condition(name, "NeedsHuman") == "NVLinkDomainIncomplete"
        assert "NVLink domain d1" in world.message(name)
        assert "3 of 4 nodes quarantined, not yet: n3" in world.message(name)
    ends(world)
    world.run(300)
    assert {world.phase(name) for name in RACK} == {"Quarantined"}
    assert world.condition("n0", "NeedsHuman") == ""


def test_a_command_that_stopped_half_way_drains_nothing_until_it_is_repeated() -> None:
    world = rack()
    request(world, "n0", "n1")
    world.run(300)
    assert ours(world) == ["n0", "n1"]
    assert sent(world, d.EvictPod) == []
    assert "not yet: n2, n3" in world.message("n1")
    request(world, "n2", "n3")
    world.run(60)
    assert is_drained_after_the_last_taint(world)


def test_a_node_that_another_session_quarantined_counts_once_the_request_joins_it() -> None:
    world = rack()
    world.fail_until("n3", "Quarantined")
    request(world, "n0", "n1", "n2")
    world.run(30)
    assert "not yet: n3" in world.message("n0")
    request(world, "n3")
    world.run(60)
    assert {world.phase(name) for name in RACK} == {"Quarantined"}


def test_a_request_of_its_own_merges_into_the_session_of_a_fault() -> None:
    world = rack()
    request(world, "n0", "n1", "n2")
    world.incident("n3")
    world.run(2)
    cause = {"source": "Human", "reason": "Requested", "by": "ann", "nvlinkDomain": DOMAIN}
    world.open_by_operator("n3", "n3-by-hand", causes=[cause])
    world.run(60)
    assert {world.phase(name) for name in RACK[:3]} == {"Quarantined"}
    assert [s.status.phase for s in world.sessions("n3")] == ["Quarantined", "Cancelled"]


def test_witnesses_of_a_bad_switch_become_the_session_of_the_domain() -> None:
    world = rack()
    for name in RACK:
        world.incident(name, "Xid145NVLinkRLWError", severity="Degraded", level="Cordon")
    world.run(30)
    assert {world.condition(name, "Blocked") for name in RACK} == {"NVLinkDomain"}
    for name in RACK:
        world.quarantines[world.session(name).name]["spec"]["level"] = "Drain"
    request(world)
    world.run(60)
    assert is_drained_after_the_last_taint(world)


@pytest.mark.parametrize("now", ["d2", None])
def test_a_node_outside_the_domain_of_its_request_is_reported_and_not_drained(
    now: str | None,
) -> None:
    world = rack()
    world.add_pod("job-n5", "n5")
    label(world, "n5", LABEL, now)
    request(world, *RACK, "n5")
    world.run(120)
    assert is_drained_after_the_last_taint(world)
    assert world.phase("n5") == "Marked"
    assert "n5" not in {node for _, node in sent(world, d.EvictPod)}
    assert world.condition("n5", "NeedsHuman") == "NVLinkDomainIncomplete"
    assert f"it is in {now} now" in world.message("n5") or not now
    label(world, "n5", LABEL, DOMAIN)
    world.run(60)
    assert world.phase("n5") == "Quarantined"


def test_only_a_request_of_an_operator_names_a_domain() -> None:
    world = rack()
    world.incident("n0")
    world.run(5)
    session = world.quarantines[world.session("n0").name]
    session["spec"]["causes"][0]["nvlinkDomain"] = DOMAIN
    world.touch(session)
    world.run(60)
    assert world.phase("n0") == "Quarantined"
    assert requested_domain(world.session("n0")) == ""


def test_the_newest_request_names_the_domain() -> None:
    world = rack()
    asked = [{"source": "Human", "by": "ann", "nvlinkDomain": domain} for domain in ("d2", "d1")]
    world.open_by_operator("n0", causes=[*asked, {"source": "Human", "by": "bob"}])
    assert requested_domain(world.session("n0")) == "d1"


def test_the_budgets_of_the_fleet_and_of_the_domain_do_not_keep_its_nodes_apart() -> None:
    budget = {**share(1, 1), "perDomain": {"minHealthy": 3}, "per": [LABEL]}
    world = rack(fleet(6, budget=budget, repair={"per": [LABEL]}))
    request(world)
    world.run(60)
    assert is_drained_after_the_last_taint(world)
    world.incident("n5")
    world.run(60)
    assert world.condition("n5", "Blocked") == "Budget", "automatic quarantines wait"


def test_its_gangs_are_drained_together() -> None:
    world = rack()
    topology = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    for name in RACK:
        gang_pod(world, name, **topology)
    request(world)
    world.run(90)
    began = {at for at, _ in sent(world, d.EvictPod)}
    assert max(began) - min(began) < 10
    assert {world.phase(name) for name in RACK} == {"Quarantined"}


def test_a_release_returns_every_node() -> None:
    world = rack()
    request(world)
    world.run(60)
    for name in RACK:
        session = world.quarantines[world.session(name).name]
        session["spec"]["release"] = {"by": "ann", "reason": "switch replaced"}
        world.touch(session)
    world.run(60)
    assert {world.phase(name) for name in RACK} == {"Released"}
    assert ours(world) == []


def test_a_drain_that_runs_goes_on_when_one_node_is_returned() -> None:
    world = rack()
    world.add_pdb("keep", app="job-n0", minAvailable=1)
    request(world)
    world.run(60)
    label(world, "n3", LABEL, None)
    world.cordon("n3", on=False)
    world.run(60)
    assert world.phase("n3") == "Cancelled"
    assert {world.phase(name) for name in RACK[:3]} == {"Quarantined"}


def test_a_leader_that_dies_at_any_write_drains_no_node_early() -> None:
    world = rack()
    request(world)
    for write, left in kill_points(world, lambda: world.run(40)):
        left.restart()
        left.run(90)
        assert is_drained_after_the_last_taint(left), write


def repaired(**policy: Any) -> RepairWorld:
    world = RepairWorld(nodes=6, **policy)
    rack(world)
    for name in RACK:
        world.incident(name)
    return world


def test_an_operator_approves_each_repair_of_the_domain_in_mode_auto() -> None:
    world = repaired()
    world.run(1)
    request(world)
    world.run(600, step=5)
    assert world.asked() == []
    assert {world.condition(name, "RepairProposed") for name in RACK} == {"RestartNode"}
    session = world.quarantines[world.session("n1").name]
    session["spec"]["repair"] = {"step": "RestartNode", "by": "ann", "at": format_time(world.now)}
    world.touch(session)
    world.run(60)
    assert [w.node for w in world.asked()] == ["n1"]


def test_a_step_that_was_planned_before_the_request_is_withdrawn() -> None:
    world = repaired()
    world.leader_dies_at(lambda write: isinstance(write, SetRepairCondition))
    request(world)
    world.restart()
    world.run(120)
    assert world.asked() == []


def test_no_step_repairs_a_node_whose_imex_domain_has_to_be_recovered() -> None:
    world = RepairWorld(nodes=6)
    world.incident("n0", "RecoveryActionIMEXDomain", severity="Degraded")
    (incident,) = world.healths["n0"]["status"]["incidents"]
    incident["recommendedAction"] = "RecoverIMEXDomain"
    world.run(300, step=5)
    assert world.phase("n0") == "Quarantined"
    assert world.asked() == []
    assert world.condition("n0", "NeedsHuman") == "NoStepLeft"
