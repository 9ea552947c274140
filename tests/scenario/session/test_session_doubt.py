"""What is known of the cluster is too old to act on: no harm, no release, and it is said."""

from __future__ import annotations

import pytest

from rules.api import writes as d
from rules.session.recheck import recheck
from tests.support.scenario.fleets import NODE, at, evictions_after
from tests.support.scenario.session_world import ROOMY, policy_of

DOUBT = "what is known of gpuwardpauses is too old to act on: Listing gpuwardpauses failed: 500"


@pytest.mark.parametrize("phase", ["Pending", "Marked", "Draining", "Quarantined", "Validating"])
def test_nothing_harmful_happens_and_the_view_is_named(phase: str) -> None:
    world = at(phase)
    world.doubt = DOUBT
    world.policy = policy_of(budget=ROOMY)
    world.pdbs.clear()
    before, sent = world.now, len(world.sent)
    world.run(900, step=20)
    assert world.phase(NODE) == phase
    assert not [w for _, w, _, _ in world.sent[sent:] if w.harmful]
    assert evictions_after(world, before) == 0
    assert world.condition(NODE, "Paused") == "ViewTooOld"
    blocked = next(c for c in world.session(NODE).status.conditions if c.type == "Paused")
    assert "gpuwardpauses" in blocked.message


@pytest.mark.parametrize(
    ("phase", "then"),
    [("Pending", "Quarantined"), ("Draining", "Quarantined"), ("Validating", "Released")],
)
def test_it_goes_on_by_itself_when_the_view_is_fresh(phase: str, then: str) -> None:
    world = at(phase)
    world.doubt = DOUBT
    world.policy = policy_of(budget=ROOMY)
    world.pdbs.clear()
    world.run(60, step=5)
    assert world.phase(NODE) == phase
    world.doubt = ""
    world.run_until(NODE, then, limit=700)


def test_the_last_look_holds_an_eviction_that_was_decided_before() -> None:
    world = at("Draining")
    node = world.node(NODE)
    eviction = d.EvictPod(node=NODE, namespace="team-a", name="kept", uid="u")
    assert recheck(eviction, node, world.snapshot()) == ""
    world.doubt = DOUBT
    assert recheck(eviction, node, world.snapshot()) == DOUBT


def test_doubt_costs_a_drain_no_time() -> None:
    world = at("Draining")
    world.doubt = DOUBT
    world.run(7200, step=20)
    world.doubt = ""
    world.run(5)
    drain = world.session(NODE).status.drain
    assert drain is not None
    assert drain.suspended_seconds >= 7100
    assert world.condition(NODE, "NeedsHuman") != "DrainTimeout"


def test_an_undone_mark_is_judged_when_owners_are_known_again() -> None:
    world = at("Quarantined")
    world.doubt = "what is known of other operators' maintenance leases is too old to act on"
    world.cordon(NODE, on=False)
    world.run(30)
    assert world.phase(NODE) == "Quarantined"
    assert not world.unschedulable(NODE)
    world.doubt = ""
    world.run(5)
    assert world.phase(NODE) == "Cancelled"
