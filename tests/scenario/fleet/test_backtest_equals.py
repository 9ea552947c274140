"""The past replayed under its own policy is the past, decision by decision (issue 14)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rules.api.timestamps import format_micro_time
from rules.backtest.anonymise import Anonymiser
from rules.backtest.archive import from_files, session_view, to_files
from rules.backtest.engine import replay
from rules.backtest.past import past_of
from rules.backtest.report import report_of, result_of, steps_of
from tests.support.scenario.backtest_world import exported
from tests.support.scenario.session_world import World, policy_of

TOLERANCE_S = 10.0


class Month(World):
    def close_now(self, node: str) -> None:
        """The agent says when it closed what it closed."""
        for known in self.healths[node]["status"]["incidents"]:
            if known["active"]:
                self.close(node, known["id"])


def decisions(sessions: Any) -> dict[tuple[str, str], dict[str, float]]:
    """Node and first reason of every session, with when it reached each phase."""
    return {
        (s.spec.node_name, f"{s.spec.causes[0].reason}@{s.metadata.created_at:.0f}"): {
            **steps_of(s), f"ended {s.status.phase}": 0.0,
        }
        for s in sessions
    }  # fmt: skip


def assert_same(world: World) -> None:
    archive = exported(world)
    past = past_of(archive)
    real = decisions(session_view(one) for one in archive.sessions)
    again = decisions(replay(past, world.policy).sessions.values())
    assert again.keys() == real.keys()
    for key, steps in real.items():
        assert again[key].keys() == steps.keys(), key
        for step, at in steps.items():
            assert again[key][step] == pytest.approx(at, abs=TOLERANCE_S), (key, step)


def a_month(world: Month) -> Month:
    """Faults that heal, that wait for a budget, that a person calls none, and a person's own."""
    world.add_nodes(8, rack="r1")
    for name in world.nodes:
        world.add_pod(f"web-{name}", name, grace=7)
    world.run(60)
    for name in ("n1", "n4", "n5", "n6"):
        world.incident(name)
        world.run(20)
    world.run(1200, step=10)
    world.close_now("n1")
    world.close_now("n4")
    world.run(900, step=10)
    world.incident("n7", "NVLinkDown", severity="Degraded", level="Cordon")
    world.run(200, step=10)
    world.cordon("n7", on=False)
    world.run(120, step=10)
    world.open_by_person("n0")
    world.run(600, step=10)
    for name in ("n5", "n6", "n7"):
        world.close_now(name)
    world.run(1800, step=10)
    return world


@pytest.fixture(scope="module")
def month() -> Month:
    budget = {
        "maxUnavailable": {"percent": 40, "atMost": 3},
        "maxNew": {"count": 9, "window": "10m"},
    }
    return a_month(Month(policy_of(budget=budget)))


def test_issue14_the_same_policy_decides_the_same(month: World) -> None:
    assert len(month.quarantines) >= 5
    assert_same(month)


def test_issue14_no_name_is_needed_for_it(month: World) -> None:
    """An anonymised export replays the same; no name of the cluster is in it."""
    archive = Anonymiser(b"key").archive(exported(month))
    text = b"".join(to_files(archive).values())
    for name in (*month.nodes, "GPU-n1-0", "ada", "it smells", "web-"):
        assert f'"{name}'.encode() not in text, name
    replayed = replay(past_of(from_files(to_files(archive))), month.policy)
    shape = sorted(
        tuple(sorted(s.items())) for s in decisions(replayed.sessions.values()).values()
    )
    real = [session_view(one) for one in exported(month).sessions]
    assert [len(s) for s in shape] == [
        len(s) for s in sorted(tuple(sorted(x.items())) for x in decisions(real).values())
    ]


def test_issue14_another_policy_is_explained_node_by_node(month: World) -> None:
    past = past_of(exported(month))
    tight = policy_of(budget={"maxUnavailable": {"percent": 15, "atMost": 1},
                              "maxNew": {"count": 9, "window": "10m"}})  # fmt: skip
    wide = policy_of(budget={"maxUnavailable": {"percent": 100, "atMost": 99},
                             "maxNew": {"count": 9, "window": "10m"}})  # fmt: skip
    shadow = policy_of(mode="Shadow")
    real = [session_view(one) for one in exported(month).sessions]
    report = report_of(
        past, [(n, replay(past, p)) for n, p in (("tight", tight), ("wide", wide),
                                                 ("shadow", shadow))], real
    )  # fmt: skip
    really, tighter, wider, shadowed = report.policies
    assert (wider.nodes, shadowed.gpu_hours_out) == (6, 0.0)
    assert any(one.reason == "Budget" and one.node == "n4" for one in tighter.waited)
    assert not any(one.reason == "Budget" for one in wider.waited)
    assert wider.gpu_hours_out > 0 < really.gpu_hours_out
    assert [t.node for t in wider.taken if t.likely_wrong] == ["n7"]
    stories = {
        d.node: d.parts for pair in report.differences for d in pair.nodes if pair.second == "wide"
    }
    assert "n6" in stories
    assert any("no pods" in said or "pods of the past" in said for said in report.cannot_tell)


def test_issue14_a_fatal_fault_that_nobody_acted_on_is_named() -> None:
    world = Month(policy_of(mode="Shadow", reasons={"Xid79GPUFallenOffBus": {"level": "Report"}}))
    world.add_nodes(6)
    world.incident("n1", "NVLinkDown", severity="Degraded", level="Report", gpu="GPU-n1-0")
    world.run(600, step=10)
    world.incident("n1")
    world.run(600, step=10)
    past = past_of(exported(world))
    quiet = result_of("quiet", past, replay(past, world.policy))
    assert [(m.node, m.reason, m.warned.split()[0]) for m in quiet.missed] == [
        ("n1", "Xid79GPUFallenOffBus", "NVLinkDown")
    ]
    acting = result_of("acting", past, replay(past, policy_of()))
    assert acting.missed == ()
    assert acting.sentence.startswith("acting (Enforce): 1 node in 1 session")


def test_issue14_a_drain_that_never_ended_ends_in_no_replay() -> None:
    world = Month(policy_of())
    world.add_nodes(5)
    world.add_pod("solo", "n1")
    world.add_pdb("solo", minAvailable=1)
    world.incident("n1")
    world.run(900, step=10)
    assert world.phase("n1") == "Draining"
    assert_same(world)


def test_issue14_faults_of_one_second_are_judged_together() -> None:
    """A rack that fails at once is one cause, whichever of its faults was written down first."""
    world = Month(policy_of(budget={"perReason": {"count": 3, "window": "10m"}}))
    world.add_nodes(8, rack="r1")
    world.now = math.floor(world.now) + 0.3
    for place, name in enumerate(("n1", "n2", "n3", "n4", "n5")):
        world.incident(name)
        at = format_micro_time(world.now + place / 1000)
        world.healths[name]["status"]["incidents"][0]["firstSeen"] = at
    world.now += 600
    again = replay(past_of(exported(world)), world.policy)
    assert {s.status.phase for s in again.sessions.values()} == {"Pending"}
    assert {reason for _, reason in again.waits} == {"CorrelatedCause"}
