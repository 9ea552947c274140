"""Who may start: budget, breaker and correlated causes, in virtual time."""

import pytest

from rules.api.timestamps import parse_time
from rules.fleet.common_cause import common_causes
from rules.fleet.turns import judge_fleet
from tests.support.scenario.fleets import fleet, fleet_labels, ours, phases, share
from tests.support.scenario.session_world import ROOMY, CrashError, World, policy_of


class TestBudget:
    @pytest.mark.parametrize(
        ("nodes", "percent", "at_most", "allowed"),
        [
            pytest.param(20, 10, 50, 2, id="percent"),
            pytest.param(19, 10, 50, 1, id="rounded-down"),
            pytest.param(9, 10, 50, 1, id="at-least-one"),
            pytest.param(40, 50, 3, 3, id="at-most"),
            pytest.param(30, 100, 0, 0, id="nothing"),
        ],
    )
    def test_how_many(self, nodes: int, percent: float, at_most: int, allowed: int) -> None:
        world = fleet(nodes, budget=share(percent, at_most))
        names = list(world.nodes)[: allowed + 3]
        for name in names:
            world.incident(name)
        world.run(5)
        assert len(ours(world)) == allowed
        waiting = [name for name in names if world.phase(name) == "Pending"]
        assert len(waiting) == 3
        assert {world.condition(name, "Blocked") for name in waiting} == {"Budget"}
        assert {world.condition(name, "Storm") for name in waiting} == {""}

    def test_nodes_lost_for_any_reason_count(self) -> None:
        world = fleet(20, budget=share(20))
        world.run(100, step=50)
        world.cordon("n1")
        world.set_ready("n2", "False")
        world.set_ready("n3", "Unknown")
        for name in ("n10", "n11", "n12"):
            world.incident(name)
        world.run(5)
        assert len(ours(world)) == 1

    def test_an_unavailable_node_costs_nothing(self) -> None:
        world = fleet(20, budget=share(5))
        world.cordon("n1")
        world.incident("n1")
        world.run(5)
        assert world.is_quarantined("n1")

    def test_young_nodes_that_were_never_ready_are_not_counted(self) -> None:
        world = fleet(20, budget=share(10))
        for index in range(10):
            name = f"young{index}"
            world.add_node(name)
            condition = world.nodes[name]["status"]["conditions"][0]
            condition["status"] = "False"
            condition["lastTransitionTime"] = world.nodes[name]["metadata"]["creationTimestamp"]
        for name in ("n0", "n1", "n2"):
            world.incident(name)
        world.run(5)
        assert len(ours(world)) == 2

    def test_each_value_of_a_per_key_has_its_own(self) -> None:
        world = World(policy_of(budget=share(20, per=["rack"])))
        for rack in ("a", "b"):
            for index in range(10):
                world.add_node(f"{rack}{index}", labels={"rack": rack})
        for name in ("a0", "a1", "a2", "b0"):
            world.incident(name)
        world.run(5)
        assert ours(world) == ["a0", "a1", "b0"]
        assert "rack=a" in world.message("a2")

    def test_a_request_counts_and_is_not_blocked(self) -> None:
        world = fleet(20, budget=share(5))
        world.open_by_operator("n1", "one")
        world.open_by_operator("n2", "two")
        world.run(5)
        assert ours(world) == ["n1", "n2"]
        world.incident("n3")
        world.run(5)
        assert world.condition("n3", "Blocked") == "Budget"

    def test_a_release_makes_room_for_the_next(self) -> None:
        world = fleet(20, budget=share(5))
        world.incident("n1")
        world.run(3)
        world.incident("n2")
        world.run(10)
        assert world.phase("n2") == "Pending"
        world.close_all("n1")
        world.run_until("n2", "Quarantined", limit=700, step=5)

    def test_a_taint_in_flight_is_counted(self) -> None:
        world = fleet(20, budget=share(5))
        world.replica.world.reserved.add("n7")
        world.incident("n1")
        world.run(3)
        assert world.phase("n1") == "Pending"

    def test_a_taint_without_its_record_keeps_its_place(self) -> None:
        world = fleet(20, budget={**ROOMY, "perReason": {"count": 1, "window": "24h"}})
        world.incident("n5", "RowRemap", severity="Degraded")
        world.crash_after = 2
        with pytest.raises(CrashError):
            world.run(3)
        assert (ours(world), world.phase("n5")) == (["n5"], ""), "nothing is on record"
        world.restart()
        world.incident("n2", "RowRemap", severity="Fatal")
        world.run(3)
        assert ours(world) == ["n5"]


class TestBreaker:
    def test_s07_a_storm_pauses_new_quarantines_and_is_assessed_again(self) -> None:
        budget = {
            "maxUnavailable": {"percent": 20, "atMost": 50},
            "maxNew": {"count": 3, "window": "10m"},
            "cooldown": "15m",
        }
        world = fleet(20, budget=budget)
        names = [f"n{index}" for index in range(12)]
        for name in names:
            world.incident(name, reason=f"Reason{name}")
            world.run(5)
        world.run(10)
        assert len(ours(world)) <= 4
        waiting = [name for name in names if world.phase(name) == "Pending"]
        assert len(waiting) >= 8
        assert {world.condition(name, "Storm") for name in waiting} == {"MaxNew"}
        (until,) = {world.session(name).status.until for name in waiting}
        assert (parse_time(until) or 0.0) > world.now
        repaired = ours(world)[0]
        world.close_all(repaired)
        world.run_until(repaired, "Released", limit=700, step=5)
        for name in waiting[2:]:
            world.close_all(name)
        world.run(1200, step=10)
        assert phases(world, waiting[2:]) == ["Cancelled"] * len(waiting[2:])
        assert all(world.is_quarantined(name) for name in waiting[:2])

    def test_a_restart_forgets_nothing(self) -> None:
        world = fleet(40, budget={**ROOMY, "maxNew": {"count": 2, "window": "10m"}})
        for index in range(6):
            world.incident(f"n{index}", reason=f"Reason{index}")
            world.run(1)
        world.run(5)
        before = judge_fleet(world.snapshot()).breaker
        world.restart()
        world.run(60)
        assert before.open
        assert judge_fleet(world.snapshot()).breaker == before
        assert ours(world) == ["n0", "n1"], "those from before it was a storm"

    def test_slowly_the_rate_is_kept_without_a_storm(self) -> None:
        world = fleet(40, budget={**ROOMY, "maxNew": {"count": 2, "window": "10m"}})
        for index in range(8):
            world.incident(f"n{index}", reason=f"Reason{index}")
            world.run(320, step=20)
        assert len(ours(world)) == 8
        assert not judge_fleet(world.snapshot()).breaker.open

    def test_a_slow_false_alarm_does_not_drain_a_fleet(self) -> None:
        world = fleet(100, budget={**ROOMY, "perReason": {"count": 5, "window": "24h"}})
        for index in range(8):
            world.incident(f"n{index}", reason="ThermalSlowdown")
            world.run(3600, step=300)
        assert len(ours(world)) == 5
        assert world.condition("n6", "Blocked") == "PerReason"
        assert "kubectl gpuward quarantine n6 --reason" in world.message("n6")

    def test_an_operator_confirms_one_more(self) -> None:
        world = fleet(100, budget={**ROOMY, "perReason": {"count": 1, "window": "24h"}})
        for index in range(3):
            world.incident(f"n{index}", reason="ThermalSlowdown")
            world.run(1200, step=60)
        assert ours(world) == ["n0"]
        session = world.quarantines[world.session("n2").name]
        session["spec"]["causes"].append({"source": "Human", "reason": "Confirmed", "by": "ada"})
        world.touch(session)
        world.run(5)
        assert ours(world) == ["n0", "n2"]

    def test_another_driver_has_its_own_count(self) -> None:
        world = fleet(100, budget={**ROOMY, "perReason": {"count": 1, "window": "24h"}})
        world.healths["n1"]["status"]["driverVersion"] = "570.1"
        for name in ("n0", "n1"):
            world.incident(name, reason="ThermalSlowdown")
            world.run(5)
        assert ours(world) == ["n0", "n1"]


class TestCorrelatedCause:
    def test_one_reason_on_several_nodes_that_share_something_is_one_finding(self) -> None:
        world = World(policy_of(budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}}))
        for index in range(10):
            world.add_node(f"a{index}", labels={"topology.kubernetes.io/rack": "r1"})
            world.add_node(f"b{index}", labels={"topology.kubernetes.io/rack": "r2"})
        for name in ("a1", "a2", "a3"):
            world.incident(name, reason="NVLinkDown")
            world.run(1)
        world.run(5)
        world.incident("a4", reason="NVLinkDown")
        world.incident("b1", reason="Other")
        world.run(5)
        assert ours(world) == ["a1", "a2"], "those from before it was several"
        for name in ("a3", "a4"):
            assert world.condition(name, "Storm") == "CorrelatedCause"
            assert "topology.kubernetes.io/rack=r1" in world.message(name)
        assert world.phase("b1") == "Pending", "the breaker is open for all"
        findings = judge_fleet(world.snapshot()).breaker.findings
        assert [(f.reason, f.shared, f.nodes) for f in findings] == [
            ("NVLinkDown", "topology.kubernetes.io/rack=r1", ("a1", "a2", "a3", "a4"))
        ]
        on_deployment = [
            event for event in world.events.values() if event["reason"] == "CorrelatedCause"
        ]
        assert len(on_deployment) == 1
        assert on_deployment[0]["involvedObject"]["kind"] == "Deployment"

    def test_the_cause_is_named_while_an_operator_confirms_its_worst_nodes(self) -> None:
        world = World(policy_of(budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}}))
        for index in range(10):
            world.add_node(f"n{index}", labels={"gpuward.io/driver": f"590.{index < 6}"})
        for index in range(6):
            world.incident(f"n{index}", reason="Xid119GSPTimeout")
            world.run(1)
        world.run(5)
        (before,) = judge_fleet(world.snapshot()).breaker.findings
        for session in world.quarantines.values():
            if session["spec"]["nodeName"] in {"n2", "n3", "n4"}:
                human = {
                    "source": "Human",
                    "reason": "Requested",
                    "severity": "Fatal",
                    "by": "ada",
                }
                session["spec"]["causes"].append(human)
        world.run(5)
        assessment = judge_fleet(world.snapshot())
        assert assessment.breaker.open
        assert [(f.shared, f.nodes) for f in assessment.breaker.findings] == [
            (before.shared, before.nodes)
        ]

    def test_the_driver_that_few_have_is_named_and_not_the_type_that_all_have(self) -> None:
        world = World(policy_of(budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}}))
        for index in range(30):
            new = index < 9
            world.add_node(
                f"n{index}",
                labels={
                    "node.kubernetes.io/instance-type": "p5.48xlarge",
                    "example.com/rack": f"r{index % 4}",
                    "gpuward.io/driver": "590.44.01" if new else "580.95.05",
                },
            )
        for index in range(6):
            world.incident(f"n{index}", reason="Xid119GSPTimeout")
            world.run(1)
        world.run(5)
        (finding,) = judge_fleet(world.snapshot()).breaker.findings
        assert (finding.shared, len(finding.nodes)) == ("gpuward.io/driver=590.44.01", 6)
        assert "9 of 30 do" in finding.message
        message = world.message("n5")
        assert "gpuward.io/driver=590.44.01" in message
        assert "New quarantines are paused until budget.cooldown is over" in message
        assert world.session("n5").status.until
        assert "unless a GPUWardPause covers them" in message

    def test_a_type_that_chance_explains_is_not_named_before_what_all_of_them_share(self) -> None:
        """Five of six are of the type that most have; all six report by one agent."""
        world = World(policy_of(budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}}))
        for index in range(30):
            kind = "p4" if index == 5 or index > 25 else "p5"
            labels = {"node.kubernetes.io/instance-type": kind, "example.com/row": "north"}
            world.add_node(f"n{index}", labels=labels)
        world.policy = policy_of(
            budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}, "per": ["example.com/row"]}
        )
        for index in range(6):
            world.incident(f"n{index}", reason="Xid119GSPTimeout")
            world.run(1)
        world.run(5)
        (finding,) = judge_fleet(world.snapshot()).breaker.findings
        assert (finding.shared, len(finding.nodes)) == ("example.com/row=north", 6)

    def test_a_rack_that_is_only_reported_has_a_common_cause_and_nobody_is_taken(self) -> None:
        world = World(policy_of(budget=ROOMY))
        for index in range(48):
            rack = f"r{index // 8}"
            world.add_node(f"n{index}", labels={"example.com/rack": rack})
        for index in range(8):
            world.incident(f"n{index}", "ThermalSlowdown", severity="Degraded", level="Report")
        world.incident("n20", "ThermalSlowdown", severity="Degraded", level="Report")
        world.run(20)
        assert ours(world) == []
        snapshot = world.snapshot()
        assert judge_fleet(snapshot).breaker.findings == ()
        (cause,) = common_causes(fleet_labels(snapshot.nodes), snapshot.healths)
        assert (cause.shared, len(cause.nodes), cause.group, cause.elsewhere) == (
            "example.com/rack=r0", 8, 8, 1,
        )  # fmt: skip

    def test_the_same_reason_spread_over_hours_is_none(self) -> None:
        world = fleet(30, budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}})
        for index in range(6):
            world.incident(f"n{index}", reason="NVLinkDown")
            world.run(1000, step=100)
        assert judge_fleet(world.snapshot()).breaker.findings == ()
        assert len(ours(world)) == 6

    def test_different_reasons_are_none(self) -> None:
        world = fleet(30, budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}})
        for index in range(3):
            world.incident(f"n{index}", reason=f"Reason{index}")
        world.run(5)
        assert judge_fleet(world.snapshot()).breaker.findings == ()
