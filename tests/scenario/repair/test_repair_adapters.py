"""Every shipped adapter with every outcome of its provider (issue 13)."""

from dataclasses import replace
from typing import Any

import pytest

from rules.api import writes as d
from rules.api.nodes import QuarantineView
from rules.api.repair_writes import ObjectAddress, WriteRepairObject
from rules.api.requests import request
from rules.repair.adapter import NewObject, Replacement
from rules.repair.ladder import Step
from rules.repair.objects import ReadState
from rules.session.observation import observe
from rules.session.repair.endings import withdraw_leftovers
from tests.support.scenario.provider_world import ROWS, ProviderWorld
from tests.support.scenario.repair_world import NODE
from tests.support.scenario.session_world import kill_points

GIVES_UP = [row for row in ROWS if row[0] == "Remediation" or row[0].endswith("Job")]
FOREIGN = [
    row
    for row in ROWS
    if row[0] not in {"GKE", "GKEMaintenance", "Operation"} and not row[0].endswith("Job")
]
"""Those that ask through an object with a definition of its own."""
KINDS = [
    ("Reboots", "RestartNode"),
    ("Remediation", "RestartNode"),
    ("ClusterAPI", "ReplaceNode"),
    ("Karpenter", "ReplaceNode"),
    ("Operation", "RestartNode"),
    ("ResetGPUJob", "ResetGPU"),
]
"""Every way of asking: new with a name of gpuward or the node's, quarantined, deleted,
labelled.
"""


def live(world: ProviderWorld, seconds: float, step: float = 20) -> None:
    world.run(seconds, step)


def broken(name: str, step: str, does: str = "heals", **repair: Any) -> ProviderWorld:
    world = ProviderWorld(name, step, does, **repair)
    world.fault()
    return world


@pytest.mark.parametrize(("name", "step"), ROWS)
def test_a_provider_that_heals_brings_the_node_back(name: str, step: str) -> None:
    world = broken(name, step)
    for _ in range(30):
        live(world, 120)
        if world.sessions(NODE)[0].status.phase in {"Released", "NodeGone"}:
            break
    live(world, 60)
    first = world.sessions(NODE)[0]
    (attempt,) = first.status.repair
    assert (attempt.step, attempt.state) == (step, "Proven"), attempt.proof
    ends = "NodeGone" if step == Step.REPLACE_NODE else "Released"
    assert first.status.phase == ends
    assert len(world.asked_through()) == 1
    assert world.rejected == []
    assert not world.is_quarantined(NODE)
    assert world.requests() == [], "nothing is left of the request"


@pytest.mark.parametrize(("name", "step"), ROWS)
@pytest.mark.parametrize("does", ["hangs", "lies"])
def test_without_proof_nothing_counts_as_done(name: str, step: str, does: str) -> None:
    world = broken(name, step, does)
    live(world, 300)
    live(world, 900, step=60)
    assert world.steps_of() == [(step, "Asked")]
    live(world, 1200, step=60)
    assert world.steps_of() == [(step, "Failed")]
    assert "not proven within 30 min" in world.session(NODE).status.repair[0].proof
    assert len(world.asked_through()) == 1
    stays = step == Step.REPLACE_NODE and name != "Karpenter"
    assert bool(world.requests()) == (stays and world.phase(NODE) != "Released")


@pytest.mark.parametrize(("name", "step"), GIVES_UP)
def test_who_gives_up_is_not_waited_for(name: str, step: str) -> None:
    world = broken(name, step, "gives up")
    live(world, 300)
    assert world.steps_of() == [(step, "Failed")]
    assert "gave up" in world.session(NODE).status.repair[0].proof
    assert world.condition(NODE, "NeedsHuman") == "NoStepLeft"


@pytest.mark.parametrize(
    ("name", "step", "what"),
    [(*row, "not installed") for row in FOREIGN]
    + [(*row, what) for row in KINDS if row in FOREIGN for what in ("forbidden", "no answer")],
)
def test_an_unreadable_object_is_reported_and_fails_in_time(
    name: str, step: str, what: str
) -> None:
    world = broken(name, step)
    action = world.action
    assert isinstance(action, NewObject | Replacement)
    if what == "not installed":
        world.unserved.add(action.api_version.partition("/")[0])
    else:
        state = ReadState.FORBIDDEN if what == "forbidden" else ReadState.UNREAD
        world.unreadable[action.resource] = state
    live(world, 300)
    assert world.steps_of() == [(step, "Planned")]
    assert world.condition(NODE, "Blocked") == "RepairRefused"
    assert action.resource in world.message(NODE)
    live(world, 600, step=60)
    assert world.steps_of() == [(step, "Failed")]
    assert "the request could not be sent" in world.session(NODE).status.repair[0].proof
    assert world.asked_through() == []


@pytest.mark.parametrize(
    ("name", "step", "code"),
    [(*row, code) for row in KINDS for code in (403, 422, 500)],
)
def test_a_refused_request_is_tried_again_and_fails_in_time(
    name: str, step: str, code: int
) -> None:
    world = broken(name, step)
    world.refusing = {WriteRepairObject: (code, "admission webhook denied the request")}
    live(world, 300)
    assert world.steps_of() == [(step, "Planned")]
    live(world, 600, step=60)
    assert world.steps_of() == [(step, "Failed")]
    assert "the request could not be sent" in world.session(NODE).status.repair[0].proof


@pytest.mark.parametrize(("name", "step"), KINDS)
def test_a_leader_killed_at_any_write_asks_once(name: str, step: str) -> None:
    plain = broken(name, step)
    end = plain.now + 700
    died = kill_points(plain, lambda: live(plain, 600))
    want = [(a.step, a.state) for a in plain.sessions(NODE)[0].status.repair]
    first = next(
        index
        for index, (write, _) in enumerate(died)
        if isinstance(write, d.WriteSessionStatus) and write.status.repair
    )
    for write, world in died[first:]:
        live(world, end - world.now)
        found = [(a.step, a.state) for a in world.sessions(NODE)[0].status.repair]
        assert found == want, write
        assert len(world.asked_through()) == 1, write
        assert len(world.followed) == 1, write


def test_the_timeout_of_a_step_begins_with_the_request() -> None:
    world = broken("Reboots", "RestartNode", "hangs")
    world.unserved.add("janitor.dgxc.nvidia.com")
    live(world, 500)
    assert world.steps_of() == [("RestartNode", "Planned")]
    world.unserved.clear()
    live(world, 60)
    assert world.steps_of() == [("RestartNode", "Asked")]
    live(world, 1700, step=60)
    assert world.steps_of() == [("RestartNode", "Asked")]
    live(world, 200)
    assert world.steps_of() == [("RestartNode", "Failed")]


def paused(world: ProviderWorld, on: bool) -> None:
    """The Machine's owner wants nobody to touch it."""
    notes = world.held("machines")[0]["metadata"].setdefault("annotations", {})
    notes.pop("cluster.x-k8s.io/paused", None)
    if on:
        notes["cluster.x-k8s.io/paused"] = ""


@pytest.mark.parametrize("when", ["before", "planned"])
def test_a_pause_on_the_object_is_waited_for_and_never_climbed_over(when: str) -> None:
    world = broken("ClusterAPI", "ReplaceNode")
    if when == "before":
        paused(world, on=True)
    else:

        def pauses(write: d.Write) -> None:
            if isinstance(write, d.WriteSessionStatus) and write.status.repair:
                paused(world, on=True)

        world.meddler = pauses
    live(world, 4000, step=60)
    world.meddler = None
    assert world.asked_through() == []
    assert world.condition(NODE, "Blocked") == "RepairRefused"
    assert "machines.cluster.x-k8s.io capi/m-n0 has annotation" in world.message(NODE)
    writes = len(world.writes(d.WriteSessionStatus))
    live(world, 1000)
    assert len(world.writes(d.WriteSessionStatus)) == writes, "a wait is reported once"
    paused(world, on=False)
    live(world, 1500)
    assert world.sessions(NODE)[0].status.repair[0].state == "Proven"


@pytest.mark.parametrize(
    ("name", "step"), [("Remediation", "RestartNode"), ("Reboots", "RestartNode")]
)
def test_a_deleted_session_leaves_nothing_that_is_followed_late(name: str, step: str) -> None:
    world = broken(name, step, "hangs")
    live(world, 200)
    gone = world.session(NODE)
    assert world.requests()
    del world.quarantines[gone.name]
    world.close_all(NODE)
    world.now += 30
    seen = {q.text: world.read_object(q) for q in deleted_reads(world, gone)}
    assert seen, "it is read before it is changed"
    assert world.requests() == []


def deleted_reads(world: ProviderWorld, gone: QuarantineView) -> list[ObjectAddress]:
    """What a process that saw the deletion reads and then writes, until nothing is left."""
    objects: dict[ObjectAddress, Any] = {}
    for _ in range(6):
        seen = replace(
            observe(world.snapshot(), NODE, sessions={}, node=world.node(NODE)),
            deleted=(gone,), objects=objects,
        )  # fmt: skip
        found = withdraw_leftovers(seen, world.now, world.policy)
        if isinstance(found, d.Decision):
            assert found.needs_object is not None
            objects[found.needs_object] = world.read_object(found.needs_object)
            continue
        for write in found.writes:
            assert isinstance(write, WriteRepairObject)
            assert not write.disruptive
            assert world.receive(write, request(write)).code < 300
            objects.clear()
        if not found.writes:
            break
    return list(objects)


def test_a_request_that_cannot_be_taken_back_is_named() -> None:
    """The right to read it went while it stood."""
    world = broken("Reboots", "RestartNode", "hangs")
    live(world, 200)
    assert "through rebootnodes.janitor.dgxc.nvidia.com n0-" in world.message(NODE)
    world.unreadable["rebootnodes"] = ReadState.FORBIDDEN
    live(world, 1800, step=60)
    assert world.steps_of() == [("RestartNode", "Failed")]
    (text,) = [e.message for e in world.session(NODE).status.timeline if e.step == "RequestLeft"]
    assert "rebootnodes.janitor.dgxc.nvidia.com n0-" in text
    assert "manually" in text


def test_an_unreadable_object_delays_the_end_for_a_while() -> None:
    world = broken("Remediation", "RestartNode", "hangs")
    live(world, 1700, step=60)
    world.unreadable["selfnoderemediations"] = ReadState.UNREAD
    live(world, 400, step=20)
    assert world.steps_of() == [("RestartNode", "Asked")]
    assert "could not be withdrawn yet" in world.message(NODE)
    live(world, 800, step=20)
    assert world.steps_of() == [("RestartNode", "Failed")]


@pytest.mark.parametrize("what", ["paused", "made by another"])
def test_what_changes_right_before_the_write_is_heard(what: str) -> None:
    """Everything that was judged is a precondition of the write."""
    row = ("ClusterAPI", "ReplaceNode") if what == "paused" else KINDS[1]
    world = broken(*row)
    met: list[d.Write] = []

    def meddles(write: d.Write) -> None:
        if not isinstance(write, WriteRepairObject) or not write.asks or met:
            return
        met.append(write)
        if what == "paused":
            paused(world, on=True)
            world.touch(world.held("machines")[0])
        else:
            at = write.address
            world.put(at.api_version, at.resource, at.name, at.namespace, spec={})

    world.meddler = meddles
    live(world, 1500, step=30)
    assert met
    assert world.asked_through() == []
    assert world.condition(NODE, "Blocked") == "RepairRefused"
