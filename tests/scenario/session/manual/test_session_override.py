"""What an operator who leaves a node in service has spoken of: the faults they saw, as they were.

The agent puts later evidence into the same incident (a cause common to many GPUs, a burst, the
driver's answer). What goes on as it was opens nothing; what came since opens one session.
"""

from typing import Any

import pytest

from rules.api.timestamps import format_time
from tests.support.scenario.fleets import NODE, TAINTED, at, evictions_after, fleet
from tests.support.scenario.session_world import World

DAY = 86_000


def fault(world: World) -> dict[str, Any]:
    """The released incident as its agent publishes it."""
    incidents: list[dict[str, Any]] = world.healths[NODE]["status"]["incidents"]
    return incidents[-1]


def end(world: World, how: str = "release") -> None:
    """An operator leaves the node in service."""
    session = world.session(NODE)
    if how == "release":
        world.quarantines[session.name]["spec"]["release"] = {"by": "ada", "reason": "we need it"}
    elif how == "uncordon":
        world.cordon(NODE, on=False)
    else:
        del world.quarantines[session.name]
    world.run(4)
    assert not world.is_quarantined(NODE)


def more_gpus(world: World, *numbers: int) -> None:
    """Others failed within the minute: one cause, so the agent makes one incident of them."""
    fault(world)["gpus"] += [f"GPU-{NODE}-{number}" for number in numbers]
    fault(world).update(scope="Node", count=1 + len(numbers))


CAME_SINCE = {
    "other-gpus": lambda world: more_gpus(world, 1, 2, 3),
    "more-severe": lambda world: fault(world).update(severity="Fatal", level="Drain"),
}
GOES_ON = {
    "again": lambda world: fault(world).update(count=900, lastSeen="2030-01-01T00:00:00Z"),
    "more-is-known": lambda world: fault(world).update(pci=["0000:4e:00.0"], xids=[79, 154]),
    "other-links": lambda world: fault(world).update(links=[1, 2, 3]),
    "milder": lambda world: fault(world).update(severity="Info", reason="Xid154", level="Cordon"),
    "heavier-repair": lambda world: fault(world).update(recommendedAction="ReplaceNode"),
    "gone-from-one": lambda world: fault(world).update(gpus=[f"GPU-{NODE}-0"]),
}


def ended(how: str = "release", severity: str = "Degraded", **incident: Any) -> World:
    """A fault of one GPU whose session an operator ended, in a day in which nothing else
    happens.
    """
    world = fleet(5)
    world.incident(NODE, severity=severity)
    fault(world).update(incident)
    world.run_until(NODE, "Quarantined", limit=60)
    end(world, how)
    return world


@pytest.mark.parametrize("how", ["release", "uncordon", "delete"])
@pytest.mark.parametrize("since", CAME_SINCE)
def test_what_came_since_opens_one_session(how: str, since: str) -> None:
    world = ended(how)
    CAME_SINCE[since](world)
    world.run(5)
    assert len(world.sessions(NODE)) == 2
    assert world.is_quarantined(NODE)
    opened = world.session(NODE)
    first = world.sessions(NODE)[0].name
    assert f"after an operator ended {first}, " in opened.status.timeline[0].message
    end(world, how)
    world.run(DAY / 2, step=600)
    assert len(world.sessions(NODE)) == 2, "a second override covers that, too"


@pytest.mark.parametrize("since", GOES_ON)
def test_the_same_fault_going_on_opens_none(since: str) -> None:
    world = ended(gpus=[f"GPU-{NODE}-0", f"GPU-{NODE}-7"])
    GOES_ON[since](world)
    world.run(DAY / 2, step=600)
    world.restart()
    world.run(DAY / 3, step=600)
    assert len(world.sessions(NODE)) == 1
    assert not world.is_quarantined(NODE)


def test_each_further_gpu_is_asked_about_once() -> None:
    world = ended(severity="Fatal")
    for number in (1, 2, 3):
        more_gpus(world, number)
        world.run(3)
        world.restart()
        world.run(60, step=5)
        assert len(world.sessions(NODE)) == 1 + number
        end(world)
        world.run(3600, step=300)
        assert len(world.sessions(NODE)) == 1 + number


def test_a_leader_that_was_away_sees_what_came_since() -> None:
    world = ended()
    world.restart()
    world.sleep(600)
    more_gpus(world, 1)
    world.run(20)
    assert len(world.sessions(NODE)) == 2


def test_a_fault_published_after_the_override_is_not_covered() -> None:
    """The GPU failed a moment before the release; nobody could have read of it."""
    world = fleet(5)
    world.fail_until(NODE, "Quarantined")
    end(world)
    more_gpus(world, 1, 2, 3)
    world.run(60, step=5)
    assert len(world.sessions(NODE)) == 2


def test_what_was_seen_apart_and_merges_later_is_covered() -> None:
    world = fleet(5)
    world.incident(NODE)
    world.incident(NODE, gpu=f"GPU-{NODE}-1")
    world.run_until(NODE, "Quarantined", limit=60)
    end(world)
    second, first = world.healths[NODE]["status"]["incidents"]
    first["gpus"] += second["gpus"]
    second |= {"active": False, "closedBy": "CommonCause"}
    world.run(DAY / 2, step=600)
    assert len(world.sessions(NODE)) == 1


def test_a_session_continues_if_its_incident_merges_into_a_released_one() -> None:
    world = ended()
    world.incident(NODE, gpu=f"GPU-{NODE}-1")
    world.run_until(NODE, "Quarantined", limit=30)
    second, first = world.healths[NODE]["status"]["incidents"]
    first["gpus"] += second["gpus"]
    second |= {"active": False, "closedBy": "CommonCause"}
    world.run(1800, step=10)
    assert len(world.sessions(NODE)) == 2
    assert world.phase(NODE) == "Quarantined"
    assert {cause.incident for cause in world.session(NODE).spec.causes} == {
        first["id"],
        second["id"],
    }


def test_an_agent_that_starts_between_proves_nothing_new() -> None:
    """A new agent first reports Info, and the earlier severity once it is confirmed."""
    world = ended(severity="Fatal")
    text = dict(fault(world))
    fault(world).update(severity="Info", level="Report")
    world.silence(NODE)
    world.run(400, step=20)
    world.speak(NODE)
    fault(world).update(text)
    world.run(600, step=10)
    assert len(world.sessions(NODE)) == 1


def test_a_release_during_agent_start_covers_its_earlier_faults() -> None:
    world = fleet(5)
    world.fail_until(NODE, "Quarantined")
    text = dict(fault(world))
    fault(world).update(severity="Info", level="Report", reason=text["reason"])
    end(world)
    fault(world).update(text)
    world.run(600, step=10)
    assert len(world.sessions(NODE)) == 1


def test_after_a_reboot_the_same_fault_at_another_address_is_covered() -> None:
    world = ended(pci=["0000:4e:00.0"])
    world.reboot(NODE)
    world.run(30)
    fault(world).update(pci=["0000:51:00.0"])
    world.run(600, step=10)
    assert len(world.sessions(NODE)) == 1
    fault(world)["pci"].append("0000:52:00.0")
    more_gpus(world, 5)
    world.run(30)
    assert len(world.sessions(NODE)) == 2


@pytest.mark.parametrize("skew_s", [-7200, 7200])
def test_the_agents_clock_decides_nothing(skew_s: int) -> None:
    world = ended()
    world.now += 10
    stamp = world.now + skew_s
    fault(world).update(firstSeen=format_time(stamp), lastSeen=format_time(stamp))
    world.run(60, step=5)
    assert len(world.sessions(NODE)) == 1
    more_gpus(world, 1)
    world.run(10)
    assert len(world.sessions(NODE)) == 2


def test_what_came_since_holds_the_node_until_the_fault_is_gone() -> None:
    world = ended()
    more_gpus(world, 1)
    world.run_until(NODE, "Quarantined", limit=30)
    fault(world)["gpus"] = [f"GPU-{NODE}-0"]
    world.run(1200, step=10)
    assert world.phase(NODE) == "Quarantined"
    world.heal_until_released(NODE, limit=1200, step=10)
    assert len(world.sessions(NODE)) == 2


def test_a_session_of_before_this_was_recorded_covers_its_incident_by_id() -> None:
    world = ended()
    status = world.quarantines[world.session(NODE).name]["status"]
    del status["evidence"]["seenWhenEnded"]
    world.restart()
    more_gpus(world, 1, 2)
    world.run(3600, step=60)
    assert len(world.sessions(NODE)) == 1


@pytest.mark.parametrize(
    "kept", [7, "x", [7], [{"id": 3}], [{"gpus": ["a"]}], [["a"]], {"id": "x"}]
)
def test_an_unreadable_record_covers_by_id(kept: object) -> None:
    world = ended()
    world.quarantines[world.session(NODE).name]["status"]["evidence"]["seenWhenEnded"] = kept
    world.restart()
    more_gpus(world, 1)
    world.run(60, step=5)
    assert len(world.sessions(NODE)) == 1


def test_the_override_expires() -> None:
    world = fleet(5, release={"cancelExpiry": "1h"})
    world.fail_until(NODE, "Quarantined")
    end(world)
    world.run(3500, step=50)
    assert len(world.sessions(NODE)) == 1
    world.run(200, step=10)
    assert len(world.sessions(NODE)) == 2
    assert world.session(NODE).status.timeline[0].message == "session opened"


class TestOtherOperatorRequests:
    @pytest.mark.parametrize("since", ["other-gpus", "more-severe"])
    def test_a_lowered_level_is_raised_by_what_came_since(self, since: str) -> None:
        world = fleet(5)
        world.add_pod("kept", NODE)
        world.add_pdb("keep", minAvailable=1)
        world.incident(NODE, severity="Degraded")
        world.run_until(NODE, "Draining", limit=30)
        spec = world.quarantines[world.session(NODE).name]["spec"]
        spec["level"] = "Cordon"
        world.run(5)
        fault(world).update(count=40)
        world.restart()
        world.run(600, step=10)
        assert world.phase(NODE) == "Marked"
        CAME_SINCE[since](world)
        world.run(10)
        assert world.phase(NODE) == "Draining"
        spec = world.quarantines[world.session(NODE).name]["spec"]
        spec["level"] = "Cordon"
        world.run(600, step=10)
        assert world.phase(NODE) == "Marked", "a second override covers that, too"

    def test_a_hold_keeps_the_node_and_what_comes_is_acted_on(self) -> None:
        world = at("Validating")
        world.annotate(NODE, "gpuward.io/hold", "mine")
        world.run(5)
        world.incident(NODE, gpu=f"GPU-{NODE}-3")
        world.run_until(NODE, "Quarantined", limit=30)
        assert len(world.sessions(NODE)) == 1

    def test_a_pause_waits_with_what_came_since(self) -> None:
        world = ended()
        world.pause()
        more_gpus(world, 1)
        world.run(600, step=10)
        assert not world.is_quarantined(NODE)
        assert world.condition(NODE, "Paused") == "Paused"
        world.pauses.clear()
        world.run(5)
        assert world.is_quarantined(NODE)
        assert len(world.sessions(NODE)) == 2

    def test_an_opt_out_stands_whatever_comes(self) -> None:
        world = ended()
        world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
        world.touch(world.nodes[NODE])
        more_gpus(world, 1)
        world.run(600, step=10)
        assert len(world.sessions(NODE)) == 1


@pytest.mark.parametrize("phase", TAINTED)
def test_nothing_is_evicted_for_what_was_released_at_any_phase(phase: str) -> None:
    world = at(phase)
    end(world)
    before = world.now
    fault(world).update(count=50)
    world.run(3600, step=60)
    assert evictions_after(world, before) == 0
    assert len(world.sessions(NODE)) == 1
