"""A withdrawal is retried until it succeeds, and other programs' values stay (issue 13)."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from rules.api import writes as d
from rules.api.nodes import QuarantineView
from rules.api.refusal import NodeWrite, refusal_of
from rules.api.repair_writes import ObjectAddress, SetRepairCondition, WriteRepairObject
from rules.repair.objects import ObjectSeen, ReadState
from rules.session.absent import without_session
from rules.session.observation import observe
from rules.session.repair.withdrawal import WITHDRAWAL_S
from tests.support.scenario.fleets import fleet
from tests.support.scenario.provider_world import (
    OWN_ADAPTERS,
    ProviderWorld,
    power_cycle,
    steps_for,
)
from tests.support.scenario.repair_world import NODE, RESTART, RepairWorld, repair_policy
from tests.support.scenario.session_world import World

DENIED = "ValidatingAdmissionPolicy 'x' denied the request: not this condition"
OURS = "n0-1-restartnode-1: RestartNode of a drained node is asked for because of XidError."
FOREIGN = ["", "set by node-problem-detector", "n0: RestartNode", "RestartNode of a drained node"]


def asks(world: World, message: str) -> None:
    """Somebody sets the condition on the Node."""
    condition = {"type": RESTART, "status": "True", "message": message}
    world.nodes[NODE]["status"]["conditions"].append(condition)
    world.touch(world.nodes[NODE])


def sent(world: World) -> list[SetRepairCondition]:
    return world.writes(SetRepairCondition)


@pytest.mark.parametrize("message", FOREIGN)
def test_a_condition_of_others_keeps_no_session_from_opening(message: str) -> None:
    world = RepairWorld(mode="Ask")
    world.refusing[SetRepairCondition] = (403, DENIED)
    asks(world, message)
    world.fail_until(NODE, "Quarantined")
    del world.quarantines[world.session(NODE).name]
    world.close_all(NODE)
    world.run(60)
    assert not world.is_quarantined(NODE)
    assert sent(world) == []


def test_a_condition_that_cannot_be_removed_does_not_block_a_session() -> None:
    world = RepairWorld(mode="Ask")
    world.refusing[SetRepairCondition] = (403, DENIED)
    asks(world, OURS)
    world.fail_until(NODE, "Quarantined")
    assert {write.asks for write in sent(world)} == {False}


@pytest.mark.parametrize(("message", "writes"), [(OURS, 1), *((m, 0) for m in FOREIGN)])
def test_shadow_takes_off_only_what_an_earlier_enforce_left(message: str, writes: int) -> None:
    world = fleet(4, mode="Shadow")
    asks(world, message)
    world.run(30)
    assert [write.asks for write in sent(world)] == [False] * writes


def test_a_leftover_delays_the_removal_of_the_taint_and_is_then_reported() -> None:
    world = RepairWorld(mode="Ask")
    world.fail_until(NODE, "Quarantined")
    asks(world, OURS)
    world.refusing[SetRepairCondition] = (403, DENIED)
    del world.quarantines[world.session(NODE).name]
    world.close_all(NODE)
    world.run(300, step=10)
    assert world.is_quarantined(NODE), "it may be rebooted still"
    world.run(500, step=10)
    assert not world.is_quarantined(NODE)
    (text,) = [e for e in world.events.values() if "may remain on" in e["message"]]
    assert "manually" in text["message"]


@pytest.mark.parametrize("code", [403, 422, 429, 500, 503])
def test_a_take_back_that_is_refused_is_tried_again_before_the_step_has_failed(
    code: int,
) -> None:
    world = power_cycle()
    world.refusing[WriteRepairObject] = (code, "no")
    run(world, 1900)
    assert world.steps_of() == [("PowerCycle", "Asked")]
    assert "could not be withdrawn yet" in world.message(NODE)
    assert stands(world)
    del world.refusing[WriteRepairObject]
    run(world, 200)
    assert world.steps_of() == [("PowerCycle", "Failed")]
    assert not stands(world)
    assert "RequestLeft" not in [e.step for e in world.session(NODE).status.timeline]


@pytest.mark.parametrize("ends", ["step", "session"])
def test_a_permanently_refused_withdrawal_is_left_to_an_operator(ends: str) -> None:
    world = power_cycle()
    world.refusing[WriteRepairObject] = (500, "no")
    if ends == "session":
        world.quarantines[world.session(NODE).name]["spec"]["release"] = {"by": "eve"}
        world.touch(world.quarantines[world.session(NODE).name])
        run(world, 300)
        assert world.is_quarantined(NODE)
        run(world, 600)
        assert world.sessions(NODE)[0].status.phase == "Released"
    else:
        run(world, 2600)
        assert world.steps_of() == [("PowerCycle", "Failed")]
    status = world.sessions(NODE)[0].status
    (text,) = [e.message for e in status.timeline if e.step == "RequestLeft"]
    assert "-powercycle-1 (RepairRefused)" in text
    assert "manually" in text


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            {
                "adapters": {"New": OWN_ADAPTERS["Reboots"]},
                "steps": steps_for("New", "PowerCycle"),
            },
            id="renamed",
        ),
        pytest.param({"mode": "Off", "steps": {}}, id="removed"),
    ],
)
def test_a_request_is_taken_back_when_the_policy_lost_its_adapter(changed: dict[str, Any]) -> None:
    world = power_cycle()
    assert stands(world)
    world.policy = repair_policy(**changed)
    world.restart()
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ada"}
    world.touch(session)
    run(world, 300)
    assert world.phase(NODE) == "Released"
    assert not stands(world)


def run(world: World, seconds: float) -> None:
    world.run(seconds, step=20)


def stands(world: ProviderWorld) -> bool:
    """Whether the request does."""
    return bool(world.requests())


# ------------------------------------------------------------------ asked in an unknown way

HOST = {
    "apiVersion": "metal3.io/v1alpha1",
    "resource": "baremetalhosts",
    "namespace": "metal",
    "name": "host-n0",
    "uid": "u",
}
OFF = {"metadata": {"annotations": {"reboot.metal3.io/gpuward": "{}"}}}


def asked_in_an_unknown_way() -> ProviderWorld:
    """A power cycle under way, through an annotation that this version cannot take off."""
    world = power_cycle()
    session = world.quarantines[world.session(NODE).name]
    record = {"target": {**HOST, "kind": "BareMetalHost"}, "patch": OFF}
    session["status"]["repair"][0] |= {"adapter": "Metal3", "target": HOST, "action": record}
    world.touch(session)
    return world


@pytest.mark.parametrize("ends", ["proven", "failed", "released"])
def test_what_was_asked_in_an_unknown_way_is_followed_and_named_at_its_end(ends: str) -> None:
    world = asked_in_an_unknown_way()
    if ends == "proven":
        world.reboot(NODE)
        world.close_all(NODE)
    if ends == "released":
        world.quarantines[world.session(NODE).name]["spec"]["release"] = {"by": "eve"}
        world.touch(world.quarantines[world.session(NODE).name])
    run(world, 2600)
    status = world.sessions(NODE)[0].status
    want = {"proven": "Proven", "failed": "Failed", "released": "Withdrawn"}[ends]
    assert status.repair[0].state == want
    (text,) = [e.message for e in status.timeline if e.step == "RequestLeft"]
    assert text == (
        "remove it manually: a repair request may remain on baremetalhosts.metal3.io "
        "metal/host-n0 (requested by Metal3)"
    )


# ------------------------------------------------------------------ a session that was deleted


class Deleted:
    """A power cycle under way whose session somebody deleted; its object as the edge reads it."""

    def __init__(self) -> None:
        self.world = power_cycle()
        self.gone: QuarantineView = self.world.session(NODE)
        del self.world.quarantines[self.gone.name]
        self.world.close_all(NODE)
        self.failing_since = self.world.now

    def decided(self, state: ReadState, **changes: Any) -> d.Decision:
        """The decision on a fresh node, with every object read as it is wanted."""
        world = self.world
        objects: dict[ObjectAddress, ObjectSeen] = {}
        seen = observe(world.snapshot(), NODE, sessions={})
        seen = replace(seen, deleted=(self.gone,), objects=objects, **changes)
        for _ in range(4):
            found = without_session(seen, world.now, world.policy)
            if found.needs_object is None:
                return found
            read = world.read_object(found.needs_object)
            if state is not ReadState.FOUND:
                read = ObjectSeen(
                    state=state, read_at=world.now, why="no", failing_since=self.failing_since
                )
            objects[found.needs_object] = read
        raise AssertionError("it is read again and again")


def test_a_deleted_sessions_object_that_cannot_be_read_is_tried_again() -> None:
    deleted = Deleted()
    waits = deleted.decided(ReadState.UNREAD)
    assert (waits.step, waits.unfinished, waits.writes) == ("WithdrawRequest", True, ())
    assert waits.wake_at == deleted.world.now + 10
    back = deleted.decided(ReadState.FOUND)
    assert not back.unfinished
    (write,) = [w for w in back.writes if isinstance(w, WriteRepairObject)]
    assert not write.asks


def test_a_permanent_leftover_of_a_deleted_session_is_an_event() -> None:
    deleted = Deleted()
    deleted.world.now += WITHDRAWAL_S
    for state in (ReadState.UNREAD, ReadState.FORBIDDEN):
        left = deleted.decided(state)
        assert not left.unfinished
        (event,) = [w for w in left.writes if isinstance(w, d.EmitEvent)]
        assert "-powercycle-1" in event.message


def test_a_refused_take_back_of_a_deleted_session_is_kept_in_mind() -> None:
    deleted = Deleted()
    now = deleted.world.now
    text = refusal_of(NodeWrite.UNREPAIR, 429, "busy")
    assert text is not None
    refused = {NodeWrite.UNREPAIR: replace(text, since=now, until=now + 4)}
    waits = deleted.decided(ReadState.FOUND, refused=refused)
    assert (waits.step, waits.unfinished, waits.writes) == ("WithdrawRequest", True, ())
    assert waits.wake_at == now + 4


def test_a_request_that_stands_keeps_no_new_session_from_opening() -> None:
    deleted = Deleted()
    earlier = msgspec.structs.replace(deleted.gone.spec, node_uid="of-an-earlier-node")
    deleted.gone = msgspec.structs.replace(deleted.gone, spec=earlier)
    deleted.world.nodes.pop(NODE)
    deleted.world.add_node(NODE)
    deleted.world.incident(NODE)
    opens = deleted.decided(ReadState.UNREAD)
    assert opens.step == "Open"
    assert opens.unfinished
