"""A simulated fleet: the real rules act on it, in virtual time, and a seed repeats it."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from rules.api.quarantine import Mode
from rules.policy.policy import Budget, MaxUnavailable, Policy, Repair, RepairStep
from rules.repair.shipped import ADAPTERS
from rules.simulate.cluster import rests
from rules.simulate.cluster.gpuward import Gpuward
from rules.simulate.cluster.work import Guard
from rules.simulate.cluster.world import BEGIN, World
from rules.simulate.peers.policies import PEERS
from rules.simulate.run import Run, play
from rules.simulate.score import Ended, Loss, Score
from rules.simulate.truth.generator import node_names
from rules.simulate.truth.kinds import Kind
from rules.simulate.truth.year import Fault, Plants, Year

ENFORCE = msgspec.structs.replace(Policy(), mode=Mode.ENFORCE)
HOUR = 3600.0


def year(*kinds: tuple[Kind, float], nodes: int = 24, days: float = 3.0) -> Year:
    """One fault of each kind, each on a node of its own, from the hour given on, for five
    hours.
    """
    faults = tuple(
        Fault(
            number=number,
            node=2 * number,
            klass="GPU",
            kind=kind,
            gpu=1,
            start=hour * HOUR,
            hours=5.0,
        )
        for number, (kind, hour) in enumerate(kinds)
    )
    return Year(nodes=node_names(nodes), days=days, faults=faults)


def lived(of: Year, policy: Policy = ENFORCE) -> tuple[Score, Gpuward, World]:
    ours = Gpuward(policy)
    world = World(of, ours, random.Random(7))
    return world.run(), ours, world


def phases(ours: Gpuward) -> list[list[str]]:
    return [[entry.step for entry in s.status.timeline] for s in ours.quarantines.values()]


def test_a_terminal_fault_is_found_drained_repaired_and_released_by_the_real_rules() -> None:
    score, ours, world = lived(year((Kind.LOST, 10.0)))

    assert score.terminal == (1, 1)
    assert (score.wrong, score.wrong_drains) == (0, 0)
    assert score.delays[Kind.LOST][0] < 5.0
    (steps,) = phases(ours)
    assert [step for step in steps if step in PHASES] == [
        "Pending",
        "Marked",
        "Draining",
        "Quarantined",
        "Validating",
        "Released",
    ]
    assert all(node.open for node in world.by_number)
    assert score.lost[Loss.REPAIR] == pytest.approx(5 * 8)


PHASES = {"Pending", "Marked", "Draining", "Quarantined", "Validating", "Released", "Cancelled"}


@pytest.mark.parametrize(
    "kind", [Kind.HIDDEN, Kind.TESTED, Kind.HOST_DOWN, Kind.NARROW_LINK, Kind.PORT_DOWN]
)
def test_what_asks_for_no_drain_is_left_to_people(kind: Kind) -> None:
    score, ours, _ = lived(year((kind, 10.0)))

    assert ours.quarantines == {}
    assert score.by_people == 1
    assert score.taken == 0


def test_people_find_sooner_what_is_reported() -> None:
    """The report of a port that is down brings them within the hour, else it takes 16."""
    ours, _, _ = lived(year((Kind.PORT_DOWN, 10.0)))
    nobody = World(year((Kind.PORT_DOWN, 10.0)), PEERS["nothing"](), random.Random(7)).run()

    assert ours.ended[Ended.FAULT_AGAIN] < nobody.ended[Ended.FAULT_AGAIN]


def test_a_false_alarm_is_counted_as_the_mistake_it_is() -> None:
    score, ours, world = lived(year((Kind.FALSE_ALARM, 10.0)))

    assert (score.taken, score.wrong, score.wrong_drains) == (1, 1, 1)
    assert all(node.open for node in world.by_number)
    assert [s.status.phase for s in ours.quarantines.values()] == ["Released"]


def test_one_node_after_another_waits_for_the_rules_of_the_fleet() -> None:
    """A driver that breaks every node at once: the breaker and the correlated cause hold."""
    of = year(*((Kind.BAD_DRIVER, 10.0 + n / 100) for n in range(12)))
    score, _, _ = lived(of)

    assert score.most_out <= 3
    assert score.breaker_h > 0
    assert score.correlated > 0


def test_a_persons_cordon_is_seen_and_is_all_that_a_session_waited_for() -> None:
    """The budget is full, people take the second node by hand: it costs nothing to take it too."""
    budget = Budget(max_unavailable=MaxUnavailable(percent=1, at_most=1))
    policy = msgspec.structs.replace(ENFORCE, budget=budget)

    score, ours, world = lived(year((Kind.LOST, 10.0), (Kind.LOST, 10.5)), policy)

    assert (score.taken, score.by_people, score.terminal) == (2, 1, (2, 2))
    assert score.delays[Kind.LOST][1] == pytest.approx(HOUR, abs=60)
    assert score.lost[Loss.FAULT] < 1.5 * 8, "what people had taken is not lost twice"
    assert score.lost[Loss.DRAIN] < 1.0 * 8, "a node that people mend is in their hands, not idle"
    assert [s.status.phase for s in ours.quarantines.values()] == ["Released", "Released"]
    assert all(node.open for node in world.by_number)
    assert world.clock.calls < 5_000


def test_a_node_that_people_gave_back_gets_work_again() -> None:
    world = World(year((Kind.HIDDEN, 1.0)), PEERS["nothing"](), random.Random(7))

    score = world.run()

    assert score.by_people == 1
    assert world.by_number[0].open
    assert world.by_number[0].pod is not None


def test_a_budget_that_never_allows_an_eviction_needs_a_person_and_is_never_passed_over() -> None:
    of = year((Kind.UNCONTAINED, 10.0))
    ours = Gpuward(ENFORCE)
    world = World(of, ours, random.Random(7))

    def guard() -> None:
        for service in world.work.services:
            service.guard = Guard.ALL

    world.clock.at(BEGIN + 1.0, guard)
    node = world.by_number[0]
    score = world.run()

    assert node.open
    assert score.bypassed == 0
    assert score.terminal == (1, 1)


BY_CONDITION = "NodeConditions"
REPAIRS = msgspec.structs.replace(
    ENFORCE,
    repair=Repair(
        mode="Auto",
        steps={step: RepairStep(adapter=BY_CONDITION) for step in ADAPTERS[BY_CONDITION].steps},
    ),
)


@pytest.mark.parametrize(
    ("hours", "steps"), [(0.5, ["RestartNode"]), (5.0, ["RestartNode", "ReplaceNode"])]
)
def test_the_real_repair_ladder_climbs_until_a_step_helps(hours: float, steps: list[str]) -> None:
    (fault,) = year((Kind.LOST, 10.0)).faults
    of = replace(year((Kind.LOST, 10.0)), faults=(replace(fault, hours=hours),))

    _, ours, world = lived(of, REPAIRS)

    (session,) = ours.quarantines.values()
    assert [attempt.step for attempt in session.status.repair] == steps
    assert session.status.phase == "Released"
    assert all(node.open for node in world.by_number)


def test_deciding_each_minute_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the simulation saves between two changes, the remediator does for nothing."""
    kinds = [Kind.LOST, Kind.CONTAINED, Kind.FALSE_ALARM, Kind.REMAP_FAILED, Kind.NVLINK]
    of = year(*((kind, 5.0 + n / 50) for n, kind in enumerate(kinds)), days=1.0)
    rarely, ours, _ = lived(of)

    monkeypatch.setattr(rests, "LONGEST_S", dict.fromkeys(rests.LONGEST_S, rests.EACH_S))
    each_minute, too, _ = lived(of)

    assert sorted(phases(ours)) == sorted(phases(too))
    assert rarely.found == each_minute.found
    assert rarely.most_out == each_minute.most_out
    for loss in Loss:
        assert rarely.lost[loss] == pytest.approx(each_minute.lost[loss], rel=0.02, abs=0.5)


def test_shadow_touches_nothing() -> None:
    score, ours, _ = lived(year((Kind.LOST, 10.0)), Policy())

    assert score.taken == 0
    assert [s.status.mode for s in ours.quarantines.values()] == ["Shadow"]
    assert score.by_people == 1


@pytest.mark.parametrize("name", [*PEERS, "gpuward"])
def test_a_seed_repeats_a_year_for_every_policy(name: str) -> None:
    run = Run(
        name=name,
        nodes=40,
        days=12,
        seed=5,
        policy=ENFORCE if name == "gpuward" else None,
        plants=Plants(false_alarms=5.0),
    )

    first = play(run, random.Random)

    assert first == play(run, random.Random)
    other = play(replace(run, seed=6), random.Random)
    assert first.faults != other.faults or first.lost != other.lost


def test_every_policy_meets_the_same_faults() -> None:
    """As many begin at least; one that is on hold because the node is out may come later."""
    made = {
        name: sum(play(Run(name=name, nodes=60, days=20, seed=2), random.Random).faults.values())
        for name in ("nothing", "machine-health-check-like", "nvsentinel-like")
    }

    assert max(made.values()) - min(made.values()) <= 0.2 * max(made.values())


def test_ours_makes_no_wrong_drain_and_misses_no_terminal_fault_in_forty_days() -> None:
    run = Run(name="gpuward", nodes=100, days=40, seed=4, policy=ENFORCE)

    score = play(run, random.Random)

    faults, found = score.terminal
    assert faults >= 2
    assert found == faults
    assert (score.wrong, score.wrong_drains) == (0, 0)
