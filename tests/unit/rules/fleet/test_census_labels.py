"""What nodes share, counted as they come, change and go, is what counting them all anew finds."""

from __future__ import annotations

import random

import pytest

from rules.api.metadata import ObjectMeta
from rules.api.nodes import NodeView
from rules.fleet.budget import NodeCensus
from rules.fleet.common_cause import FleetLabels
from rules.policy.policy import Policy
from tests.support.scenario.fleets import fleet_labels

POLICY = Policy(node_selector="gpu=yes")


def node(name: str, rng: random.Random) -> NodeView:
    chosen = {
        "gpu": rng.choice(["yes", "yes", "no"]),
        "example.com/rack": rng.choice(["r0", "r1", ""]),
        "node.kubernetes.io/instance-type": f"p{rng.randrange(3)}",
    }
    kept = {key: value for key, value in chosen.items() if rng.random() < 0.8}
    return NodeView(metadata=ObjectMeta(name=name, labels=kept))


@pytest.mark.parametrize("seed", range(5))
def test_counted_as_they_come_and_go_is_counted_anew(seed: int) -> None:
    rng, census = random.Random(seed), NodeCensus()
    nodes: dict[str, NodeView] = {}
    for _ in range(60):
        name = f"n{rng.randrange(12)}"
        if rng.random() < 0.3:
            nodes.pop(name, None)
        else:
            nodes[name] = node(name, rng)
        census.look(nodes, POLICY)
        chosen = {name: one for name, one in nodes.items() if one.labels.get("gpu") == "yes"}
        anew = fleet_labels(chosen)
        assert census.labels == FleetLabels(anew.of, anew.groups), "no count of none stays"
