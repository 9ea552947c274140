"""A budget is asked again once its controller has counted who was evicted."""

import asyncio

import pytest

from remediator.controller.evictions import Counting
from rules.api.metadata import ObjectMeta
from rules.api.workloads import PdbStatus, PdbView
from rules.api.writes import EvictPod

KEY = "team-a/web"
EVICTION = EvictPod(node="n0", namespace="team-a", name="p0", uid="u0", pdb=KEY)


def budget(version: str, *disrupted: str) -> PdbView:
    metadata = ObjectMeta(namespace="team-a", name="web", resource_version=version)
    status = PdbStatus(disrupted_pods=dict.fromkeys(disrupted, "2026-11-22T12:00:00Z"))
    return PdbView(metadata=metadata, status=status)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_neither_the_servers_own_note_nor_another_budget_ends_the_wait() -> None:
    pdbs = {KEY: budget("1")}
    waiting = Counting(lambda: pdbs, longest_s=60.0)
    task = asyncio.create_task(waiting.counted(EVICTION, waiting.version(KEY)))
    for version, disrupted in (("1", ()), ("2", ("p0",))):
        pdbs[KEY] = budget(version, *disrupted)
        waiting.changed("team-a/other")
        waiting.changed(KEY)
        await settle()
        assert not task.done()
    pdbs[KEY] = budget("3", "p1")
    waiting.changed(KEY)
    await settle()
    assert task.done()


@pytest.mark.parametrize("pdbs", [{}, {KEY: budget("2")}], ids=["gone", "counted already"])
async def test_nothing_is_waited_for_when_it_is_counted(pdbs: dict[str, PdbView]) -> None:
    await Counting(lambda: pdbs, longest_s=60.0).counted(EVICTION, "1")


async def test_a_controller_that_does_not_count_is_not_waited_for() -> None:
    await Counting(lambda: {KEY: budget("1")}, longest_s=0.0).counted(EVICTION, "1")
