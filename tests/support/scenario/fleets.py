"""Fleets with a budget, and gangs on them."""

from __future__ import annotations

from typing import Any

from tests.support.scenario.session_world import ROOMY, World, policy_of


def fleet(count: int, *, labels: dict[str, str] | None = None, **sections: Any) -> World:
    world = World(policy_of(**{"budget": ROOMY, **sections}))
    world.add_nodes(count, **(labels or {}))
    return world


def share(percent: float, at_most: int = 50, **more: Any) -> dict[str, Any]:
    return {**ROOMY, "maxUnavailable": {"percent": percent, "atMost": at_most}, **more}


def phases(world: World, names: list[str]) -> list[str]:
    return [world.phase(name) for name in names]


def ours(world: World) -> list[str]:
    return sorted(name for name in world.nodes if world.is_marked(name))


def gang_pod(world: World, node: str, job: str = "llm", **annotations: str) -> None:
    world.add_pod(
        f"{job}-{node}",
        node,
        owner=("batch/v1", "Job", f"{job}-worker"),
        labels={"jobset.sigs.k8s.io/jobset-name": job, "app": job},
        annotations=annotations,
        gpus=8,
    )
