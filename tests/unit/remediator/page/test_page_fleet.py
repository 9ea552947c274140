"""The front page: from objects to values to what an operator reads."""

import dataclasses

import msgspec
import pytest

from remediator.view.fleet_view import fleet_page
from remediator.view.shapes import FleetFilter, FleetPage
from remediator.view.state import GroupKeys, PageState
from rules.api.nodes import AgentPod, QuarantineView
from rules.api.quarantine import Condition, Mode
from rules.policy.policy import Budget, Policy
from rules.policy.pools import load_policies
from tests.support.remediator.page_fleet import (
    NOW,
    XID_79,
    blocked_session,
    fleet_html,
    health_of,
    node,
    node_html,
    session,
    sick,
    state,
)

BUDGET = "4 of 13 nodes are unavailable, the budget allows 1"


def fleet(of: PageState, **wanted: str) -> FleetPage:
    return fleet_page(of, FleetFilter(**wanted))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"gpuward.io/health": "on fire"}, ("unknown", 8), id="unknown health"),
        pytest.param({"gpuward.io/gpus": "many"}, ("healthy", 0), id="no number"),
        pytest.param({"gpuward.io/gpus": "9999999"}, ("healthy", 0), id="absurd number"),
    ],
)
def test_labels_that_anybody_wrote(labels: dict[str, str], expected: tuple[str, int]) -> None:
    (row,) = fleet(state([node("a", labels=labels)])).nodes

    assert (row.health, row.gpus) == expected


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


def test_why_so_many_are_unknown_after_the_api_server_was_away_is_one_sentence() -> None:
    names = ["a", "b", "c", "d"]
    of = state([node(name) for name in names])
    agents = {
        name: AgentPod(uid=name, node=name, ready=False, ready_changed_at=NOW - 60)
        for name in names
    }
    no_data = dataclasses.replace(of, snapshot=dataclasses.replace(of.snapshot, agents=agents))

    text = "4 of 4 agents' pods stopped being Ready at about the same time"
    assert text in fleet_html(no_data).replace("&#39;", "'")
    assert text not in fleet_html(of).replace("&#39;", "'")


def waiting(name: str, *, opened_s: float, clause: str = BUDGET) -> QuarantineView:
    message = f"Quarantine pending: Xid79. {clause}."
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
            waiting("c", opened_s=60, clause="3 nodes were quarantined within 1h"),
            session("d-1", "d", reason="RowRemapFailure"),
        ],
        [health_of(name, line=XID_79) for name in names],
    )


def test_sessions_that_wait_for_the_same_are_one_row_with_their_nodes_and_ages() -> None:
    groups = fleet(crowd()).sessions
    assert sorted(group.nodes for group in groups) == [("b", "a"), ("c",), ("d",)]
    page = fleet_html(crowd())
    assert page.count(BUDGET) == 1
    assert "2 nodes</summary>" in page
    row = page[page.index("2 nodes</summary>") :]
    assert ">2h</time>" in row[: row.index("</tr>")]
    assert "to 5m" in row[: row.index("</tr>")]


def draining(name: str, opened_s: float) -> QuarantineView:
    message = f"Draining {name}: 2 evicted."
    return session(f"{name}-1", name, opened_s=opened_s, message=message)


def racks_that_drain() -> PageState:
    """Three nodes in two racks that drain for the same reason, and one that is held."""
    return state(
        [
            sick("gpu-a", rack="r2"),
            sick("gpu-b", rack="r1"),
            sick("gpu-c", rack="r2"),
            sick("gpu-d", rack="r3"),
        ],
        [
            draining("gpu-a", 300),
            draining("gpu-b", 600),
            draining("gpu-c", 60),
            session("d-1", "gpu-d", "Marked", opened_s=30, reason="RowRemapFailure"),
        ],
    )


def test_sessions_that_differ_in_node_and_time_are_one_row_with_their_racks() -> None:
    groups = fleet(racks_that_drain()).sessions

    assert [(group.nodes, group.racks) for group in groups] == [
        (("gpu-b", "gpu-a", "gpu-c"), ("r1", "r2")),
        (("gpu-d",), ("r3",)),
    ]
    assert "<td>2 racks</td>" in fleet_html(racks_that_drain())


@pytest.mark.parametrize(
    ("sort", "groups"),
    [
        pytest.param("node", ["abc", "d"], id="node"),
        pytest.param("rack", ["b", "ac", "d"], id="rack splits the groups"),
        pytest.param("phase", ["d", "bac"], id="phase in the order of a session"),
        pytest.param("reason", ["d", "bac"], id="reason"),
        pytest.param("age", ["bac", "d"], id="oldest first"),
        pytest.param("<script>", ["bac", "d"], id="hostile"),
    ],
)
def test_open_sessions_are_sorted_by_a_column(sort: str, groups: list[str]) -> None:
    page = fleet(racks_that_drain(), sort=sort)
    html = fleet_html(racks_that_drain(), sort=sort, rack="r2", q="gpu-a")

    assert ["".join(group.nodes).replace("gpu-", "") for group in page.sessions] == groups
    assert 'href="/?q=gpu-a&amp;rack=r2&amp;sort=' in html
    assert "<script>" not in html


def test_the_page_links_to_the_dashboards_of_a_grafana() -> None:
    of = state([node("a")])
    assert "grafana" not in fleet_html(of).lower()
    url = "https://grafana.example.com"
    of = dataclasses.replace(of, replica=msgspec.structs.replace(of.replica, grafana=url))

    assert f'href="{url}/d/gpuward-fleet"' in fleet_html(of)
    assert f'href="{url}/d/gpuward-node?var-node=a"' in node_html(of, "a")


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


TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, ("other", "other"), id="nothing"),
        pytest.param({TYPE: "p5", ZONE: "a"}, ("p5", "a"), id="falls back to type and zone"),
        pytest.param(
            {"eks.amazonaws.com/nodegroup": "ml", TYPE: "p5"}, ("ml", "other"), id="node group"
        ),
        pytest.param({"pool": "train", TYPE: "p5"}, ("train", "other"), id="bare name"),
        pytest.param(
            {"topology.example.com/rack": "r7", ZONE: "a"}, ("other", "r7"), id="any prefix"
        ),
        pytest.param(
            {"topology.kubernetes.io/rack": "std", "example.com/rack": "own"},
            ("other", "std"),
            id="the standard name first",
        ),
        pytest.param({"example.com/track": "x"}, ("other", "other"), id="only the entire name"),
        pytest.param({"pool": ""}, ("other", "other"), id="empty value"),
    ],
)
def test_pool_and_rack_are_the_first_label_that_names_one(
    labels: dict[str, str], expected: tuple[str, str]
) -> None:
    assert GroupKeys().group(labels) == expected


def test_policies_of_pools_are_shown_with_mode_and_nodes() -> None:
    pools = load_policies(
        [
            {"mode": "Enforce"},
            {"metadata": {"name": "trial"}, "nodeSelector": "team=t", "mode": "Shadow"},
            {"metadata": {"name": "zone"}, "nodeSelector": "zone=z"},
        ]
    )
    assert isinstance(pools, Policy)
    labels: tuple[dict[str, str], ...] = ({}, {}, {"team": "t"}, {"team": "t", "zone": "z"})
    nodes = [node(f"n{i}", labels=its) for i, its in enumerate(labels)]
    found = [(one.name, one.mode, one.nodes) for one in fleet(state(nodes, policy=pools)).policies]
    assert found == [
        ("default", "Enforce", 2),
        ("trial", "Shadow", 1),
        ("zone", "Enforce", 0),
        ("trial and zone", "Shadow", 1),
    ]
    page = fleet_html(state(nodes, policy=pools))
    line = page[page.index('id="policies"') :].partition("</p>")[0]
    assert all(part in line for part in ("default", "2 nodes", "trial and zone", "1 node"))
    assert fleet(state(nodes)).policies == ()
    assert "Policies:" not in fleet_html(state(nodes))
