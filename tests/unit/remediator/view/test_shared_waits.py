"""What holds several nodes for the fleet's sake is said once: list, fleet and why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import NODES
from remediator.view.shared_waits import clause_of, shared_waits
from rules.api.nodes import QuarantineView
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    QUARANTINES,
    Object,
    condition,
    node,
    session,
    sick,
    waiting,
)

FULL = "4 of 13 nodes are unavailable, the budget allows 1"
ALIKE = "Xid95 on 3 nodes that share rack=r1 (a, b and c)"
STORM = condition("Storm", "CorrelatedCause", f"The breaker is open: {ALIKE}.")


def views(*objects: Object) -> list[QuarantineView]:
    return [msgspec.convert(one, QuarantineView) for one in objects]


def held(*names: str) -> list[Object]:
    return [waiting(name, "Budget", FULL) for name in names]


def test_only_what_holds_several_for_the_fleet_is_shared() -> None:
    alone = waiting("x", "MaxNew", "the next may at noon")
    own = [waiting(name, "Paused", "paused by ann") for name in ("p", "q")]
    stormy = [waiting(name, "CorrelatedCause", ALIKE, STORM) for name in "abc"]
    found = shared_waits(views(*held("m", "n"), alone, *own, *stormy))
    assert [(one.reason, one.nodes, one.storm) for one in found] == [
        ("CorrelatedCause", 3, True), ("Budget", 2, False),
    ]  # fmt: skip
    assert found[1].line == f"2 nodes wait, Budget: {FULL}"


@pytest.mark.parametrize("phase", ["Released", "Cancelled"])
def test_an_ended_session_waits_for_nothing(phase: str) -> None:
    over = session("x", "x", phase, "m", conditions=[condition("Blocked", "Budget", FULL)])
    assert clause_of(*views(over)) == ""


@pytest.mark.parametrize(
    ("command", "times"),
    [
        pytest.param(("list",), 1, id="list"),
        pytest.param(("list", "-o", "wide"), 1, id="with its sentences"),
        pytest.param(("fleet",), 1, id="fleet"),
        pytest.param(("why", "n-0", "n-1", "n-2"), 1, id="why of several"),
        pytest.param(("why", "n-1"), 1, id="why of one"),
    ],
)
def test_the_sentence_stands_once_however_many_it_holds(
    tmp_path: Path, command: tuple[str, ...], times: int
) -> None:
    names = [f"n-{number}" for number in range(9)]

    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, *(node(name, "unhealthy") for name in names))
        load(hosted, HEALTHS, *map(sick, names))
        load(hosted, QUARANTINES, *held(*names))

    with cluster(tmp_path, fill, led=True) as kubectl:
        code, out, err = kubectl(*command)
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert said.count(FULL) == times
    if command[0] == "list":
        assert f"9 nodes wait, Budget: {FULL}" in said
        assert said.count("Pending") == 9
    if command == ("why", "n-0", "n-1", "n-2"):
        assert said.count("what n-0 waits for, too") == 2
        assert said.count("Budget, as said of n-0") == 2
