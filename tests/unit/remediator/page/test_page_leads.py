"""Everything on the pages leads somewhere: counts, searches, reasons; what is wrong comes
first.
"""

import dataclasses
import html
import re

import pytest

from remediator.page.rendering import runbook_html, runbooks
from remediator.page.site import only_match
from remediator.view.fleet_view import search
from remediator.view.shapes import FleetFilter
from remediator.view.state import PageState
from rules.api.gpu_record import RecordPlace, RecordStatus, RecordView
from rules.api.metadata import ObjectMeta
from tests.support.remediator.page_fleet import (
    blocked_session,
    fleet_html,
    health_of,
    node,
    node_html,
    session,
    sick,
    state,
)


def ill() -> PageState:
    return state(
        [node("a-1"), sick("b-1", spec={"unschedulable": True}), node("b-2")],
        [blocked_session("b-1-0badcafe", "b-1")],
        [health_of("b-1")],
    )


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        pytest.param("a-1", "/nodes/a-1", id="a name"),
        pytest.param("b-", "", id="a part of several: all are shown"),
        pytest.param("GPU-b-1-3", "/nodes/b-1", id="UUID"),
        pytest.param("s3", "/nodes/b-1", id="serial number, in any case"),
        pytest.param("b-1-0badcafe", "/nodes/b-1#session-b-1-0badcafe", id="session"),
        pytest.param("0badc", "/nodes/b-1#session-b-1-0badcafe", id="a part of one's name"),
        pytest.param("//example.com", "", id="nothing"),
        pytest.param("", "", id="no search"),
    ],
)
def test_a_search_leads_to_what_it_may_mean(asked: str, address: str) -> None:
    assert only_match(ill(), FleetFilter(q=asked)) == address


def test_a_search_names_nodes_that_are_gone() -> None:
    of = state([node("b-2")], [session("b-1-0", "b-1", "NodeGone"), session("b-2-0", "b-2")])
    assert list(search(of, "b-")) == ["b-2", "b-1"]
    page = fleet_html(of, q="b-")
    assert 'Gone: <a href="/nodes/b-1">' in page


def test_a_gpu_that_is_only_on_record_is_found() -> None:
    status = RecordStatus(uuid="GPU-77", serial="1654", places=(RecordPlace(node="a-1"),))
    record = RecordView(metadata=ObjectMeta(name="gpu-77"), status=status)
    of = ill()
    of = dataclasses.replace(
        of, snapshot=dataclasses.replace(of.snapshot, records={"gpu-77": record})
    )
    assert only_match(of, FleetFilter(q="1654")) == "/nodes/a-1"


def test_a_blocker_links_to_the_section_about_its_reason() -> None:
    page = node_html(ill(), "b-1")
    (link,) = set(re.findall(r'href="(/docs/blocked[^"]+)"', page))
    assert link == "/docs/blocked.md#budgetneverallows"
    assert '<h3 id="budgetneverallows">BudgetNeverAllows</h3>' in runbook_html("blocked.md")


@pytest.mark.parametrize("path", sorted(runbooks()))
def test_every_runbook_is_a_page_with_all_its_lines_and_working_links(path: str) -> None:
    page, text = runbook_html(path), runbooks()[path]
    read = html.unescape(re.sub(r"<[^>]+>", "", page))
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [block for block in blocks if block.rstrip("\n") not in read] == []
    assert not re.search(r"\\x|&\w+;", read), "an escape that nobody undid"
    rows = re.findall(r"^\|(?![-| ]+\|$)", text, re.MULTILINE)
    assert (page.count("<tr>"), page.count("<h1 ")) == (len(rows), 1)
    for link in re.findall(r'href="([^"]*)"', page):
        target, _, anchor = link.removeprefix("/docs/").partition("#")
        assert link.startswith("/docs/")
        assert target in runbooks()
        assert not anchor or f'id="{anchor}"' in runbook_html(target)
