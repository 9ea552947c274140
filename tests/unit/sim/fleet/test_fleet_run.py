"""A fleet over months under the real rules: who is taken, and how many at once."""

from __future__ import annotations

import msgspec

from hack.fleet.kinds import TERMINAL, Kind
from hack.fleet.run import Fleet, Run
from hack.fleet.year import Plants
from rules.api.quarantine import Mode
from rules.policy.policy import Policy

ENFORCED = msgspec.structs.replace(Policy(), mode=Mode.ENFORCE)


def test_every_terminal_fault_is_found_and_no_node_is_taken_for_nothing() -> None:
    score = Fleet(Run(nodes=20, days=120.0, seed=4, policy=ENFORCED)).play()

    assert sum(score.faults[kind] for kind in TERMINAL) >= 2
    assert {k: score.found[k] for k in TERMINAL} == {k: score.faults[k] for k in TERMINAL}
    assert score.wrong == 0
    assert max(score.delays) < 60.0


def test_a_driver_that_breaks_every_node_takes_no_more_than_the_budget() -> None:
    plants = Plants(bad_driver_day=0.5)
    score = Fleet(Run(nodes=12, days=1.0, seed=1, policy=ENFORCED, plants=plants)).play()

    assert score.faults[Kind.BAD_DRIVER] == 12
    assert score.most_out == 1


def test_in_shadow_no_node_is_taken() -> None:
    score = Fleet(Run(nodes=20, days=30.0, seed=1, policy=Policy())).play()

    assert score.most_out == 0
    assert not score.found
