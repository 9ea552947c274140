"""Every order of events in a small world: `docs/invariants.md` lists what is explored and what
holds.

The ordinary run explores every single foreign act at every moment; the slow ones several acts, up
to a bound on states. And the exploration is itself tested: defects of the past, put back, are
found.
"""

from dataclasses import replace
from typing import Any

import pytest

from rules.fleet.turns import FleetAssessment, judge_fleet
from rules.session import status as st
from rules.session.case import Case
from rules.session.observation import FleetSnapshot
from tests.support.exploration.search import (
    EVERYBODY,
    FOREIGN,
    PEOPLE,
    Exploration,
    Report,
    exploration,
    play,
)

GANG: dict[str, Any] = {"gang": True, "at_most": 2}
LATER = frozenset({"operator uncordons", "leader"})


def _holds(report: Report, *, complete: bool = True) -> None:
    assert report.counterexample is None, f"\n{report}"
    assert report.complete == complete


def _finds(report: Report, invariant: str) -> None:
    assert report.counterexample is not None, "the defect is not found"
    assert report.counterexample.invariant == invariant, f"\n{report}"


# ---------------------------------------------------------------------- what holds


def test_every_single_foreign_act_at_every_moment() -> None:
    report = exploration(EVERYBODY, 1).run()
    _holds(report)
    assert report.states > 5_000


def test_gangs_keep_their_order_with_every_leader() -> None:
    _holds(exploration(LATER, 1, most_states=800, **GANG).run(), complete=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actors", "most_states", "setting"),
    [
        pytest.param(EVERYBODY, 15_000, {}, id="everybody"),
        pytest.param(FOREIGN, 15_000, {}, id="foreign controllers"),
        pytest.param(PEOPLE, 15_000, {}, id="people and tenants"),
        pytest.param(LATER | {"faults", "lag"}, 15_000, GANG, id="a gang"),
    ],
)
def test_two_foreign_acts_in_every_order(
    actors: frozenset[str], most_states: int, setting: dict[str, Any]
) -> None:
    _holds(exploration(actors, 2, most_states=most_states, **setting).run(), complete=False)


# ---------------------------------------------------------------------- what is found


def _new_leader_guesses(snapshot: FleetSnapshot) -> FleetAssessment:
    """The wait for the reading of gangs counts from the session's past."""
    return judge_fleet(replace(snapshot, acting_since=0.0, observing_since=0.0))


def test_finds_10_when_it_is_put_back() -> None:
    setting: dict[str, Any] = {**GANG, "standby_reads": False, "judge": _new_leader_guesses}
    _finds(exploration(frozenset({"leader"}), 1, **setting).run(), "gangs-in-order")


def _owner_counts_for_ever(case: Case) -> bool:
    """A stored stand-down counts as just over, even after a long outage."""
    paused = st.condition(case.status, "Paused")
    if paused is None or paused.reason != "StandDown":
        return False
    left_at = case.now if paused.status == "True" else st.since(case.status, "Paused")
    return left_at is not None and case.now - left_at <= 60.0


_OWNER_LEAVES_UNOBSERVED = (
    "the leader looks at a",
    "the leader looks at a",
    "Karpenter taints a",
    "the leader looks at a",
    "35 s pass",
    "the leader dies",
    "Karpenter gives up on a",
    "35 s pass",
    "35 s pass",
    "35 s pass",
)


def _long_without_leader() -> Exploration:
    """Node a was quarantined and stood down for Karpenter; no leader decided since it left."""
    actors = frozenset({"karpenter", "leader"})
    before = exploration(actors, 3, faults=(1, 0))
    start = play(before, _OWNER_LEAVES_UNOBSERVED)._replace(left=1)
    return replace(exploration(LATER, 1, faults=(1, 0)), start=start)


def test_finds_14_when_it_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _holds(_long_without_leader().run())
    monkeypatch.setattr("rules.session.taint_restore._owner_just_left", _owner_counts_for_ever)
    _finds(_long_without_leader().run(), "override-holds")


@pytest.mark.parametrize("act", ["faults", "operator", "operator lowers", "reboot"])
def test_finds_15_when_it_is_put_back(act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules.session.recheck._drains", lambda *_: "")
    actors = frozenset({act})
    _finds(exploration(actors, 1, asks_again=False).run(), "evictions-on-plan")


def test_finds_18_when_it_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world: dict[str, Any] = {"faults": (1, 0), "most_states": 600}
    actors = frozenset({"reboot", "driver manager"})
    _holds(exploration(actors, 2, **world).run(), complete=False)
    monkeypatch.setattr("rules.session.taint_restore.restored", lambda _: None)
    monkeypatch.setattr("rules.session.taint_restore.awaits_booking", lambda _: False)
    _finds(exploration(actors, 2, **world).run(), "no-silent-return")


def test_a_session_opened_after_the_boot_knows_its_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actors = frozenset({"reboot", "driver manager"})
    monkeypatch.setattr("rules.session.taint_restore._kubelet_back_at", lambda _: None)
    report = exploration(actors, 2, faults=(1, 0), most_states=600).run()
    _finds(report, "no-silent-return")
    assert report.counterexample is not None
    assert report.counterexample.events[0].endswith(" reboots")


# ---------------------------------------------------------------------- the exploration itself
