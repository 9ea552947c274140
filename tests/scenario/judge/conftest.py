"""For every scenario here: an agent restart at a step changes nothing but what is documented.

Two steps of each world are tried after the scenario itself has passed; up to a hundred of each
where `GPUWARD_RESTART_AT` says `every` (`test_restart_everywhere`).
"""

import os
from collections.abc import Iterator
from types import MappingProxyType

import pytest

from tests.support.scenario.judgement_world import World
from tests.support.scenario.restarts import difference

MOST_STEPS = 100
"""Steps played behind a restart, and restarts of one world where every step is asked for."""

MOST_WORLDS = 3
"""Of a scenario that makes hundreds alike."""

DOCUMENTED = MappingProxyType(
    {
        "test_a_containment_above_a_gpu_that_is_given_away_is_none_of_ours": "the bus is checked"
        " before the driver has said which GPU it leaves out",
        "test_a_page_that_repeats_even_the_energy_shows_no_gpu": "how long a page has reported "
        "it is"
        " published nowhere, so that each life counts its ten minutes again",
        "test_after_lost_kernel_records_the_exporters_xid_counts": "the last Xid of a page is"
        " published nowhere, so that the first page of a life is no change",
    }
)
"""What a restart may change beyond what was under way; the same stands in docs/decisions.md."""


@pytest.fixture
def world() -> World:
    """A sound node, checked once."""
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
                pytest.fail(f"a restart behind step {at} of {count} changes what is said: {found}")
