"""Repairs, tests under load, word of others and nodes that go, replayed as they went (issue
14).
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.api.timestamps import format_time
from rules.backtest.anonymise import Anonymiser
from tests.support.scenario.backtest_world import back_tested, exported, parted
from tests.support.scenario.repair_world import NODE, RepairWorld, repair_policy
from tests.support.scenario.session_world import ROOMY, World, policy_of
from tests.support.scenario.validation_world import ValidationWorld, validation_policy


def decided(report: Any, policy: str, node: str = NODE) -> list[str]:
    (result,) = (one for one in report.policies if one.policy == policy)
    return [d.what for taken in result.taken if taken.node == node for d in taken.decisions]


@pytest.mark.parametrize(
    ("does", "last"),
    [("heals", "Released"), ("reboots", "Quarantined"), ("hangs", "Quarantined")],
)
def test_issue14_repair_steps_go_again_as_they_went(does: str, last: str) -> None:
    """Restarts that mend, that boot and do not mend, that never come: the same steps, in time."""
    world = RepairWorld(does=does)
    world.incident(NODE)
    world.run(3 * 3600, step=10)
    report = back_tested(exported(world), same=world.policy)
    assert parted(report, "same") == {}
    assert decided(report, "same")[-1] == last
    assert "RestartNode asked" in decided(report, "same")
    assert any("a repair step or a test goes as" in said for said in report.cannot_tell)


@pytest.mark.parametrize(
    ("does", "steps"),
    [("heals", ["ResetGPU proven"]), ("reboots", ["ResetGPU failed", "RestartNode proven"])],
)
def test_issue14_a_reset_goes_again_as_it_went(does: str, steps: list[str]) -> None:
    """One that mends, and one that does not and is followed by a restart."""
    world = RepairWorld(does=does)
    world.incident(NODE, "Xid48DoubleBitECC")
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = "ResetGPU"
    world.run(2 * 3600, step=10)
    report = back_tested(exported(world), same=world.policy)
    assert parted(report, "same") == {}
    said = decided(report, "same")
    assert [step for step in steps if step in said] == steps


@pytest.mark.parametrize(
    ("becomes", "said"),
    [
        (("passes",), "test pass"),
        (("fails", "passes"), "test fail"),
        (("is slow", "passes"), "test degraded"),
        (("could not test",), "test unknown"),
    ],
)
def test_issue14_tests_under_load_come_out_as_they_did(becomes: Any, said: str) -> None:
    """A failed one asks for the next step, one that could not run waits for a person."""
    world = ValidationWorld(*becomes)
    world.incident(NODE)
    world.run(2 * 3600, step=6)
    report = back_tested(exported(world), same=world.policy)
    assert parted(report, "same") == {}
    assert said in decided(report, "same")


def test_issue14_an_unequal_policy_is_told_apart_by_what_it_asks_for() -> None:
    world = ValidationWorld("fails", "passes")
    world.incident(NODE)
    world.run(2 * 3600, step=10)
    report = back_tested(
        exported(world),
        off=policy_of(budget=ROOMY),
        untested=validation_policy(provider="None"),
    )
    assert decided(report, "off")[-1] == "Quarantined"
    assert "off repairs nothing" in parted(report, "off")[NODE]
    assert "test fail" in parted(report, "untested")[NODE]


def test_issue14_a_harsher_step_mends_what_a_milder_one_did_and_it_is_said() -> None:
    world = RepairWorld()
    world.incident(NODE)
    world.run(2 * 3600, step=10)
    replace = {"steps": {"ReplaceNode": {"adapter": "NodeConditions", "timeout": "30m"}}}
    milder = {"steps": {"ResetGPU": {"adapter": "NodeConditions", "timeout": "30m"}}}
    report = back_tested(
        exported(world), harsher=repair_policy(**replace), milder=repair_policy(**milder)
    )
    assert decided(report, "harsher")[-2:] == ["ReplaceNode proven", "NodeGone"]
    assert "how ReplaceNode of harsher would have gone" in parted(report, "harsher")[NODE]
    assert decided(report, "milder")[-1] == "Quarantined"
    assert "milder has nobody for RestartNode" in parted(report, "milder")[NODE]


def test_issue14_people_let_steps_go_when_they_did() -> None:
    world = RepairWorld(mode="Ask")
    world.incident(NODE)
    world.run(900, step=5)
    assert world.steps_of() == []
    name = world.session(NODE).name
    world.quarantines[name]["spec"]["repair"] = {"step": "RestartNode", "by": "ada"}
    world.touch(world.quarantines[name])
    world.run(1800, step=5)
    assert world.steps_of() == [("RestartNode", "Proven")]
    report = back_tested(exported(world), same=world.policy, auto=repair_policy())
    assert parted(report, "same") == {}
    assert "auto: RestartNode asked" in parted(report, "auto")[NODE]


def test_issue14_what_others_said_is_heard_by_who_has_a_trigger_for_it() -> None:
    heard = {
        "condition": {"type": "GpuBroken", "status": "True"}, "reason": "SiteGPUBroken",
        "severity": "Fatal", "level": "Drain", "for": "2m",
    }  # fmt: skip
    world = World(policy_of(budget=ROOMY, external=[heard]))
    world.add_nodes(5)
    for status, seconds in (("True", 1200), ("False", 1500)):
        at = format_time(world.now)
        said = {"type": "GpuBroken", "status": status, "lastTransitionTime": at}
        conditions = world.nodes[NODE]["status"]["conditions"]
        conditions[:] = [c for c in conditions if c["type"] != "GpuBroken"] + [said]
        world.touch(world.nodes[NODE])
        world.run(seconds, step=5)
    assert world.phase(NODE) == "Released"
    late = policy_of(budget=ROOMY, external=[{**heard, "for": "10m"}])
    report = back_tested(
        exported(world), same=world.policy, later=late, deaf=policy_of(budget=ROOMY)
    )
    assert parted(report, "same") == {}
    assert decided(report, "later") == decided(report, "same")
    assert "later: Pending at" in parted(report, "later")[NODE]
    assert decided(report, "deaf") == []
    assert "deaf has no trigger for SiteGPUBroken" in parted(report, "deaf")[NODE]


def test_issue14_a_node_that_went_goes_again() -> None:
    world = RepairWorld(does="hangs")
    world.incident(NODE)
    world.run(2400, step=10)
    del world.nodes[NODE], world.healths[NODE]
    world.run(600, step=10)
    assert world.phase(NODE) == "NodeGone"
    report = back_tested(exported(world), same=world.policy)
    assert parted(report, "same") == {}
    assert decided(report, "same")[-1] == "NodeGone"


def test_issue14_repairs_need_no_name() -> None:
    """An anonymised export replays the same steps and tests."""
    world = ValidationWorld("fails", "passes", does="heals")
    world.incident(NODE)
    world.run(3600, step=10)
    hidden = Anonymiser(b"key").archive(exported(world))
    assert NODE.encode() not in b"".join(f'"{n.name}"'.encode() for n in hidden.nodes)
    report = back_tested(hidden, same=world.policy)
    assert parted(report, "same") == {}
    assert "test fail" in decided(report, "same", hidden.sessions[0].spec["nodeName"])
