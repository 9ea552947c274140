"""From Quarantined back to service: steps that heal, that do not, that hang, that lie (issue
13).
"""

import pytest
from msgspec import to_builtins

from rules.api import writes as d
from rules.api.repair_writes import SetRepairCondition
from rules.session.status import condition
from tests.support.scenario import judgement_world
from tests.support.scenario.fleets import fleet
from tests.support.scenario.repair_world import NODE, REPLACE, RESTART, RepairWorld, repair_policy
from tests.support.scenario.session_world import World


def test_off_by_default_nothing_is_asked_for() -> None:
    world = fleet(5)
    world.incident(NODE)
    world.run(3600, step=10)
    assert world.phase(NODE) == "Quarantined"
    assert world.session(NODE).status.repair == ()
    assert not world.writes(SetRepairCondition)
    text = "Waiting for the repair (reboot the node), then for its causes to close"
    assert text in world.message(NODE)
    assert text in drained_event(world)


@pytest.mark.parametrize("action", ["None", "RestartApp"])
def test_a_drained_node_does_not_wait_for_an_unneeded_repair(action: str) -> None:
    """A policy may drain for what asks for nothing: the program is gone by then."""
    world = fleet(5)
    world.incident(NODE)
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = action
    world.run_until(NODE, "Quarantined", limit=600)
    world.run(60)
    assert "Waiting for its causes to close" in world.message(NODE)
    assert "Waiting for the repair" not in drained_event(world)


def drained_event(world: World) -> str:
    """What people are reported at the moment when the node is empty."""
    (event,) = (e for e in world.writes(d.EmitEvent) if e.reason == "QuarantineQuarantined")
    return event.message


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("Auto", "RestartNode by NodeConditions is next"),
        ("Ask", "RestartNode by NodeConditions is proposed"),
    ],
)
def test_the_event_of_an_empty_node_names_the_step(mode: str, expected: str) -> None:
    world = RepairWorld(mode=mode)
    world.fail_until(NODE, "Repairing" if mode == "Auto" else "Quarantined")
    assert expected in drained_event(world)


def test_a_restart_heals_and_the_node_comes_back() -> None:
    world = RepairWorld()
    world.fail_until(NODE, "Repairing")
    (attempt,) = world.session(NODE).status.repair
    assert (attempt.step, attempt.adapter, attempt.attempt) == ("RestartNode", "NodeConditions", 1)
    assert attempt.before.boot_id == "boot-n0-1"
    assert attempt.object == f"{world.session(NODE).name}-restartnode-1"
    world.run_until(NODE, "Released", limit=1800)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert "new boot" in world.session(NODE).status.repair[0].proof
    assert world.phases(NODE) == [
        "Marked", "Draining", "Quarantined", "Repairing", "Validating", "Released",
    ]  # fmt: skip
    assert len(world.asked()) == 1
    assert not world.asks(NODE, RESTART)
    assert not world.is_quarantined(NODE)


@pytest.mark.parametrize(
    ("value", "name"), [(6, "RecoveryActionBusReset"), (7, "RecoveryActionSystemReboot")]
)
def test_a_bus_reset_or_system_reboot_of_the_driver_becomes_a_proven_restart(
    value: int, name: str
) -> None:
    """From the driver's number through the agent's object to the end of the session."""
    agent = judgement_world.World(driver="615.65.01").start()
    agent.asked(value)
    published = agent.published()
    texts = {c.type: f"{c.reason}: {c.message}" for c in published.conditions}
    assert name in texts["GPUHealthy"]
    world = RepairWorld()
    health = world.healths[NODE]["status"]
    health["incidents"] = to_builtins(published.status.incidents)
    for incident in health["incidents"]:
        incident["gpus"] = [f"GPU-{NODE}-0"]
    assert published.status.gpus[0].recovery_action == name.removeprefix("RecoveryAction")
    world.run_until(NODE, "Repairing", limit=600)
    (attempt,) = world.session(NODE).status.repair
    assert attempt.step == "RestartNode"
    world.run_until(NODE, "Released", limit=1800)
    assert world.steps_of() == [("RestartNode", "Proven")]


def test_the_entry_is_written_before_anybody_is_asked() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(5)
    order = [
        type(write).__name__
        for _, write, _, _ in world.sent
        if isinstance(write, SetRepairCondition)
        or (isinstance(write, d.WriteSessionStatus) and write.status.repair)
    ]
    assert order[:3] == ["WriteSessionStatus", "SetRepairCondition", "WriteSessionStatus"]


def test_s39_a_step_that_does_not_heal_is_followed_by_the_next_once_each() -> None:
    world = RepairWorld(does="reboots")
    world.incident(NODE)
    world.run(4 * 3600, step=5)
    assert world.steps_of() == [("RestartNode", "Proven"), ("ReplaceNode", "Failed")]
    assert [w.step for w in world.asked()] == ["RestartNode", "ReplaceNode"]
    assert world.phase(NODE) == "Quarantined"
    assert world.condition(NODE, "NeedsHuman") == "NoStepLeft"
    assert "No repair step is left" in world.message(NODE)
    assert world.is_quarantined(NODE)
    timeline = world.session(NODE).status.timeline
    _, *later = (entry.at for entry in timeline if entry.step == "Quarantined")
    assert later, "each step that failed led back to Quarantined"


@pytest.mark.parametrize("does", ["hangs", "lies"])
def test_without_proof_nothing_counts_as_done(does: str) -> None:
    """A provider that hangs, and one that reports success in the old boot."""
    world = RepairWorld(does=does)
    world.fail_until(NODE, "Repairing")
    world.run(29 * 60, step=10)
    assert world.steps_of() == [("RestartNode", "Asked")]
    assert "the node did not reboot" in world.message(NODE)
    world.run(4 * 3600, step=10)
    assert world.steps_of() == [("RestartNode", "Failed"), ("ReplaceNode", "Failed")]
    assert not world.asks(NODE, RESTART), "a late provider restarts nothing"
    assert world.asks(NODE, REPLACE), "a request for a replacement stays"
    assert world.phase(NODE) == "Quarantined"


def test_s33_an_old_heartbeat_proves_no_reboot() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(10)
    world.reboot(NODE)
    world.nodes[NODE]["status"]["conditions"][0]["lastHeartbeatTime"] = "2020-01-01T00:00:00Z"
    world.close_all(NODE)
    world.run(600, step=5)
    assert world.phase(NODE) == "Repairing"
    assert "the kubelet has not reported since" in world.message(NODE)


def test_a_cause_that_closes_by_itself_waits_for_the_restart_it_asked_for() -> None:
    """A node must not serve again while somebody may still restart it."""
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(10)
    world.close_all(NODE)
    world.run(1200, step=5)
    assert world.phase(NODE) == "Repairing"
    assert world.is_quarantined(NODE)
    world.run(3600, step=5)
    assert world.steps_of() == [("RestartNode", "Failed")]
    assert not world.asks(NODE, RESTART)
    assert world.phase(NODE) == "Released"


def test_a_reset_that_does_not_heal_climbs_to_a_restart() -> None:
    world = RepairWorld(does="reboots")
    world.incident(NODE)
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = "ResetGPU"
    world.run(2 * 3600, step=5)
    assert world.steps_of()[:2] == [("ResetGPU", "Failed"), ("RestartNode", "Proven")]


@pytest.mark.parametrize("action", ["Investigate", "RestartApp", "SomethingNew"])
def test_an_action_without_a_step_needs_an_operator(action: str) -> None:
    world = RepairWorld()
    world.incident(NODE)
    world.healths[NODE]["status"]["incidents"][0]["recommendedAction"] = action
    world.run(600, step=5)
    assert world.phase(NODE) == "Quarantined"
    assert world.condition(NODE, "NeedsHuman") == "NoStepLeft"
    assert world.asked() == []


def test_a_manual_cause_is_never_repaired() -> None:
    world = RepairWorld()
    world.open_by_operator(NODE)
    world.run(600, step=5)
    assert world.phase(NODE) == "Quarantined"
    assert world.asked() == []
    assert world.condition(NODE, "NeedsHuman") == ""


def test_a_level_of_cordon_repairs_nothing() -> None:
    world = RepairWorld()
    world.incident(NODE, level="Cordon")
    world.run(600, step=5)
    assert world.phase(NODE) == "Marked"
    assert world.asked() == []


def test_a_node_replaced_under_its_name_ends_the_session_with_its_proof() -> None:
    world = RepairWorld(does="reboots", steps={"ReplaceNode": {"adapter": "NodeConditions"}})
    world.fail_until(NODE, "Repairing")
    world.run(5)
    del world.nodes[NODE]
    world.run(5)
    assert world.phase(NODE) == "NodeGone"
    assert world.steps_of() == [("ReplaceNode", "Proven")]


def test_a_node_that_does_not_come_back_is_replaced() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(30)
    world.set_ready(NODE, "Unknown")
    world.silence(NODE)
    world.run(2 * 3600, step=10)
    assert [w.step for w in world.asked()] == ["RestartNode", "ReplaceNode"]


def test_shadow_asks_for_nothing() -> None:
    steps = {"RestartNode": {"adapter": "NodeConditions"}}
    world = fleet(5, mode="Shadow", repair={"mode": "Auto", "steps": steps})
    world.incident(NODE)
    world.run(600, step=5)
    assert not world.writes(SetRepairCondition)
    assert "RestartNode" in world.message(NODE)


def test_repair_switched_off_ends_with_the_step_under_way() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(10)
    world.policy = repair_policy(mode="Off")
    world.run(3 * 3600, step=10)
    assert world.steps_of() == [("RestartNode", "Failed")]
    assert world.phase(NODE) == "Quarantined"
    assert world.condition(NODE, "NeedsHuman") == ""


def approved(world: RepairWorld, step: str, **arguments: str) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["repair"] = {"step": step, "by": "ada", **arguments}
    world.touch(session)


def test_ask_proposes_each_step_and_an_operator_approves_exactly_that_one() -> None:
    world = RepairWorld(does="reboots", mode="Ask")
    world.incident(NODE)
    world.run(600, step=5)
    assert world.phase(NODE) == "Quarantined"
    assert world.condition(NODE, "RepairProposed") == "RestartNode"
    assert world.condition(NODE, "NeedsHuman") == "Approval"
    assert "kubectl gpuward approve n0" in world.message(NODE)
    assert world.asked() == []
    approved(world, "RestartNode")
    world.run(30)
    assert world.condition(NODE, "RepairProposed") == ""
    world.run(300, step=10)
    assert "RestartNode is proven" in world.message(NODE)
    assert "ReplaceNode by NodeConditions is proposed" in world.message(NODE), "it follows not yet"
    world.run(3600, step=10)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert world.condition(NODE, "RepairProposed") == "ReplaceNode"
    assert [w.step for w in world.asked()] == ["RestartNode"]


def test_the_reason_of_an_approval_is_reported_and_changes_nothing() -> None:
    """In the Event and in the session's own timeline, on one line and in bounds."""
    world = RepairWorld(does="reboots", mode="Ask")
    world.incident(NODE)
    world.run(600, step=5)
    approved(world, "RestartNode", reason="vendor\n on site\x07 {node} ResetGPU " + "w" * 990)
    world.run(30)
    (entry,) = [e for e in world.session(NODE).status.timeline if e.step == "LetGo"]
    assert (entry.by, entry.subject) == ("ada", "RestartNode")
    assert entry.message.startswith(r"vendor\x0a on site\x07 {node} ResetGPU www")
    text = next(e for e in world.session(NODE).status.timeline if e.step == "Repairing").message
    assert r" Approved by ada: vendor\x0a on site\x07 {node} ResetGPU…" in text
    assert len(text) <= 256
    events = [e for e in world.events.values() if e["reason"] == "QuarantineRepairing"]
    assert ["Approved by ada: vendor" in one["message"] for one in events] == [True]
    assert all(one["message"].isprintable() for one in events)
    assert world.steps_of() == [("RestartNode", "Asked")]


def test_a_step_that_waits_for_an_operator_takes_no_place() -> None:
    world = RepairWorld(nodes=4, does="heals", mode="Ask", concurrent=1)
    for name in world.nodes:
        world.incident(name)
    world.run(300, step=5)
    approved(world, "RestartNode")
    world.run(1800, step=10)
    assert world.phase(NODE) == "Released"
    assert {world.phase(f"n{n}") for n in (1, 2, 3)} == {"Quarantined"}
    assert world.condition("n1", "RepairProposed") == "RestartNode"


def test_an_operator_chooses_a_step_also_for_a_manual_cause() -> None:
    world = RepairWorld(does="hangs", mode="Ask")
    world.open_by_operator(NODE)
    world.run(60)
    assert world.condition(NODE, "RepairProposed") == ""
    approved(world, "ReplaceNode")
    world.run(60)
    assert world.steps_of() == [("ReplaceNode", "Asked")]


def test_an_unreachable_node_during_a_restart_is_reported() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(30)
    world.set_ready(NODE, "Unknown")
    world.run(30)
    silent = condition(world.session(NODE).status, "NodeUnreachable")
    assert silent is not None
    assert silent.message.startswith(
        "The node's Ready condition is Unknown during RestartNode; evictions"
    )
    world.set_ready(NODE, "True")
    world.close_all(NODE)
    world.run(30)
    assert "requested from NodeConditions" in world.message(NODE)
    assert "(Fatal), now closed; not proven yet" in world.message(NODE)
