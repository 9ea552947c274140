"""For every scenario here: an agent restart at a step has only documented effects.

Two steps of each world are tried after the scenario has passed, or up to a hundred with
`GPUWARD_RESTART_AT=every` (`test_restart_everywhere`).
"""

import os
from collections.abc import Iterator
from types import MappingProxyType

import pytest

from tests.support.scenario.judgement_world import World
from tests.support.scenario.restarts import difference

MOST_STEPS = 100
"""Steps after a restart, and restarts of one world with `GPUWARD_RESTART_AT=every`."""

MOST_WORLDS = 3
"""Worlds of a scenario that are tried."""

DOCUMENTED = MappingProxyType(
    {
        "test_a_containment_above_a_passed_through_gpu_is_ignored": "the bus is checked"
        " before the driver has reported which GPU it excludes",
        "test_a_page_that_repeats_even_the_energy_shows_no_gpu": "how long a page has reported "
        "it is"
        " published nowhere, so that each life counts its ten minutes again",
        "test_after_lost_kernel_records_the_exporters_xid_counts": "the last Xid of a page is"
        " published nowhere, so that the first page of a life is no change",
    }
)
"""Differences after a restart that are accepted, as listed in docs/decisions.md."""


@pytest.fixture
def world() -> World:
    """A healthy node after its first poll."""
    return World().start()


@pytest.fixture(autouse=True)
def restarts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Play the scenario's worlds again with restarts once it has passed."""
    World.made.clear()
    yield
    worlds, every = World.made[:MOST_WORLDS], os.environ.get("GPUWARD_RESTART_AT") == "every"
    World.made.clear()
    if request.node.name.partition("[")[0] in DOCUMENTED:
        return
    for world in worlds:
        states, count = [*world.states, world.state], len(world.steps)
        tried = min(count, MOST_STEPS if every else 2)
        for at in sorted({1 + count * (k + 1) // (tried + 1) for k in range(tried)} - {count + 1}):
            found = difference(world.steps, states, at, MOST_STEPS)
            if found is not None and not found.documented:
                pytest.fail(f"a restart after step {at} of {count} changes the result: {found}")
