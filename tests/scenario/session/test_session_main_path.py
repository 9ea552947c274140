"""The main path in virtual time: a fault opens, marks, drains, quarantines, validates,
releases.
"""

from __future__ import annotations

from tests.support.scenario.session_world import World


def test_a_fatal_fault_goes_the_whole_way() -> None:
    world = World()
    world.add_nodes(10)
    world.add_pod("web-1", "n3")
    incident = world.incident("n3")

    world.run_until("n3", "Quarantined", limit=30)
    assert world.unschedulable("n3")
    assert ("team-a", "web-1") not in world.pods
    assert world.session("n3").status.drain is not None
    drain = world.session("n3").status.drain
    assert drain is not None
    assert drain.evicted == 1

    world.run(600)
    assert world.phase("n3") == "Quarantined"
    world.close("n3", incident)
    world.run_until("n3", "Released", limit=700)
    assert not world.is_marked("n3")
    assert not world.unschedulable("n3")
    assert world.phases("n3") == ["Marked", "Draining", "Quarantined", "Validating", "Released"]


def test_the_same_input_twice_gives_the_same_decisions_and_the_same_words() -> None:
    runs = []
    for _ in range(2):
        world = World()
        world.add_nodes(5)
        for index in range(6):
            world.add_pod(f"web-{index}", f"n{index % 3}", grace=3)
        world.add_pdb("keep", minAvailable=4)
        for name in ("n2", "n0", "n1"):
            world.incident(name)
        world.run(120, step=2)
        runs.append((world.said, [(at, wire, code) for at, _, wire, code in world.sent]))
    assert runs[0] == runs[1]


def test_a_node_that_no_kubelet_reported_is_drained_and_released_too() -> None:
    world = World()
    world.add_nodes(10)
    bare = world.nodes["n3"]
    bare["status"].pop("conditions", None)
    bare["status"].pop("nodeInfo", None)
    incident = world.incident("n3")
    world.run_until("n3", "Quarantined", limit=30)
    world.close("n3", incident)
    world.run_until("n3", "Released", limit=700)
    assert not world.is_marked("n3")
