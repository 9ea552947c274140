"""The front page: from objects to values to what a person reads."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from remediator.page.rendering import described, headline
from remediator.view.fleet_view import fleet_page
from remediator.view.session_view import session_row
from remediator.view.shapes import Counts, FleetFilter, FleetPage
from remediator.view.state import PageState
from rules.api.health import GpuStatus, HealthStatus
from rules.api.metadata import TimedMeta
from rules.api.nodes import (
    AgentPod,
    HealthView,
    NodeView,
    ObjectMeta,
    PauseView,
    QuarantineView,
)
from rules.api.quarantine import Condition, Mode, PauseScope, PauseSpec
from rules.policy.policy import Budget, Policy
from tests.support.remediator.page_fleet import (
    NOW,
    XID_79,
    blocked_session,
    fleet_html,
    node,
    session,
    sick,
    state,
    verdict,
)

BUDGET = "4 of 13 nodes are unavailable, the budget allows 1"


def fleet(of: PageState, **wanted: str) -> FleetPage:
    return fleet_page(of, FleetFilter(**wanted))


def small() -> PageState:
    return state(
        [node("a"), sick("b", spec={"unschedulable": True}), node("c", rack="r1", ready="False")],
        [blocked_session("b-1", "b"), session("a-0", "a", "Released", opened_s=90_000)],
        [verdict("b")],
    )


def test_a_row_says_what_the_node_and_its_verdict_say() -> None:
    rows = {row.name: row for row in fleet(small()).nodes}

    assert (rows["b"].health, rows["b"].gpus, rows["b"].gpus_healthy) == ("unhealthy", 8, 7)
    assert [(m.index, m.health, m.reason) for m in rows["b"].marks] == [
        (3, "unhealthy", "Xid79GPUFallenOffBus")
    ]
    assert (rows["b"].phase, rows["b"].mode) == ("Draining", "Enforce")
    assert (rows["a"].phase, rows["a"].marks) == ("", ())


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"gpuward.io/health": "on fire"}, ("unknown", 8), id="unknown word"),
        pytest.param({"gpuward.io/gpus": "many"}, ("healthy", 0), id="no number"),
        pytest.param({"gpuward.io/gpus": "9999999"}, ("healthy", 0), id="absurd number"),
    ],
)
def test_labels_that_anybody_wrote(labels: dict[str, str], expected: tuple[str, int]) -> None:
    (row,) = fleet(state([node("a", labels=labels)])).nodes

    assert (row.health, row.gpus) == expected


def test_counts_budget_and_breaker() -> None:
    found = fleet(small())

    assert found.counts == Counts(
        nodes=3, healthy=2, degraded=0, unhealthy=1, unknown=0, unschedulable=1,
        gpus=24, gpus_seen=24, gpus_healthy=23, open_sessions=1, need_human=1,
    )  # fmt: skip
    assert [(row.scope, row.unavailable, row.limit) for row in found.budgets] == [
        ("all selected nodes", 2, 1)
    ]
    assert found.breaker == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"nodes": 0}, "No agent has found a GPU yet", id="nothing"),
        pytest.param({}, "5,000 nodes: all healthy; no open session", id="all well"),
        pytest.param(
            {"unhealthy": 2, "open_sessions": 1},
            "5,000 nodes: 2 unhealthy; 1 open session",
            id="one session",
        ),
        pytest.param(
            {"unknown": 1, "degraded": 3, "open_sessions": 4, "need_human": 1},
            "5,000 nodes: 1 unknown, 3 degraded; 4 open sessions, 1 needs operator action",
            id="needs operator action",
        ),
    ],
)
def test_the_fleet_in_one_sentence(changes: dict[str, int], expected: str) -> None:
    calm = Counts(
        nodes=5000, healthy=5000, degraded=0, unhealthy=0, unknown=0, unschedulable=0,
        gpus=40_000, gpus_seen=40_000, gpus_healthy=40_000, open_sessions=0, need_human=0,
    )  # fmt: skip

    assert headline(msgspec.structs.replace(calm, **changes)) == expected


def test_every_square_says_its_state_in_words() -> None:
    rows = {row.name: row for row in fleet(small()).nodes}

    assert described(rows["a"]) == "a: healthy, 8 of 8 GPUs usable"
    assert described(rows["b"]) == "b: unhealthy, 7 of 8 GPUs usable, Draining"
    assert described(rows["c"]) == "c: healthy, 8 of 8 GPUs usable, kubelet not ready"


def test_only_a_node_that_is_not_even_draws_its_gpus_one_by_one() -> None:
    page = fleet_html(small())

    assert page.count('<span class="q unhealthy"></span>') == 1
    assert page.count('<span class="q healthy"></span>') == 7
    assert 'class="n healthy g8 even" href="/nodes/a"' in page
    assert 'class="n unhealthy session g8" href="/nodes/b"' in page


def test_a_cordon_of_others_and_a_shadow_session_look_different() -> None:
    page = fleet_html(
        state(
            [node("a", spec={"unschedulable": True}), node("b")],
            [session("b-1", "b", "Pending", mode="Shadow")],
        )
    )

    assert "a: healthy, 8 of 8 GPUs usable, cordoned, not by gpuward" in page
    assert "b: healthy, 8 of 8 GPUs usable, Pending (Shadow)" in page
    assert 'class="n healthy cordoned g8 even"' in page
    assert 'class="n healthy shadow g8 even"' in page


@pytest.mark.parametrize(
    ("gpus", "squares"),
    [pytest.param("3", 3, id="odd count"), pytest.param("5000", 64, id="no more than fit")],
)
def test_unusual_gpu_counts_are_drawn_one_by_one(gpus: str, squares: int) -> None:
    labels = {"gpuward.io/gpus": gpus, "gpuward.io/gpus-healthy": gpus}

    assert fleet_html(state([node("a", labels=labels)])).count(
        '<span class="q healthy"></span>'
    ) == (squares)


def test_gpus_are_placed_by_their_index() -> None:
    gpus = tuple(GpuStatus(index=i, health="Degraded" if i == 7 else "Healthy") for i in range(8))
    health = HealthView(
        metadata=TimedMeta(name="a"), status=HealthStatus(health="Degraded", gpus=gpus)
    )
    page = fleet_html(state([node("a", labels={"gpuward.io/health": "degraded"})], (), [health]))

    assert page.count('class="q healthy"></span>') == 7
    assert '<span class="q degraded"></span></a>' in page


def test_open_sessions_come_in_the_order_of_need() -> None:
    page = fleet_html(
        state(
            [node("old"), node("new"), node("stuck")],
            [
                session("old-1", "old", opened_s=900),
                session("new-1", "new", opened_s=100),
                blocked_session("stuck-1", "stuck", opened_s=50),
            ],
        )
    )

    table = page[page.index('id="open"') :]
    places = [table.index(f"/nodes/{name}") for name in ("stuck", "old", "new")]
    assert places == sorted(places)


def test_pauses_an_open_breaker_and_a_view_that_is_behind_are_said_first() -> None:
    scope = PauseScope(all=True)
    pauses = [
        PauseView(
            metadata=ObjectMeta(name="freeze"),
            spec=PauseSpec(scope=scope, reason="release week", by="ana"),
        ),
        PauseView(
            metadata=ObjectMeta(name="over"),
            spec=PauseSpec(scope=scope, reason="long over", until="2020-01-01T00:00:00Z"),
        ),
    ]
    storm = [session(f"n{i}-1", f"n{i}", "Marked") for i in range(4)]
    page = fleet_html(
        state(
            [node(f"n{i}") for i in range(9)],
            storm,
            (),
            pauses,
            problem="No list of nodes.",
            policy_problem="mode is wrong; the last good one goes on.",
        )
    )

    assert "Paused by ana.</strong> all nodes, until it is ended: release week" in page
    assert "long over" not in page
    assert "Circuit breaker open: new quarantines paused." in page
    assert "The view is incomplete or old.</strong> No list of nodes." in page
    assert "The policy file is not valid.</strong> mode is wrong; the last good one" in page


@pytest.mark.parametrize("own", ["", "No list of nodes."])
def test_a_leader_that_cannot_act_is_said_once(own: str) -> None:
    page = fleet_html(
        state([node("n1")], problem=own, leader_problem="It may not open a session.")
    )
    said = "The leader cannot act.</strong> It may not open a session." in page
    assert said == (not own), "what it says of its view is the same"


@pytest.mark.parametrize(
    ("full", "shown", "more"),
    [
        pytest.param(0, 1, "20 more budgets with room.", id="all have room"),
        pytest.param(3, 4, "17 more budgets with room.", id="some are used up"),
        pytest.param(15, 12, "9 more budgets, 4 of them without room.", id="many are used up"),
    ],
)
def test_budgets_without_room_are_shown_and_the_others_counted(
    full: int, shown: int, more: str
) -> None:
    nodes = [
        node(f"n{i}", labels={"rack": f"r{i:02d}"}, spec={"unschedulable": i < full})
        for i in range(20)
    ]
    policy = Policy(mode=Mode.ENFORCE, budget=Budget(per=("rack",)))
    page = fleet_html(state(nodes, policy=policy))

    assert page.count('class="scope"') == shown
    assert more in page


def test_an_empty_fleet_says_where_to_look() -> None:
    page = fleet_html(state())

    assert "No node carries the label gpuward.io/gpus" in page
    assert "No node is quarantined" in page


def unseen(name: str) -> NodeView:
    return node(name, labels={"gpuward.io/health": "unknown"})


def test_only_gpus_that_are_seen_are_counted_as_healthy() -> None:
    found = fleet(state([node("a"), unseen("b")])).counts

    assert (found.gpus, found.gpus_seen, found.gpus_healthy) == (16, 8, 8)


@pytest.mark.parametrize(
    ("blind", "alarmed"), [pytest.param(1, False, id="half"), pytest.param(2, True, id="most")]
)
def test_a_fleet_that_is_mostly_unseen_raises_an_alarm(blind, alarmed) -> None:
    page = fleet_html(state([node("a"), *(unseen(f"b{number}") for number in range(blind))]))

    assert ("Most GPUs are unknown." in page) is alarmed
    assert f"{8 * blind} unknown" in page


def test_an_opt_out_is_not_called_a_pause() -> None:
    halted = Condition(type="Paused", reason="OptOut", message="the node carries the label")
    page = fleet_html(state([sick("a")], [session("a-1", "a", "Pending", conditions=(halted,))]))

    assert "opted out" in page
    assert '">Paused' not in page


def test_why_so_many_are_unknown_after_the_api_server_was_away_is_one_sentence() -> None:
    names = ["a", "b", "c", "d"]
    of = state([node(name) for name in names])
    agents = {
        name: AgentPod(uid=name, node=name, ready=False, ready_changed_at=NOW - 60)
        for name in names
    }
    blind = dataclasses.replace(of, snapshot=dataclasses.replace(of.snapshot, agents=agents))

    said = "4 of 4 agents' pods stopped being Ready at about the same time"
    assert said in fleet_html(blind).replace("&#39;", "'")
    assert said not in fleet_html(of).replace("&#39;", "'")


def waiting(name: str, *, opened_s: float, clause: str = BUDGET) -> QuarantineView:
    message = f"Waiting since {opened_s:.0f} to quarantine it for Xid79: {clause}."
    blocked = Condition(type="Blocked", status="True", reason="Budget", message=f"{clause}.")
    return session(
        f"{name}-1", name, "Pending", opened_s=opened_s, message=message, conditions=(blocked,),
        drain=None,
    )  # fmt: skip


def crowd() -> PageState:
    """Two nodes that wait for the budget, one that waits for something else, one that drains."""
    names = ("a", "b", "c", "d")
    return state(
        [sick(name, rack=f"r{i}") for i, name in enumerate(names)],
        [
            waiting("a", opened_s=300),
            waiting("b", opened_s=7200),
            waiting("c", opened_s=60, clause="the next may at noon"),
            session("d-1", "d", reason="RowRemapFailure"),
        ],
        [verdict(name, line=XID_79) for name in names],
    )


def test_an_ended_session_waits_for_nothing() -> None:
    """Condition Blocked stays as it was when the session ended."""
    opened = waiting("a", opened_s=300)
    status = msgspec.structs.replace(opened.status, phase="Cancelled")
    ended = msgspec.structs.replace(opened, status=status)
    assert [session_row(one).waits_for != "" for one in (opened, ended)] == [True, False]


def test_sessions_that_wait_for_the_same_are_one_row_with_their_nodes_and_ages() -> None:
    groups = fleet(crowd()).sessions
    assert sorted(group.nodes for group in groups) == [("b", "a"), ("c",), ("d",)]
    page = fleet_html(crowd())
    assert page.count(BUDGET) == 1
    assert "2 nodes</summary>" in page
    row = page[page.index("2 nodes</summary>") :]
    assert ">2h</time>" in row[: row.index("</tr>")]
    assert "to 5m" in row[: row.index("</tr>")]


@pytest.mark.parametrize(
    ("wanted", "nodes"),
    [
        pytest.param({}, ["a", "b", "c", "d"], id="nothing"),
        pytest.param({"reason": "RowRemapFailure"}, ["d"], id="reason of a session"),
        pytest.param({"reason": "Xid79GPUFallenOffBus"}, ["a", "b", "c", "d"], id="of a GPU"),
        pytest.param({"rack": "r1"}, ["b"], id="rack"),
        pytest.param({"phase": "Pending"}, ["a", "b", "c"], id="phase"),
        pytest.param({"phase": "Pending", "rack": "r3"}, [], id="both"),
        pytest.param({"health": "healthy"}, [], id="health"),
        pytest.param({"q": "GPU-c-3"}, ["c"], id="UUID"),
        pytest.param({"q": "D-1"}, ["d"], id="session"),
        pytest.param({"rack": "<script>"}, [], id="hostile"),
    ],
)
def test_the_filter_restricts_map_and_sessions_and_not_the_counts(
    wanted: dict[str, str], nodes: list[str]
) -> None:
    found = fleet(crowd(), **wanted)
    assert [row.name for row in found.nodes] == nodes
    assert sorted(name for group in found.sessions for name in group.nodes) == nodes
    assert found.counts.nodes == 4
    page = fleet_html(crowd(), **wanted)
    assert page.count('<a class="n ') == len(nodes)
    assert ("No node matches." in page) is (not nodes)
    assert "<script>" not in page


def test_the_filter_offers_what_there_is() -> None:
    found = fleet(crowd())
    assert found.reasons == ("RowRemapFailure", "Xid79GPUFallenOffBus")
    assert (found.racks, found.phases) == (("r0", "r1", "r2", "r3"), ("Draining", "Pending"))
    page = fleet_html(crowd(), rack="r1")
    assert "<option selected>r1</option>" in page


def test_the_map_stands_before_the_sessions() -> None:
    page = fleet_html(crowd())
    assert page.index('id="map"') < page.index('id="open"') < page.index('id="limits"')
