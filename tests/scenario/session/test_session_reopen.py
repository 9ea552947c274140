"""Sessions that did nothing, pods that arrive on a quarantined node, and a GPU's record."""

from collections.abc import Callable
from typing import Any

import pytest

from rules.api import writes as d
from rules.api.gpu_record import (
    FaultOutcome,
)
from rules.api.quarantine import Phase
from rules.api.timestamps import format_time
from tests.support.scenario.fleets import NO_ROOM, NODE, fleet
from tests.support.scenario.repair_world import DAY, RecordWorld
from tests.support.scenario.session_world import CrashError, World


def tainted_unrecorded(world: World) -> None:
    """The leader dies after the taint and cordon and before its record."""
    world.incident(NODE)

    def dies(write: d.Write) -> None:
        if isinstance(write, d.WriteSessionStatus) and write.status.phase == Phase.MARKED:
            raise CrashError

    world.before_each = dies
    with pytest.raises(CrashError):
        world.run(10)
    world.before_each = None
    assert world.is_quarantined(NODE)
    assert world.phase(NODE) in {"", "Pending"}


def released(world: World) -> None:
    name = world.session(NODE).name
    world.quarantines[name]["spec"]["release"] = {"by": "ada", "reason": "no"}


def uncordoned(world: World) -> None:
    world.cordon(NODE, on=False)


def untainted(world: World) -> None:
    world.untaint(NODE, "gpuward.io/quarantine")


def mended(world: World) -> None:
    world.close_all(NODE)


ENDS: list[Callable[[World], None]] = [released, uncordoned, untainted, mended]


def steps(world: World) -> list[str]:
    return [entry.step for entry in world.session(NODE).status.timeline]


@pytest.mark.parametrize("how", ENDS)
def test_a_session_that_ends_before_its_record_counts_as_quarantined(
    how: Callable[[World], None],
) -> None:
    world = fleet(5)
    for number in range(7):
        tainted_unrecorded(world)
        world.restart()
        world.sleep(3)
        at = world.now
        how(world)
        world.run(40, step=5)
        assert not world.is_quarantined(NODE)
        ended = world.session(NODE).status
        assert ended.phase in {"Released", "Cancelled"}
        assert "before any action" not in ended.message
        assert steps(world).count("Marked") == 1
        tainted_at = next(entry.at for entry in ended.timeline if entry.step == "Marked")
        assert tainted_at < ended.phase_since
        assert len(world.sessions(NODE)) == number + 1, "the seventh opens as the first did"
        assert world.now - at < 60


def test_a_taint_applied_after_the_end_is_recorded() -> None:
    """The dead leader's quarantine was on its way when the next one ended the session."""
    world = fleet(5)
    tainted_unrecorded(world)
    node = world.nodes[NODE]
    spec, meta = (
        dict(node["spec"]),
        {k: dict(node["metadata"][k]) for k in ("annotations", "labels")},
    )
    before = world.fork()
    before.nodes[NODE]["spec"] = {"providerID": spec["providerID"]}
    before.nodes[NODE]["metadata"]["annotations"] = {}
    before.touch(before.nodes[NODE])
    released(before)
    before.run(5)
    assert steps(before) == ["Pending", "Released"]
    before.nodes[NODE]["spec"] = spec
    before.nodes[NODE]["metadata"].update(meta)
    before.touch(before.nodes[NODE])
    before.run(5)
    assert not before.is_quarantined(NODE)
    assert steps(before) == ["Pending", "Released", "Marked"]


def test_what_people_end_before_its_turn_is_no_fault_that_comes_and_goes() -> None:
    world = fleet(5, budget=NO_ROOM)
    for number in range(8):
        world.incident(NODE, gpu=f"GPU-{NODE}-{number}")
        world.run(5)
        assert len(world.sessions(NODE)) == number + 1
        released(world)
        world.run(5)
        assert world.phase(NODE) == "Released"


def test_a_fault_that_comes_and_goes_untouched_still_waits() -> None:
    world = fleet(5, budget=NO_ROOM)
    for _ in range(12):
        world.incident(NODE)
        world.run(5)
        world.close_all(NODE)
        world.run(5)
    assert len(world.sessions(NODE)) == 1, "one session that is taken up again and again"


def test_a_machine_that_is_new_under_the_name_begins_at_none() -> None:
    world = fleet(5, budget=NO_ROOM)
    for number in range(8):
        world.incident(NODE)
        world.run(5)
        assert len(world.sessions(NODE)) == number + 1
        assert world.phase(NODE) == "Pending"
        world.add_node(NODE)
        world.run(5)
        assert world.phase(NODE) == "NodeGone"


DAEMON = ("apps/v1", "DaemonSet", "agent")
OPERATOR = ("nvidia.com/v1", "ClusterPolicy", "cluster-policy")
DRIVER = ("nvidia.com/v1alpha1", "NVIDIADriver", "default")
NAMESAKE = ("example.com/v1", "ClusterPolicy", "cluster-policy")
LISTED_S = 125
"""A drained node is listed every one to two minutes."""
MIRROR = {"kubernetes.io/config.mirror": "x"}


def drained(**sections: Any) -> World:
    world = fleet(4, **sections)
    world.add_pod("was-here", NODE, owner=None, gpus=1)
    world.fail_until(NODE, "Quarantined")
    world.run(5)
    return world


def test_a_pod_that_stayed_by_policy_is_no_arrival() -> None:
    world = drained()
    world.run(120)
    assert world.condition(NODE, "Blocked") == ""
    assert world.session(NODE).status.drain is not None
    assert "1 skipped by policy" in world.message(NODE)


@pytest.mark.parametrize(
    ("pod", "named"),
    [
        pytest.param({"gpus": 8}, "team-a/new of ReplicaSet web", id="GPU pod of a controller"),
        pytest.param({}, "team-a/new of ReplicaSet web", id="any pod a drain would evict"),
        pytest.param({"owner": None, "gpus": 1}, "team-a/new", id="GPU pod by hand"),
        pytest.param({"owner": None}, "", id="debugging pod by hand"),
        pytest.param({"owner": DAEMON, "gpus": 1}, "", id="DaemonSet"),
        pytest.param({"owner": OPERATOR, "gpus": 1}, "", id="validation by the GPU Operator"),
        pytest.param({"owner": DRIVER, "gpus": 1}, "", id="validation of a driver"),
        pytest.param(
            {"owner": NAMESAKE, "gpus": 1},
            "team-a/new of ClusterPolicy cluster-policy",
            id="a kind of the same name",
        ),
        pytest.param({"owner": None, "annotations": MIRROR, "gpus": 1}, "", id="static pod"),
        pytest.param({"phase": "Succeeded", "gpus": 1}, "", id="finished"),
        pytest.param({"namespace": "kube-system", "owner": DAEMON}, "", id="system DaemonSet"),
    ],
)
def test_who_comes_past_the_scheduler_is_named_until_it_is_gone(
    pod: dict[str, Any], named: str
) -> None:
    world = drained()
    evictions = len(world.writes(d.EvictPod))
    if pod.get("owner") == DAEMON:
        world.add_daemonset_owner(f"DaemonSet-{pod.get('namespace', 'team-a')}-agent")
    world.add_pod("new", NODE, **pod)
    world.run(LISTED_S, step=5)
    assert world.phase(NODE) == "Quarantined"
    reason = "PodArrived" if named else ""
    assert world.condition(NODE, "Blocked") == world.condition(NODE, "NeedsHuman") == reason
    if named:
        assert (
            f"1 pod was bound to the drained node without the scheduler ({named})"
            in world.message(NODE)
        )
        assert "make its owner respect the cordon" in world.message(NODE)
    world.restart()
    world.run(5)
    assert world.condition(NODE, "Blocked") == reason, "a new process reports the same"
    assert len(world.writes(d.EvictPod)) == evictions, "it is reported, not fought"
    del world.pods[pod.get("namespace", "team-a"), "new"]
    world.run(LISTED_S, step=5)
    assert world.condition(NODE, "Blocked") == ""
    assert "without the scheduler" not in world.message(NODE)


def test_an_arrival_holds_up_no_release() -> None:
    world = drained()
    world.add_pod("new", NODE, gpus=8)
    world.run(60)
    world.heal_until_released(NODE)
    world.run(2)
    assert not world.is_quarantined(NODE)
    assert world.condition(NODE, "Blocked") == ""


def test_many_arrivals_stay_one_sentence_and_one_event() -> None:
    world = drained()
    for number in range(30):
        world.add_pod(f"new-{number}", NODE, gpus=1)
    world.run(300)
    assert "30 pods were bound to the drained node without the scheduler" in world.message(NODE)
    assert "and 27 more" in world.message(NODE)
    reported = [e for e in world.events.values() if e["reason"] == "QuarantineNeedsHuman"]
    assert len(reported) == 1


GPU = f"GPU-{NODE}-0"
CHECKED_AGAIN_S = 60.0
"""One node is not checked more often than this for its records."""


def repeats(world: RecordWorld) -> bool:
    return "repeat offender" in world.record().message


def test_a_fault_and_its_repair_are_one_line_of_the_record() -> None:
    world = RecordWorld()
    world.fault()
    record = world.record()
    (event,) = record.events
    assert (event.reason, event.severity, event.node) == ("Xid79GPUFallenOffBus", "Fatal", NODE)
    assert (event.outcome, event.steps) == (FaultOutcome.RELEASED, ("RestartNode",))
    assert event.session == world.session(NODE).name
    assert (record.uuid, record.node) == (GPU, NODE)
    assert "repeat offender" not in record.message
    assert world.keep_records() == 0, "the same facts again write nothing"


def test_a_returning_fault_reports_after_how_long() -> None:
    world = RecordWorld()
    world.fault()
    world.fault(days_later=2)
    first, second = world.record().events
    assert 2 * DAY <= (first.came_back_after or 0) < 2.1 * DAY
    assert second.came_back_after is None


def test_a_repeat_offender_is_never_a_cause() -> None:
    world = RecordWorld()
    world.fail_five_times()
    ended = len(world.sessions(NODE))
    world.run(3600, step=60)
    world.keep_records()
    assert repeats(world)
    assert len(world.sessions(NODE)) == ended
    assert not world.is_quarantined(NODE)


def test_a_manual_release_ends_it() -> None:
    world = RecordWorld()
    world.fail_five_times()
    assert repeats(world)
    text = f"{format_time(world.now)} board looks fine, ticket 4711"
    world.annotate(NODE, "gpuward.io/repaired", text)
    world.run(CHECKED_AGAIN_S, step=30)
    world.keep_records()
    record = world.record()
    assert not repeats(world)
    assert [(one.action, one.reason) for one in record.actions] == [
        ("repaired", "board looks fine, ticket 4711")
    ]


def test_the_record_goes_with_the_gpu_to_another_node() -> None:
    world = RecordWorld()
    world.fault()
    world.healths["n1"]["status"]["gpus"] = [
        {"uuid": GPU, "serial": "S1", "pci": "0000:3b:00.0", "product": "NVIDIA H100"}
    ]
    world.now += DAY
    world.incident("n1", gpu=GPU)
    world.run_until("n1", "Released", limit=40_000, step=25)
    world.keep_records()
    record = world.record()
    assert [place.node for place in record.places] == [NODE, "n1"]
    assert (record.serial, record.places[-1].slot) == ("S1", "0000:3b:00.0")
    assert [event.node for event in record.events] == [NODE, "n1"]
    assert world.keep_records() == 0, "two nodes that know it do not fight"


def test_90_days_end_the_record() -> None:
    world = RecordWorld()
    world.fail_five_times()
    world.healths[NODE]["status"]["incidents"] = []
    world.now += 50 * DAY
    world.keep_records()
    assert repeats(world)
    world.quarantines.clear()
    world.now += 60 * DAY
    world.keep_records()
    assert world.records == {}


def test_a_session_cancelled_by_an_operator_does_not_count() -> None:
    world = RecordWorld(mode="Off")
    for _ in range(5):
        world.now += DAY
        world.run(60, step=20)
        world.fail_until(NODE, "Quarantined", limit=600, step=5)
        world.cordon(NODE, on=False)
        world.run_until(NODE, "Cancelled", limit=600, step=5)
        world.run(10, step=5)
        world.close_all(NODE)
        world.keep_records()
    record = world.record()
    assert {event.outcome for event in record.events} == {FaultOutcome.UNDONE}
    assert "no counted fault in 90 days" in record.message
