"""The main path in virtual time: a fault opens, marks, drains, quarantines, validates, releases."""

from session_world import World


def test_a_fatal_fault_goes_the_whole_way() -> None:
    world = World()
    world.add_nodes(10)
    world.add_pod("web-1", "n3")
    incident = world.incident("n3")

    world.run_until("n3", "Quarantined", limit=30)
    assert world.unschedulable("n3")
    assert ("team-a", "web-1") not in world.pods
    assert world.session("n3").status.drain is not None
    assert world.session("n3").status.drain.evicted == 1

    world.run(600)
    assert world.phase("n3") == "Quarantined"
    world.close("n3", incident)
    world.run_until("n3", "Released", limit=700)
    assert not world.is_marked("n3")
    assert not world.unschedulable("n3")
    assert world.phases("n3") == ["Marked", "Draining", "Quarantined", "Validating", "Released"]
