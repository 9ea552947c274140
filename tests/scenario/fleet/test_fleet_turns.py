"""Turns to quarantine: refusals, the own node, order, gangs and the limit of drains."""

import pytest

from remediator.view import session_view
from rules.api import writes as d
from tests.support.scenario.fleets import fleet, gang_pod, ours, phases, share
from tests.support.scenario.session_world import policy_of


class TestRefusals:
    @pytest.mark.parametrize(
        ("labels", "reason"),
        [
            ({"node-role.kubernetes.io/control-plane": ""}, "ControlPlane"),
            ({"karpenter.sh/nodepool": "lonely"}, "OnlyNodeOfPool"),
        ],
    )
    def test_s47_refused_unless_an_operator_requests_it(
        self, labels: dict[str, str], reason: str
    ) -> None:
        world = fleet(5, labels={"karpenter.sh/nodepool": "main"})
        world.add_node("special", labels={"karpenter.sh/nodepool": "main", **labels})
        world.incident("special")
        world.run(10)
        assert world.condition("special", "Blocked") == reason
        assert not world.is_quarantined("special")
        world.now += 1
        world.open_by_operator("special")
        world.run(10)
        assert world.is_quarantined("special")

    @pytest.mark.parametrize(
        ("others", "labels", "clause"),
        [
            pytest.param(0, {}, "the only node that the policy selects", id="single node"),
            pytest.param(
                0, {"karpenter.sh/nodepool": "a"}, "the only node that the policy", id="labelled"
            ),
            pytest.param(
                4,
                {"karpenter.sh/nodepool": "lonely"},
                "the only node of its pool (karpenter.sh/nodepool=lonely)",
                id="lone pool",
            ),
            pytest.param(4, {}, "without a pool label", id="unlabelled among others"),
        ],
    )
    def test_s47_the_only_node_of_a_pool_is_reported(
        self, others: int, labels: dict[str, str], clause: str
    ) -> None:
        world = fleet(others, labels={"karpenter.sh/nodepool": "main"})
        world.add_node("special", labels=labels)
        world.incident("special")
        world.run(30)
        assert world.condition("special", "Blocked") == "OnlyNodeOfPool"
        assert clause in world.message("special")
        assert "kubectl gpuward quarantine special --reason" in world.message("special")
        assert not world.is_quarantined("special")

    def test_two_nodes_without_any_label_are_company(self) -> None:
        world = fleet(2)
        world.incident("n0")
        world.run(10)
        assert world.is_quarantined("n0")

    def test_a_node_the_policy_does_not_select_is_not_touched(self) -> None:
        world = fleet(5, nodeSelector="pool=gpu")
        world.incident("n1")
        world.run(10)
        assert world.sessions("n1") == []


class TestOwnNode:
    def test_s47_it_is_drained_last_after_handing_over(self) -> None:
        world = fleet(5)
        world.own_node = "n0"
        world.add_pod("slow", "n1", grace=20)
        world.add_pod("mine", "n0")
        for name in ("n0", "n1"):
            world.incident(name)
        world.run(10)
        assert world.is_quarantined("n0")
        assert world.condition("n0", "Blocked") == "OwnNodeLast"
        world.run(40)
        assert world.phase("n1") == "Quarantined"
        assert world.phase("n0") == "Marked"
        assert world.condition("n0", "Blocked") == "OwnNodeHandOver"
        assert world.hand_overs
        world.own_node = "n3"
        world.run_until("n0", "Quarantined", limit=30)

    def test_without_another_replica_it_is_drained_in_the_end(self) -> None:
        world = fleet(5)
        world.own_node, world.no_other_replica = "n0", True
        world.add_pod("mine", "n0")
        world.fail_until("n0", "Quarantined")


class TestOrder:
    def test_fatal_before_degraded_then_oldest(self) -> None:
        world = fleet(20, budget=share(0, at_most=0))
        for index, severity in enumerate(["Degraded", "Fatal", "Degraded", "Fatal"]):
            world.incident(f"n{index}", severity=severity)
            world.run(2)
        order: list[str] = []
        for room in (1, 2, 3, 4):
            world.policy = policy_of(budget=share(100, at_most=room))
            world.run(2)
            order.append((set(ours(world)) - set(order)).pop())
        assert order == ["n1", "n3", "n0", "n2"]

    def test_gang_mates_go_together(self) -> None:
        world = fleet(20, budget=share(0, at_most=0))
        for name in ("n2", "n4"):
            gang_pod(world, name)
        for index in range(5):
            world.incident(f"n{index}")
            world.run(2)
        order: list[str] = []
        for room in (1, 2, 3, 4, 5):
            world.policy = policy_of(budget=share(100, at_most=room))
            world.run(2)
            order.append((set(ours(world)) - set(order)).pop())
        assert order == ["n0", "n1", "n2", "n4", "n3"]


class TestGangs:
    def test_bad_nodes_of_one_gang_are_drained_in_one_window(self) -> None:
        world = fleet(10)
        for name in ("n0", "n1", "n2"):
            gang_pod(world, name)
        world.incident("n0")
        world.run(10)
        assert world.phase("n0") == "Marked"
        assert world.condition("n0", "Blocked") == "GangWindow"
        assert "JobSet team-a/llm" in world.message("n0")
        (event,) = [e for e in world.events.values() if e["reason"] == "QuarantineMarked"]
        assert "as soon as gangs, limits and budgets allow" in event["message"]
        world.incident("n1")
        world.run(60)
        times = {write.node: at for at, write, _, _ in world.sent if isinstance(write, d.EvictPod)}
        assert set(times) == {"n0", "n1"}
        assert abs(times["n0"] - times["n1"]) <= 2
        assert times["n0"] - world.sent[0][0] >= 30

    def test_a_drain_waits_a_little_to_learn_its_gangs(self) -> None:
        world = fleet(10)
        world.unread.add("n0")
        gang_pod(world, "n0")
        world.incident("n0")
        world.run(5)
        assert world.phase("n0") == "Marked"
        before = len(world.status_changes)
        world.unread.clear()
        world.run(20)
        assert world.condition("n0", "Blocked") == "GangWindow"
        assert len(world.status_changes) == before + 1

    def test_gangs_that_cannot_be_read_do_not_hold_it_for_ever(self) -> None:
        world = fleet(10)
        world.unread.add("n0")
        gang_pod(world, "n0")
        world.fail_until("n0", "Draining")
        world.unread.clear()
        world.run_until("n0", "Quarantined", limit=30)

    def test_without_mates_it_goes_after_the_window(self) -> None:
        world = fleet(10)
        gang_pod(world, "n0")
        world.fail_until("n0", "Quarantined")

    def test_a_late_mate_goes_at_once(self) -> None:
        world = fleet(10)
        world.add_pdb("keep", app="llm", minAvailable=2)
        for name in ("n0", "n1"):
            gang_pod(world, name)
        world.incident("n0")
        world.run(40)
        assert world.phase("n0") == "Draining"
        world.incident("n1")
        world.run(2)
        assert world.phase("n1") == "Draining"

    @pytest.mark.parametrize(("severity", "started"), [("Degraded", 0), ("Fatal", 1)])
    def test_a_gang_that_does_not_fit(self, severity: str, started: int) -> None:
        world = fleet(10, budget=share(10))
        for name in ("n0", "n1", "n2"):
            gang_pod(world, name)
        world.pause()
        for name in ("n0", "n1", "n2"):
            world.incident(name, severity=severity)
        world.run(5)
        world.pauses.clear()
        world.run(5)
        assert len(ours(world)) == started
        if severity == "Degraded":
            assert world.condition("n0", "Blocked") == "GangBudget"

    def test_kueue_topology_gangs_are_healed_one_node_at_a_time(self) -> None:
        topology = {"kueue.x-k8s.io/podset-required-topology": "rack"}
        world = fleet(10)
        for name in ("n0", "n1"):
            gang_pod(world, name, **topology)
            world.incident(name)
        world.run(2)
        draining = [n for n in ("n0", "n1") if world.phase(n) == "Draining"]
        assert len(draining) == 1
        other = "n1" if draining == ["n0"] else "n0"
        assert world.condition(other, "Blocked") == "KueueReplacing"
        world.kueue_unhealthy = {"JobSet team-a/llm": (draining[0],)}
        world.run(60)
        assert world.phase(draining[0]) == "Quarantined"
        assert world.phase(other) == "Marked"
        world.kueue_unhealthy = {}
        world.run_until(other, "Quarantined", limit=30)


def test_s09_silent_agents_cost_no_node() -> None:
    world = fleet(40)
    for index in range(30):
        world.silence(f"n{index}")
    world.run(3600, step=60)
    assert ours(world) == []
    assert not [write for _, write, _, _ in world.sent if write.disruptive]


def test_nodes_draining_at_once_are_limited() -> None:
    world = fleet(10, limits={"nodesDraining": 2})
    for index in range(4):
        world.add_pod(f"p{index}", f"n{index}", grace=60)
        world.incident(f"n{index}")
    world.run(5)
    assert len(ours(world)) == 4
    states = sorted(world.phase(f"n{index}") for index in range(4))
    assert states == ["Draining", "Draining", "Marked", "Marked"]
    waiting = next(f"n{i}" for i in range(4) if world.phase(f"n{i}") == "Marked")
    (blocker,) = session_view.blockers(world.session(waiting))
    assert blocker.reason == "NodesDraining"
    message = world.session(waiting).status.message
    assert "2 nodes are draining (limits.nodesDraining)" in message
    assert "raise limits.nodesDraining" in blocker.remedy
    world.replica.refresh()
    labels = {"node": waiting, "condition": "Blocked", "reason": "NodesDraining"}
    gauges = world.replica.metrics.registry
    assert gauges.get_sample_value("gpuward_open_session_condition", labels) == 1
    world.run(150)
    assert {world.phase(f"n{index}") for index in range(4)} == {"Quarantined"}


def test_by_default_all_quarantined_nodes_drain_at_once() -> None:
    world = fleet(40)
    nodes = [f"n{index}" for index in range(25)]
    for node in nodes:
        world.add_pod(f"p-{node}", node, grace=60)
        world.incident(node)
    world.run(5)
    assert set(phases(world, nodes)) == {"Draining"}


def test_a_level_that_is_raised_waits_for_a_turn_to_drain() -> None:
    """What was judged while its pods could stay is no leave to evict them."""
    world = fleet(4, limits={"nodesDraining": 1})
    for name in ("n0", "n1"):
        world.add_pod(f"p-{name}", name, grace=3600)
    world.incident("n1", "RowRemapFailure", severity="Degraded", level="Cordon")
    world.incident("n0")
    world.run(30)
    assert phases(world, ["n0", "n1"]) == ["Draining", "Marked"]
    world.incident("n1")
    world.run(60)
    assert phases(world, ["n0", "n1"]) == ["Draining", "Marked"]
    assert world.condition("n1", "Blocked") == "NodesDraining"
    assert {write.node for write in world.writes(d.EvictPod)} == {"n0"}
