"""What bounds repairs: attempts over days, places in the fleet, people, the API server (issue
13).
"""

import pytest

from rules.api import writes as d
from rules.api.repair_writes import SetRepairCondition
from rules.session.history import expired_sessions
from tests.support.scenario.repair_world import NODE, RESTART, STEPS, RepairWorld, repair_policy
from tests.support.scenario.session_world import kill_points

RESTART_ONLY = {"RestartNode": STEPS["RestartNode"]}
LONG_S = 2000
"""The better part of an hour."""


def boots(world: RepairWorld, node: str = NODE) -> int:
    return int(world.node(node).boot_id.rpartition("-")[2]) - 1


def test_a_node_that_never_heals_gets_its_attempts_and_no_more() -> None:
    """Over sessions that an operator ends, restarts of the remediator, and days."""
    world = RepairWorld(does="reboots", steps=RESTART_ONLY, attempts=2, window="7d")
    for day in range(6):
        world.incident(NODE)
        world.run(3600, step=30)
        world.restart()
        session = world.session(NODE).name
        world.quarantines[session]["spec"]["release"] = {"by": "ada", "reason": "again"}
        world.touch(world.quarantines[session])
        world.run(60, step=10)
        world.close_all(NODE)
        world.now += 12 * 3600
        assert boots(world) == min(day + 1, 2)
    assert len(world.sessions(NODE)) == 6


def test_history_keeps_what_attempts_are_counted_from() -> None:
    world = RepairWorld(does="heals", steps=RESTART_ONLY, window="60d")
    world.incident(NODE)
    world.run(3600, step=20)
    session = world.session(NODE)
    assert session.status.phase == "Released"
    forty_days = world.now + 40 * 86_400
    assert expired_sessions([session], world.policy, forty_days) == ()
    assert expired_sessions([session], repair_policy(window="7d"), forty_days) != ()


def test_attempts_come_back_when_the_window_is_over() -> None:
    world = RepairWorld(does="heals", steps=RESTART_ONLY, attempts=1, window="1d")
    for _ in range(2):
        world.incident(NODE)
        world.run(3600, step=10)
        world.now += 2 * 86_400
    assert boots(world) == 2


def test_ten_nodes_at_once_keep_to_two_places() -> None:
    world = RepairWorld(nodes=10, does="heals", steps=RESTART_ONLY)
    for name in world.nodes:
        world.incident(name)
    most = 0
    for _ in range(220):
        world.run(20, step=20)
        most = max(most, len(world.running()))
    assert most == 2
    assert {world.phase(name) for name in world.nodes} == {"Released"}
    assert all(boots(world, name) == 1 for name in world.nodes)


def test_no_two_nodes_of_a_rack_are_repaired_at_once() -> None:
    world = RepairWorld(nodes=0, does="heals", steps=RESTART_ONLY, concurrent=4, per=["rack"])
    for index in range(4):
        world.add_node(f"n{index}", labels={"rack": f"r{index % 2}"})
        world.incident(f"n{index}")
    for _ in range(150):
        world.run(20, step=20)
        racks = [world.node(name).labels["rack"] for name in world.running()]
        assert len(racks) == len(set(racks))
    assert {world.phase(name) for name in world.nodes} == {"Released"}


STOPS = ["pause", "hold", "annotation", "opt-out", "stand-down", "gpu-pod", "stale"]


def _stop(world: RepairWorld, what: str) -> str:
    """Add the blocker; return the reason that the session names."""
    match what:
        case "pause":
            world.pause()
            return "Paused"
        case "hold":
            session = world.quarantines[world.session(NODE).name]
            session["spec"]["hold"] = True
            world.touch(session)
            return "Hold"
        case "annotation":
            world.annotate(NODE, "gpuward.io/hold", "look at it first")
            return "Hold"
        case "opt-out":
            world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
            world.touch(world.nodes[NODE])
            return "OptOut"
        case "stand-down":
            world.taint(NODE, "ToBeDeletedByClusterAutoscaler")
            return "StandDown"
        case "gpu-pod":
            world.add_pod("diag", NODE, owner=("apps/v1", "DaemonSet", "diag"), gpus=1)
            world.add_daemonset_owner("DaemonSet-team-a-diag")
            return "PodUsesGPU"
        case _:
            world.silence(NODE)
            world.beat(world.healths[NODE], world.now - 86_400)
            return "VerdictStale"


def _lift(world: RepairWorld, what: str) -> None:
    world.pauses.clear()
    world.nodes[NODE]["metadata"]["labels"].pop("gpuward.io/opt-out", None)
    world.quarantines[world.session(NODE).name]["spec"].pop("hold", None)
    world.touch(world.nodes[NODE])
    world.touch(world.quarantines[world.session(NODE).name])


@pytest.mark.parametrize("what", STOPS)
def test_nothing_begins_while_it_is_forbidden(what: str) -> None:
    world = RepairWorld(steps=RESTART_ONLY)
    if what == "gpu-pod":
        _stop(world, what)
    world.policy = repair_policy(mode="Off")
    world.fail_until(NODE, "Quarantined")
    reason = "PodUsesGPU" if what == "gpu-pod" else _stop(world, what)
    world.policy = repair_policy(steps=RESTART_ONLY)
    world.run(3600, step=5)
    assert world.asked() == []
    assert world.phase(NODE) == "Quarantined"
    assert world.condition(NODE, "Blocked") == reason


@pytest.mark.parametrize("what", STOPS)
def test_the_next_step_waits_while_it_is_forbidden(what: str) -> None:
    """One step failed; before the next one everything is read again."""
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(10)
    _stop(world, what)
    world.run(3 * 3600, step=10)
    if what == "stale":
        # The node did not come back from its restart: it is past being checked.
        assert [w.step for w in world.asked()] == ["RestartNode", "ReplaceNode"]
        return
    assert [w.step for w in world.asked()] == ["RestartNode"]


@pytest.mark.parametrize("what", ["pause", "hold", "opt-out"])
def test_a_held_step_continues_with_its_full_timeout(what: str) -> None:
    world = RepairWorld(does="heals", steps=RESTART_ONLY)
    world.incident(NODE)
    world.leader_dies_at(lambda write: isinstance(write, SetRepairCondition))
    world.restart()
    assert world.steps_of() == [("RestartNode", "Planned")]
    _stop(world, what)
    world.run(3600, step=10)
    assert world.asked() == []
    assert world.steps_of() == [("RestartNode", "Held")]
    _lift(world, what)
    world.run_until(NODE, "Released", limit=3600)
    assert world.steps_of() == [("RestartNode", "Proven")]


@pytest.mark.parametrize("phase", ["planned", "asked"])
def test_an_uncordon_ends_the_ladder_and_takes_the_request_back(phase: str) -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    if phase == "asked":
        world.run(10)
        assert world.asks(NODE, RESTART)
    world.cordon(NODE, on=False)
    world.run(10)
    assert world.phase(NODE) == "Cancelled"
    assert not world.asks(NODE, RESTART)
    assert {state for _, state in world.steps_of()} == {"Withdrawn"}
    world.restart()
    world.run(7200, step=20)
    assert not world.asks(NODE, RESTART)


def test_a_session_deleted_while_it_repairs_leaves_no_request_behind() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(10)
    del world.quarantines[world.session(NODE).name]
    world.close_all(NODE)
    world.run(10)
    assert not world.asks(NODE, RESTART)


def test_a_refused_request_is_reported_and_fails_in_time() -> None:
    world = RepairWorld(does="heals", steps=RESTART_ONLY)
    world.refusing = {SetRepairCondition: (403, "ValidatingAdmissionPolicy denied the request")}
    world.fail_until(NODE, "Repairing")
    world.run(300, step=5)
    assert world.steps_of() == [("RestartNode", "Planned")]
    assert "request a repair" in world.message(NODE)
    world.run(900, step=5)
    assert world.steps_of() == [("RestartNode", "Failed")]
    assert "the request could not be sent" in world.session(NODE).status.repair[0].proof
    assert world.condition(NODE, "NeedsHuman") == "NoStepLeft"


def test_a_busy_api_server_is_asked_again() -> None:
    world = RepairWorld(does="heals", steps=RESTART_ONLY)
    world.refusing = {SetRepairCondition: (429, "not now")}
    world.fail_until(NODE, "Repairing")
    world.run(120, step=5)
    world.refusing = {}
    world.run_until(NODE, "Released", limit=1800)
    assert world.steps_of() == [("RestartNode", "Proven")]


@pytest.mark.parametrize(
    ("does", "leads", "ends"),
    [("heals", "restart", "Released"), ("reboots", "change_leader", "Quarantined")],
)
def test_a_leader_killed_before_any_write_changes_nothing(
    does: str, leads: str, ends: str
) -> None:
    """At every write of a repair: the same end, each step asked for at most once."""
    plain = RepairWorld(does=does, steps=RESTART_ONLY)
    plain.incident(NODE)
    end = plain.now + LONG_S
    died = kill_points(plain, lambda: plain.run(LONG_S, step=20))
    want = (ends, plain.steps_of(), 1)
    assert plain.steps_of() == [("RestartNode", "Proven")]
    recorded = [
        isinstance(write, d.WriteSessionStatus) and bool(write.status.repair) for write, _ in died
    ]
    first = recorded.index(True)
    assert len(died) - first > 8
    for write, world in died[first:]:
        getattr(world, leads)()
        world.run(end - world.now, step=20)
        assert (world.phase(NODE), world.steps_of(), boots(world)) == want, write
        assert [kind for _, kind in world.done] == [RESTART], write


def test_who_finds_the_new_boot_of_a_step_on_record_asks_for_nothing_again() -> None:
    """The leader died after it had asked and before that was written; the answer came
    meanwhile.
    """
    world = RepairWorld(does="heals", steps=RESTART_ONLY)
    world.incident(NODE)
    world.leader_dies_at(_has_requested)
    assert world.asks(NODE, RESTART)
    world.sleep(120)
    world.restart()
    assert world.steps_of() == [("RestartNode", "Planned")]
    world.run_until(NODE, "Released", limit=1800)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert boots(world) == 1
    assert len(world.asked()) == 1


@pytest.mark.parametrize("ends", ["its causes closed", "the policy was changed"])
@pytest.mark.parametrize("leads", ["restart", "change_leader"])
def test_s33_an_unrecorded_request_is_followed_to_its_end(leads: str, ends: str) -> None:
    """The leader died after it had asked; the reboot may have begun, so nobody works there yet."""
    world = RepairWorld(does="reboots", steps=RESTART_ONLY)
    world.incident(NODE)
    world.leader_dies_at(_has_requested)
    assert world.asks(NODE, RESTART)
    getattr(world, leads)()
    if ends == "its causes closed":
        world.close_all(NODE)
    else:
        world.policy = repair_policy(mode="Off")
    world.run(20)
    assert world.steps_of() == [("RestartNode", "Asked")]
    assert world.asks(NODE, RESTART)
    world.run(1200, step=10)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert boots(world) == 1
    assert len(world.asked()) == 1


def test_an_unrequested_step_is_withdrawn_when_its_causes_close() -> None:
    world = RepairWorld(does="heals", steps=RESTART_ONLY)
    world.incident(NODE)
    world.leader_dies_at(lambda write: isinstance(write, SetRepairCondition))
    world.restart()
    world.close_all(NODE)
    world.run(1200, step=10)
    assert world.steps_of() == [("RestartNode", "Withdrawn")]
    assert world.phase(NODE) == "Released"
    assert world.asked() == []


def _has_requested(write: d.Write) -> bool:
    return isinstance(write, d.WriteSessionStatus) and any(
        attempt.state == "Asked" for attempt in write.status.repair
    )


def test_the_own_node_hands_over_first_and_is_left_alone_without_a_second() -> None:
    world = RepairWorld(steps=RESTART_ONLY)
    world.own_node = NODE
    world.no_other_replica = True
    world.incident(NODE)
    world.run(1800, step=10)
    assert world.asked() == []
    assert world.condition(NODE, "Blocked") == "OwnNodeLast"
    world.no_other_replica = False
    world.run(30)
    assert world.hand_overs


def test_control_plane_nodes_are_never_repaired() -> None:
    world = RepairWorld(nodes=0, steps=RESTART_ONLY)
    world.add_node(NODE, labels={"node-role.kubernetes.io/control-plane": ""})
    world.add_node("other")
    world.open_by_operator(NODE)
    world.incident(NODE)
    world.run(1800, step=10)
    assert world.phase(NODE) == "Quarantined"
    assert world.asked() == []
    assert world.condition(NODE, "Blocked") == "ControlPlane"
