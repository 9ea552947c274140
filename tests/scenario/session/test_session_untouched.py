"""Which sessions count as ones that did nothing: those whose node was never marked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.api import writes as d
from rules.api.quarantine import Phase
from tests.support.scenario.fleets import NO_ROOM, NODE, fleet
from tests.support.scenario.session_world import CrashError, World


def marked_unrecorded(world: World) -> None:
    """The leader dies after the mark and before its record."""
    world.incident(NODE)

    def dies(write: d.Write) -> None:
        if isinstance(write, d.WriteSessionStatus) and write.status.phase == Phase.MARKED:
            raise CrashError

    world.before_each = dies
    with pytest.raises(CrashError):
        world.run(10)
    world.before_each = None
    assert world.is_marked(NODE)
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
def test_what_ends_between_mark_and_record_counts_as_marked(how: Callable[[World], None]) -> None:
    world = fleet(5)
    for number in range(7):
        marked_unrecorded(world)
        world.restart()
        world.sleep(3)
        at = world.now
        how(world)
        world.run(40, step=5)
        assert not world.is_marked(NODE)
        ended = world.session(NODE).status
        assert ended.phase in {"Released", "Cancelled"}
        assert "before anything was done" not in ended.message
        assert steps(world).count("Marked") == 1
        marked_at = next(entry.at for entry in ended.timeline if entry.step == "Marked")
        assert marked_at < ended.phase_since
        assert len(world.sessions(NODE)) == number + 1, "the seventh opens as the first did"
        assert world.now - at < 60


def test_a_mark_that_lands_after_the_end_is_put_on_record() -> None:
    """The dead leader's mark was on its way when the next one ended the session."""
    world = fleet(5)
    marked_unrecorded(world)
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
    assert not before.is_marked(NODE)
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
