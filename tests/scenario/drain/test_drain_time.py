"""Time that no pod had: clock steps, outages, pauses."""

from __future__ import annotations

import pytest

from rules.api import writes as d
from tests.support.scenario.fleets import NODE, evicted, fleet


@pytest.mark.parametrize("absent", ["paused", "away"])
def test_s46_a_bound_is_not_used_up_while_nothing_could_be_evicted(absent: str) -> None:
    world = fleet()
    world.add_pod("held", NODE, annotations={"karpenter.sh/do-not-disrupt": "true"})
    world.incident(NODE)
    world.run(60)
    if absent == "paused":
        world.pause()
        world.run(1800, step=5)
        world.pauses.clear()
    else:
        world.sleep(1800)
    world.run(500, step=5)
    assert evicted(world) == []
    world.run(60, step=5)
    assert evicted(world) == ["held"]


def test_s45_a_clock_step_fires_no_deadline() -> None:
    world = fleet(drain={"fatalTimeout": "30m", "onTimeout": "Force"})
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(60)
    world.now += 3600
    world.run(60)
    assert not world.writes(d.DeletePod)
    assert world.condition(NODE, "NeedsHuman") != "DrainTimeout"


@pytest.mark.parametrize("restart", [False, True])
def test_s46_an_outage_gives_pods_their_time_back(restart: bool) -> None:
    world = fleet(drain={"fatalTimeout": "30m", "onTimeout": "Force"})
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(600, step=5)
    world.sleep(7200)
    if restart:
        world.restart()
    world.run(1100, step=5)
    assert not world.writes(d.DeletePod)
    world.run(200, step=5)
    assert world.writes(d.DeletePod)
    drain = world.session(NODE).status.drain
    assert drain is not None
    assert abs(drain.suspended_seconds - 7200) <= 10


def test_whoever_leaves_in_its_own_grace_after_the_drain_s_time_calls_nobody() -> None:
    """The budget that kept it is gone, and its pod was told to go."""
    world = fleet(drain={"fatalTimeout": "5m"})
    world.add_pod("kept", NODE, grace=600)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE)
    world.run(400, step=5)
    assert "; the drain's time is over; blocked by PDB team-a/keep" in world.message(NODE)
    world.pdbs.clear()
    world.run(120, step=5)
    assert evicted(world) == ["kept"]
    assert world.phase(NODE) == "Draining"
    assert world.condition(NODE, "NeedsHuman") == ""
    assert world.condition(NODE, "Blocked") == ""
    assert "1 evicted, 1 of them still leaving (team-a/kept); " in world.message(NODE)
    over = "the drain's time is over, and nothing keeps what is left: it goes by itself."
    assert world.message(NODE).endswith(over)


class TestForceKeepsEveryPromise:
    """Deleted only after the later of the promised times, and after an eviction was refused."""

    def test_a_pod_with_a_longer_wait_of_its_own_is_not_deleted_before_it(self) -> None:
        world = fleet(
            drain={"fatalTimeout": "30m", "onTimeout": "Force"},
            pods=[{"selector": "app=web", "strategy": "WaitCompleted", "maxWait": "12h"}],
        )
        world.add_pod("long", NODE)
        world.add_pdb("keep", minAvailable=1)
        world.incident(NODE)
        world.run(11 * 3600, step=60)
        assert not world.writes(d.DeletePod, d.EvictPod)
        world.run(2 * 3600, step=30)
        first, *_ = world.writes(d.DeletePod, d.EvictPod)
        assert isinstance(first, d.EvictPod), "it is asked to go first"
        assert world.writes(d.DeletePod)

    def test_a_do_not_disrupt_that_is_honoured_longer_is_kept(self) -> None:
        world = fleet(drain={"fatalTimeout": "5m", "onTimeout": "Force"})
        world.add_pod("held", NODE, annotations={"karpenter.sh/do-not-disrupt": "true"})
        world.add_pdb("keep", minAvailable=1)
        world.incident(NODE)
        world.run(590, step=10)
        assert not world.writes(d.DeletePod)
        world.run(300, step=10)
        assert world.writes(d.DeletePod)

    def test_a_pod_that_may_end_by_itself_is_asked_before_it_is_deleted(self) -> None:
        world = fleet(
            drain={"fatalTimeout": "5m", "onTimeout": "Force"},
            pods=[{"selector": "app=web", "strategy": "WaitCompleted"}],
        )
        world.add_pod("job", NODE)
        world.incident(NODE)
        world.run(400, step=2)
        assert [type(w).__name__ for w in world.writes(d.DeletePod, d.EvictPod)] == ["EvictPod"]
        assert ("team-a", "job") not in world.pods, "the eviction was enough"
