"""The generated faults look like a real fleet's, and a seed repeats them."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest

from rules.simulate.truth.classes import RATES
from rules.simulate.truth.generator import node_names, outages
from rules.simulate.truth.measures import Measures, distances, measure

NODES, DAYS = 200, 349.0
FITTED = Measures(
    faults=321,
    rates={
        "Fan": 0.24,
        "GPU": 1.39,
        "NIC": 0.10,
        "Other": 0.37,
        "Parameter Plane Cable": 0.23,
        "Power Supply": 0.21,
        "Stress Test Failure": 0.70,
        "Unknown Error": 1.35,
    },
    hours_p10=0.22,
    hours_p50=17.5,
    hours_p90=309.0,
    down_p50=3.0,
    down_p95=14.0,
    down_max=21.0,
    top_share=0.227,
    recurrence=0.316,
)
"""What was measured on the half of the trace that the generator is fitted on."""


@pytest.fixture(scope="module")
def made() -> list[Measures]:
    names = node_names(NODES)
    return [measure(outages(random.Random(seed), names, DAYS), NODES, DAYS) for seed in range(120)]


def test_issue14_the_generator_is_as_near_to_the_trace_as_it_has_to_be(
    made: list[Measures],
) -> None:
    found = distances(FITTED, made, NODES, DAYS)

    # A class of a handful of faults in all seeds is a matter of dice; its spread says so.
    assert [
        (one.what, round(one.apart, 2))
        for one in found
        if not one.within and not (one.faults is not None and one.faults < 20 and one.covered)
    ] == []


def test_the_trace_is_one_fleet_among_the_generated(made: list[Measures]) -> None:
    assert [one.what for one in distances(FITTED, made, NODES, DAYS) if not one.covered] == []


def test_a_seed_repeats_a_fleet() -> None:
    names = node_names(50)

    again = outages(random.Random(7), names, 100)

    assert again == outages(random.Random(7), names, 100)
    assert again != outages(random.Random(8), names, 100)


def test_a_node_has_one_fault_at_a_time() -> None:
    stays = defaultdict(list)
    for one in outages(random.Random(3), node_names(100), 365):
        stays[one.node].append((one.start, one.end))

    assert all(a[1] <= b[0] for mine in stays.values() for a, b in pairwise(mine))


def test_no_outage_but_one_that_waits_for_parts_is_longer_than_ever_seen() -> None:
    longest = max(one.longest_h for one in RATES.classes) + RATES.shortage_days * 1.5 * 24

    assert max(one.hours for one in outages(random.Random(1), node_names(400), 365)) <= longest
