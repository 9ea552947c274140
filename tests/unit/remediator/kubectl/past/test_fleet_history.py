"""`history` without a node: what was done to the whole fleet of late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import NODES
from remediator.kubectl.past.fleet_history import lately
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import QuarantineSpec
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import NOW, QUARANTINES, Object, ago, node, session

DAY = 24 * 60
"""Minutes."""


def ended(name: str, on: str, phase: str, minutes_ago: float, by: str) -> Object:
    """A session whose mark was on for two hours."""
    made = session(name, on, phase, "It is over.", phaseSince=ago(minutes_ago))
    made["status"]["timeline"] = [
        {"at": ago(minutes_ago + 120), "step": "Marked", "by": "gpuward"},
        {"at": ago(minutes_ago), "step": phase, "by": by},
    ]
    return made


def said(tmp_path: Path, *arguments: str, sessions: tuple[Object, ...]) -> str:
    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, node("a", labels={"rack": "r1"}), node("b", labels={"rack": "r2"}))
        load(hosted, QUARANTINES, *sessions)

    with cluster(tmp_path, fill) as kubectl:
        code, out, err = kubectl("history", *arguments)
    assert (code, err) == (0, "")
    return out


OPEN = session("s-open", "a", "Draining", "It drains.", phaseSince=ago(30 * DAY))
SESSIONS = (
    OPEN,
    ended("s-old", "b", "Released", 8 * DAY, "gpuward"),
    ended("s-week", "b", "Released", 6 * DAY, "ann"),
    ended("s-gone", "c", "NodeGone", 60, "gpuward"),
)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        pytest.param((), {"s-open", "s-week", "s-gone"}, id="a week"),
        pytest.param(("--since", "24h"), {"s-open", "s-gone"}, id="a day"),
        pytest.param(("--since", "0"), {"s-open", "s-old", "s-week", "s-gone"}, id="all"),
        pytest.param(("-l", "rack=r2"), {"s-week"}, id="by label"),
    ],
)
def test_what_was_open_at_any_time_since_then_is_told(
    tmp_path: Path, arguments: tuple[str, ...], names: set[str]
) -> None:
    found = json.loads(said(tmp_path, *arguments, "-o", "json", sessions=SESSIONS))
    assert {one["metadata"]["name"] for one in found["items"]} == names


def test_the_newest_stands_first() -> None:
    made = [
        QuarantineView(
            metadata=ObjectMeta(name=name, creation_timestamp=ago(days * DAY)),
            spec=QuarantineSpec(node_name=name),
        )
        for name, days in (("b", 2), ("a", 1), ("c", 3))
    ]
    assert [one.name for one in lately(made, 7 * 86_400, NOW)] == ["a", "b", "c"]


def test_a_line_says_how_it_ended_how_long_it_was_out_and_who_ended_it(tmp_path: Path) -> None:
    found = said(tmp_path, sessions=(ended("s", "b", "Released", 60, "ann"),))
    assert found.startswith("1 session of 1 node, 0 still open, 0 pods evicted, in the last 7d\n")
    line = found.splitlines()[-1]
    assert " Released " in line
    assert " 2h " in line
    assert line.endswith("gpuward, ended by ann")


def test_a_line_says_who_let_its_repair_go(tmp_path: Path) -> None:
    """Whoever audits a week asks who approved what was done, not only who began and ended it."""
    made = ended("s", "b", "Released", 60, "gpuward")
    for step, by in (("RestartNode", "ann"), ("ReplaceNode", "bob"), ("PowerCycle", "ann")):
        let_go = {"at": ago(90), "step": "LetGo", "by": by, "subject": step, "message": "ticket 7"}
        made["status"]["timeline"].insert(1, let_go)
    line = said(tmp_path, sessions=(made,)).splitlines()[-1]
    assert line.endswith("gpuward, repair let go by ann, bob")


def test_where_nothing_was_it_says_so(tmp_path: Path) -> None:
    assert said(tmp_path, sessions=()).strip() == "no session was open in the last 7d"


def test_a_session_that_was_opened_anew_is_told_from_then_on(tmp_path) -> None:
    """What it was before its end is over: neither its age nor how long it lasted counts that."""
    again = session("a-1", "a", "Pending", "Opened anew.", phaseSince=ago(5))
    again["metadata"]["creationTimestamp"] = ago(55)
    again["status"]["timeline"] = [
        {"at": ago(55), "step": "Pending", "by": "gpuward"},
        {"at": ago(50), "step": "Cancelled", "by": "gpuward"},
        {"at": ago(5), "step": "Pending", "by": "gpuward"},
    ]
    since = ago(5)[:16].replace("T", " ")
    assert f"{since} UTC, anew" in said(tmp_path, sessions=(again,))
    row = next(
        line for line in said(tmp_path, "a", sessions=(again,)).splitlines() if "a-1" in line
    )
    assert f"{since}:" in row
    assert " UTC, anew " in row
    assert " 5m " in row
