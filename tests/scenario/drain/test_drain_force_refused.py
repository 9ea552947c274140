"""A policy that deletes by force where the API server lets nobody: said, and gone on without."""

from __future__ import annotations

import pytest

from rules.api import writes as d
from tests.support.scenario.fleets import NODE, fleet


def test_force_without_its_component_says_so_and_goes_on_naming_what_blocks() -> None:
    world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
    world.add_pod("worker", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.refusing[d.SetDisruptionTarget] = (403, 'pods "worker" is forbidden')
    world.incident(NODE)
    world.run(330, step=2)
    assert ("team-a", "worker") in world.pods
    drain = world.session(NODE).status.drain
    assert drain is not None
    assert [(b.pdb, b.pods.names, b.permanent) for b in drain.blocked] == [
        ("team-a/keep", ("team-a/worker",), True)
    ]
    assert world.condition(NODE, "Blocked") == "MissingPermission"
    assert world.condition(NODE, "NeedsHuman") == "MissingPermission"
    assert "blocked by PDB team-a/keep" in world.message(NODE)
    assert "the policy says Force, which the API server refuses" in world.message(NODE)
    assert "apply component force" in world.message(NODE)
    world.refusing.clear()
    world.run_until(NODE, "Quarantined", limit=120)


@pytest.mark.parametrize(
    ("code", "said", "reason", "remedy"),
    [
        (403, 'admission webhook "guard" denied the request: no', "EvictionRefused", "webhook"),
        (422, 'Pod "worker" is invalid', "EvictionRefused", "webhook"),
        (401, "Unauthorized", "MissingPermission", "service account and token"),
    ],
)
def test_who_refuses_a_deletion_by_force_is_who_is_to_be_asked(
    code: int, said: str, reason: str, remedy: str
) -> None:
    world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
    world.add_pod("worker", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.refusing[d.SetDisruptionTarget] = (code, said)
    world.incident(NODE)
    world.run(330, step=2)
    assert world.condition(NODE, "Blocked") == reason
    assert said in world.message(NODE)
    assert remedy in world.message(NODE)
    assert "component force" not in world.message(NODE)
    world.refusing.clear()
    world.run_until(NODE, "Quarantined", limit=120)


def test_walk_the_next_leader_says_no_less_before_it_has_asked() -> None:
    world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
    world.add_pod("worker", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.refusing[d.SetDisruptionTarget] = (403, 'pods "worker" is forbidden')
    world.incident(NODE)
    world.run(330, step=2)
    before = world.message(NODE)
    world.restart()
    said = set()
    for _ in range(20):
        world.run(0.5, step=0.5)
        said.add((world.condition(NODE, "Blocked"), world.message(NODE)))
    assert {reason for reason, _ in said} == {"MissingPermission"}
    assert all("the policy says Force, which the API server refuses" in text for _, text in said)
    assert before in {text for _, text in said}
    world.refusing.clear()
    world.run_until(NODE, "Quarantined", limit=120)
