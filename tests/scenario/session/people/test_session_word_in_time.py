"""A person's word while time goes on: it expires, its length changes, a session is taken up again.

What a session was before it was taken up again says nothing about it now.
"""

from __future__ import annotations

import pytest

from rules.session.override import EVIDENCE_KNOWN, EVIDENCE_LEVEL
from tests.scenario.session.people.test_session_person_covers import end, fault, more_gpus
from tests.support.scenario.fleets import NODE
from tests.support.scenario.session_world import ROOMY, World, policy_of


def ended(expiry: str) -> World:
    """A fault of one GPU whose session a person ended; their word counts for so long."""
    world = World(policy_of(budget=ROOMY, release={"cancelExpiry": expiry}))
    world.add_nodes(5)
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    end(world)
    return world


@pytest.mark.parametrize("restarts", [False, True])
def test_a_word_that_is_made_to_last_longer_ends_nothing(restarts: bool) -> None:
    """The session was opened when it was over: it never was against it."""
    world = ended("1h")
    world.run(3700, step=50)
    assert world.phase(NODE) == "Quarantined"
    world.policy = policy_of(budget=ROOMY, release={"cancelExpiry": "24h"})
    if restarts:
        world.restart()
    world.run(1800, step=20)
    assert len(world.sessions(NODE)) == 2
    assert world.phase(NODE) == "Quarantined"


def test_a_session_that_goes_on_was_lowered_by_nobody() -> None:
    """It waited for a drain; what comes back asks for a cordon."""
    world = World(policy_of(budget=ROOMY))
    world.add_nodes(5)
    world.pause()
    world.incident(NODE, severity="Fatal")
    world.run_until(NODE, "Pending", limit=30)
    world.close_all(NODE)
    world.run_until(NODE, "Cancelled", limit=30)
    world.incident(NODE, severity="Degraded", level="Cordon")
    world.run_until(NODE, "Pending", limit=30)
    world.run(5)
    assert len(world.sessions(NODE)) == 1
    evidence = world.session(NODE).status.evidence
    assert evidence[EVIDENCE_LEVEL] == "Cordon"
    assert EVIDENCE_KNOWN not in evidence
    fault(world).update(level="Drain")
    world.healths[NODE]["status"]["incidents"][0].update(level="Drain")
    world.run(5)
    assert world.session(NODE).spec.level == "Drain"


def lowered_while(unsure: dict[str, object]) -> World:
    """A person takes the level down while the agent starts, and it says again what it had said."""
    world = World(policy_of(budget=ROOMY))
    world.add_nodes(5)
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run_until(NODE, "Draining", limit=30)
    said = dict(fault(world))
    fault(world).update(unsure)
    world.run(2)
    world.quarantines[world.session(NODE).name]["spec"]["level"] = "Cordon"
    world.run(5)
    fault(world).update(said)
    world.run(600, step=10)
    return world


@pytest.mark.parametrize(
    "unsure",
    [
        {"severity": "Info", "level": "Report"},
        {"severity": "Degraded", "level": "Report", "reason": "Unconfirmed"},
    ],
)
def test_a_level_taken_down_while_the_agent_starts_stays_down(unsure: dict[str, object]) -> None:
    world = lowered_while(unsure)
    assert world.session(NODE).spec.level == "Cordon"
    fault(world)["gpus"].append(f"GPU-{NODE}-1")
    world.run(10)
    assert world.session(NODE).spec.level == "Drain", "a GPU that nobody saw"


def versions(world: World) -> dict[str, str]:
    """Whoever writes one of these leaves another version."""
    objects = [*world.quarantines.values(), *world.nodes.values()]
    return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in objects}


def test_what_a_person_said_is_written_once() -> None:
    world = ended("24h")
    more_gpus(world, 1)
    world.run_until(NODE, "Quarantined", limit=30)
    world.run(10)
    before = versions(world)
    world.run(1200, step=40)
    world.restart()
    world.run(1200, step=40)
    assert versions(world) == before
