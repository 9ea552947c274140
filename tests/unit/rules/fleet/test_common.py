"""What nodes with one fault have in common, counted as they come and go."""

import random
from math import exp

import pytest

from rules.api.health import HealthStatus, IncidentStatus
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import HealthView, NodeView
from rules.fleet.budget import NodeCensus
from rules.fleet.common_cause import (
    Alike,
    FleetLabels,
    common_causes,
    found_alike,
    keys_for,
    log_chance,
    nodes_of,
    shared_labels,
)
from rules.policy.policy import Policy
from tests.support.scenario.fleets import fleet_labels

HOT = "ThermalSlowdown"
SEVERAL_RACKS = "one of several values of example.com/rack"


def fleet(count: int, rack_of: int, **labels: str) -> dict[str, NodeView]:
    """Nodes n0 to nN, so many to a rack, all with the same other labels."""
    return {
        f"n{index}": NodeView(
            metadata=ObjectMeta(
                name=f"n{index}",
                labels={"example.com/rack": f"r{index // rack_of}", **labels},
            )
        )
        for index in range(count)
    }


def assessments(
    *nodes: str, reason: str = HOT, active: bool = True, severity: str = "Degraded"
) -> dict[str, HealthView]:
    incident = IncidentStatus(id="i", reason=reason, severity=severity, active=active)
    return {
        node: HealthView(metadata=TimedMeta(name=node), status=HealthStatus(incidents=(incident,)))
        for node in nodes
    }


def several(*indices: int) -> tuple[str, ...]:
    return tuple(f"n{index}" for index in indices)


@pytest.mark.parametrize(
    ("racks", "hot", "found"),
    [
        pytest.param(10, several(*range(8)), "example.com/rack=r0", id="a-complete-rack"),
        pytest.param(10, several(*range(8), 20, 33), "example.com/rack=r0", id="and-two-others"),
        pytest.param(100, several(0, 3, 7), "example.com/rack=r0", id="three-of-800-in-one-rack"),
        pytest.param(10, several(0, 1), None, id="two-are-a-coincidence"),
        pytest.param(10, several(0, 11, 21, 31, 41, 51), None, id="spread"),
        pytest.param(2, several(0, 1, 8, 9), None, id="everywhere"),
        pytest.param(1, several(*range(8)), None, id="nothing-but-one-rack"),
        pytest.param(10, several(*range(24)), SEVERAL_RACKS, id="three-complete-racks"),
        pytest.param(10, several(*range(22), 40), SEVERAL_RACKS, id="nearly-complete-and-another"),
        pytest.param(10, several(*range(0, 80, 2)), None, id="half-of-each"),
        pytest.param(3, several(*range(24)), None, id="the-entire-fleet"),
    ],
)
def test_a_common_cause_is_what_chance_does_not_explain(
    racks: int, hot: tuple[str, ...], found: str | None
) -> None:
    nodes = fleet(racks * 8, 8, **{"node.kubernetes.io/instance-type": "p5"})
    causes = common_causes(fleet_labels(nodes), assessments(*hot))
    assert [cause.shared for cause in causes] == ([] if found is None else [found])


@pytest.mark.parametrize(
    "healths",
    [
        pytest.param(assessments(*several(*range(8)), active=False), id="over"),
        pytest.param(assessments(*several(*range(8)), severity="Info"), id="info-only"),
        pytest.param(assessments(*several(*range(900, 908))), id="nodes-that-are-gone"),
        pytest.param({}, id="all-well"),
    ],
)
def test_only_faults_that_go_on_are_compared(healths: dict[str, HealthView]) -> None:
    assert common_causes(fleet_labels(fleet(80, 8)), healths) == ()


@pytest.mark.parametrize(
    ("racks", "named"),
    [
        pytest.param(3, "one of 3 values of example.com/rack (r0, r1, r2)", id="three"),
        pytest.param(7, "one of 7 values of example.com/rack (r0, r1, r2 and 4 more)", id="seven"),
    ],
)
def test_several_complete_racks_are_counted_and_three_of_them_named(
    racks: int, named: str
) -> None:
    (cause,) = common_causes(fleet_labels(fleet(160, 8)), assessments(*several(*range(racks * 8))))
    assert cause.message == (
        f"ThermalSlowdown on all {racks * 8} nodes with {named}, none elsewhere: look at what "
        "they share first"
    )


def test_a_completely_faulty_pool_is_named_before_its_racks() -> None:
    north = fleet(400, 8, **{"example.com/pool": "north"})
    south = {f"s{name}": node for name, node in fleet(400, 8, **{"example.com/pool": "s"}).items()}
    causes = common_causes(
        fleet_labels({**north, **south}, ("example.com/pool",)), assessments(*north)
    )
    assert [cause.shared for cause in causes] == ["example.com/pool=north"]


def test_a_rack_is_found_under_any_prefix_and_once_only() -> None:
    keys = keys_for(())
    plain = shared_labels({"topology.kubernetes.io/rack": "r1"}, keys)
    assert [one for one in plain if one] == [("topology.kubernetes.io/rack", "r1")]
    own = shared_labels({"acme.example/rack": "r2", "rack": "r3"}, keys)
    assert [one for one in own if one] == [("acme.example/rack", "r2")]


@pytest.mark.parametrize(
    ("hit", "faulty", "group", "fleet_size", "expected"),
    [
        pytest.param(3, 3, 5, 10, 0.125, id="three-coins"),
        pytest.param(1, 2, 5, 10, 1.0, id="as-many-as-expected"),
        pytest.param(3, 4, 5, 10, 0.3125, id="three-of-four-coins"),
        pytest.param(7, 7, 10, 10, 1.0, id="all-share-it"),
        pytest.param(7, 7, 0, 10, 1.0, id="nobody-is-known-to"),
    ],
)
def test_chance(hit: int, faulty: int, group: int, fleet_size: int, expected: float) -> None:
    assert exp(log_chance(hit, faulty, group, fleet_size)) == pytest.approx(expected)


def test_the_chance_of_thousands_is_bounded_and_never_below_what_it_is() -> None:
    assert exp(log_chance(4000, 5000, 100, 10_000)) < 1e-9
    assert exp(log_chance(201, 201, 500, 1000)) == pytest.approx(0.5**201)
    assert exp(log_chance(120, 201, 500, 1000)) > exp(log_chance(119, 200, 500, 1000)) / 10
    assert 0 < exp(log_chance(150, 201, 500, 1000)) < exp(log_chance(120, 201, 500, 1000)) < 1


def test_a_node_with_two_values_counts_once() -> None:
    """Its label has one driver, the evidence of its session another."""
    hits = {("driver", "570.1"): several(0, 1, 2), ("driver", "580.65"): several(0, 1, 2, 3)}
    groups = {("driver", "570.1"): 3, ("driver", "580.65"): 4}
    found = {one.alike.values: one.hit for one in found_alike(hits, 4, groups, 10, 2)}
    assert found == {("570.1",): 3, ("580.65",): 4, ("570.1", "580.65"): 4}
    both = Alike("driver", ("570.1", "580.65"))
    assert nodes_of(both, hits) == several(0, 1, 2, 3)


@pytest.mark.parametrize(
    ("hit", "expected"),
    [(2, "2 of the 3 nodes with"), (3, "all 3 nodes with"), (4, "all 4 nodes with")],
)
def test_never_more_nodes_are_hit_than_there_are(hit: int, expected: str) -> None:
    """The policy selects fewer nodes than it did when the sessions were opened."""
    assert Alike("rack", ("r1",)).among(hit, 3) == f"{expected} rack=r1"


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
def test_incremental_counts_equal_a_full_count(seed: int) -> None:
    rng, census = random.Random(seed), NodeCensus()
    nodes: dict[str, NodeView] = {}
    for _ in range(60):
        name = f"n{rng.randrange(12)}"
        if rng.random() < 0.3:
            nodes.pop(name, None)
        else:
            nodes[name] = node(name, rng)
        census.update(nodes, POLICY)
        chosen = {name: one for name, one in nodes.items() if one.labels.get("gpu") == "yes"}
        recounted = fleet_labels(chosen)
        assert census.labels == FleetLabels(recounted.of, recounted.groups), (
            "no count of none stays"
        )
