"""Generated faults: a seed repeats them, and a node has one at a time."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

from hack.fleet.generator import node_names, outages
from hack.fleet.rates import RATES


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
