"""A power limit far under the default and under those of the node's other GPUs."""

from __future__ import annotations

import pytest

from rules.catalog.signals import Signal
from tests.support.scenario.judgement_world import World


@pytest.mark.parametrize(
    ("limits", "default", "found"),
    [
        pytest.param((150, 300, 300, 300), 300, True, id="one of four at half"),
        pytest.param((150, 150, 150, 150), 300, False, id="a power plan for all"),
        pytest.param((280, 300, 300, 300), 300, False, id="a little lower"),
        pytest.param((300, 600, 600, 600), 300, False, id="another board with its own default"),
        pytest.param((150,), 300, False, id="alone"),
    ],
)
def test_one_gpu_with_a_low_power_limit_is_reported(
    limits: tuple[int, ...], default: int, *, found: bool
) -> None:
    world = World(len(limits)).start()
    for gpu, limit in enumerate(limits):
        world.values[gpu] |= {Signal.POWER_LIMIT: limit, Signal.POWER_LIMIT_DEFAULT: default}
    world.advance(120, polling=True)
    assert [(i.row.reason, str(i.row.level)) for i in world.active] == [
        ("PowerLimitLow", "Report")
    ] * found
    for gpu in range(len(limits)):
        world.values[gpu] |= {Signal.POWER_LIMIT: default}
    world.advance(120, polling=True)
    assert not world.active
