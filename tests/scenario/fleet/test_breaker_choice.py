"""A bad driver on most nodes: the default policy leaves them in service, the example drains."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.scenario.fleets import fleet, ours
from tests.support.scenario.session_world import World

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "policies" / "prefer-draining.yaml"
NODES = 60


def after_a_bad_driver(**policy: Any) -> World:
    """A fleet an hour after the same Fatal fault began on all but five nodes."""
    world = fleet(NODES, **policy)
    for name in list(world.nodes)[5:]:
        world.incident(name)
    world.run(3600, step=20)
    return world


def test_the_default_policy_takes_a_few_nodes_and_leaves_the_others() -> None:
    assert len(ours(after_a_bad_driver(budget={}))) <= 5


def test_the_example_drains_up_to_half_of_the_fleet() -> None:
    example = yaml.safe_load(EXAMPLE.read_text())

    world = after_a_bad_driver(budget=example["budget"])

    assert len(ours(world)) == NODES // 2
