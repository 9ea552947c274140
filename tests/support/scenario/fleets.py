"""Small fleets, brought into a given phase, and what a test asks about them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rules.api import writes as d
from rules.api.nodes import NodeView
from rules.api.quarantine import DrainStatus
from rules.fleet.common_cause import FleetLabels, keys_for, shared_labels
from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"
OPEN = ["Pending", "Marked", "Draining", "Quarantined", "Validating"]
TAINTED = OPEN[1:]
NO_ROOM = {**ROOMY, "maxUnavailable": {"percent": 0, "atMost": 0}}


def fleet(count: int = 4, *, labels: dict[str, str] | None = None, **sections: Any) -> World:
    world = World(policy_of(**{"budget": ROOMY, **sections}))
    world.add_nodes(count, **(labels or {}))
    return world


def share(percent: float, at_most: int = 50, **more: Any) -> dict[str, Any]:
    return {**ROOMY, "maxUnavailable": {"percent": percent, "atMost": at_most}, **more}


def phases(world: World, names: list[str]) -> list[str]:
    return [world.phase(name) for name in names]


def ours(world: World) -> list[str]:
    return sorted(name for name in world.nodes if world.is_quarantined(name))


def gang_pod(world: World, node: str, job: str = "llm", **annotations: str) -> None:
    world.add_pod(
        f"{job}-{node}",
        node,
        owner=("batch/v1", "Job", f"{job}-worker"),
        labels={"jobset.sigs.k8s.io/jobset-name": job, "app": job},
        annotations=annotations,
        gpus=8,
    )


def evicted(world: World) -> list[str]:
    return [w.name for w in world.writes(d.EvictPod)]


def at(phase: str, **sections: object) -> World:
    """A fleet of five in which `n0` has arrived in `phase` for one incident."""
    budget = NO_ROOM if phase == "Pending" else ROOMY
    world = World(policy_of(**{"budget": budget, **sections}))
    world.add_nodes(5)
    if phase == "Draining":
        world.add_pod("kept", NODE)
        world.add_pdb("keep", minAvailable=1)
    world.incident(NODE, level="Cordon" if phase == "Marked" else "Drain")
    world.run_until(NODE, phase if phase != "Validating" else "Quarantined", limit=60)
    if phase == "Validating":
        world.close_all(NODE)
        world.run_until(NODE, phase, limit=5)
    world.run(3)
    assert world.phase(NODE) == phase
    return world


def drain_of(world: World, node: str = NODE) -> DrainStatus:
    drain = world.session(node).status.drain
    assert drain is not None
    return drain


def evictions_after(world: World, at: float) -> int:
    return sum(1 for t, w, _, _ in world.sent if t > at and isinstance(w, d.EvictPod))


def fleet_labels(nodes: Mapping[str, NodeView], per: tuple[str, ...] = ()) -> FleetLabels:
    """What they share, counted again; `per` as in the policy's budget."""
    keys = keys_for(per)
    of = {name: shared_labels(node.labels, keys) for name, node in nodes.items()}
    return FleetLabels(of, Counter(one for labels in of.values() for one in labels if one))
