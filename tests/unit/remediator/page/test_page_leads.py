"""Everything on the pages leads somewhere: counts, searches, reasons; what is wrong comes
first.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from hack import runbooks as generated
from remediator.page.answers import NotThereError, api_fleet, document_of, find, runbook_of
from remediator.page.markup import render
from remediator.page.runbook_page import runbooks
from remediator.view.shapes import FleetSummary
from remediator.view.state import PageState
from rules.api.health import Topology
from rules.api.nodes import ObjectMeta, PauseView
from rules.api.quarantine import PauseScope, PauseSpec
from rules.catalog.why_not import WhyNot
from rules.ledger.record import RecordPlace, RecordStatus, RecordView
from tests.support.remediator.page_fleet import (
    blocked_session,
    node,
    session,
    sick,
    state,
    verdict,
)


def ill() -> PageState:
    return state(
        [node("a-1"), sick("b-1", spec={"unschedulable": True}), node("b-2")],
        [blocked_session("b-1-0badcafe", "b-1")],
        [verdict("b-1")],
    )


def shown(of: PageState, path: str, **query: str) -> str:
    return render(document_of(of, path, query))


def test_issue15_11_every_count_leads_to_its_nodes() -> None:
    front = shown(ill(), "/")
    links = re.findall(r'<dd><a href="([^"]+)"', front)
    assert links == [
        "/nodes", "/nodes?health=healthy", "/nodes?health=degraded", "/nodes?health=unhealthy",
        "/nodes?health=unknown", "/nodes?out=yes",
    ]  # fmt: skip
    assert 'href="/nodes/b-1"' in shown(ill(), "/nodes", health="unhealthy")
    assert 'href="/nodes/a-1"' not in shown(ill(), "/nodes", health="unhealthy")
    assert 'href="/nodes/b-1"' in shown(ill(), "/nodes", out="yes")
    assert "There is none." in shown(ill(), "/nodes", health="unknown")


@pytest.mark.parametrize(
    "path", ["/", "/nodes", "/nodes/b-1", "/sessions", "/sessions/b-1-0badcafe", "/history"]
)
def test_every_moment_on_a_page_names_its_zone(path: str) -> None:
    """But for the ticks of a drawing, below which it stands."""
    pause = PauseView(
        metadata=ObjectMeta(name="p"),
        spec=PauseSpec(scope=PauseScope(all=True), until="2026-03-05T14:00:00Z"),
    )
    of = dataclasses.replace(
        ill(), snapshot=dataclasses.replace(ill().snapshot, pauses={"p": pause})
    )
    page = shown(of, path)
    read = re.sub(r'<svg.*?</svg>| datetime="[^"]*"', "", page, flags=re.DOTALL)
    assert not re.search(r"\dT\d\d:\d\d", read)
    moments = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: UTC)?", read)
    assert moments, "every page says of when it is"
    assert all(moment.endswith(" UTC") for moment in moments)


def test_issue15_11_the_sick_come_first_in_the_list_of_all_nodes() -> None:
    assert re.findall(r'href="/nodes/([^"?]+)"', shown(ill(), "/nodes"))[0] == "b-1"


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        pytest.param("a-1", "/nodes/a-1", id="a name"),
        pytest.param("b-", "/nodes?search=b-", id="a part of several: all are listed"),
        pytest.param("GPU-b-1-3", "/nodes/b-1", id="UUID"),
        pytest.param("s3", "/nodes/b-1", id="serial number, in any case"),
        pytest.param("b-1-0badcafe", "/sessions/b-1-0badcafe", id="session"),
        pytest.param("0badc", "/nodes/b-1", id="a part of a session's name"),
    ],
)
def test_issue15_11_a_search_leads_to_what_it_may_mean(asked: str, address: str) -> None:
    assert find(ill(), asked) == address


def test_issue15_11_several_that_a_search_may_mean_are_all_listed_with_why() -> None:
    page = shown(ill(), "/nodes", search="b-")
    assert re.findall(r'href="/nodes/([^"]+)"', page) == ["b-1", "b-2"]
    assert "its name" in page


def test_issue15_11_a_gpu_that_is_only_on_record_is_found() -> None:
    status = RecordStatus(uuid="GPU-77", serial="1654", places=(RecordPlace(node="a-1"),))
    record = RecordView(metadata=ObjectMeta(name="gpu-77"), status=status)
    of = ill()
    of = dataclasses.replace(
        of, snapshot=dataclasses.replace(of.snapshot, records={"gpu-77": record})
    )
    assert find(of, "1654") == "/nodes/a-1"


@pytest.mark.parametrize("asked", ["", "zzz", "//example.com", "<b>"])
def test_issue15_11_a_search_that_finds_nothing_says_what_it_looks_at(asked: str) -> None:
    with pytest.raises(NotThereError, match="serial number or a UUID is enough"):
        find(ill(), asked)


def test_issue15_11_faults_stand_before_what_is_well() -> None:
    page = shown(ill(), "/nodes/b-1")
    assert page.index('id="incidents"') < page.index('id="gpus"')
    rows = page[page.index('id="gpus"') :]
    assert rows.index("Xid79") < rows.index("GPU-b-1-0")


def test_issue15_11_the_sick_gpu_is_marked_in_the_topology() -> None:
    matrix = "\tGPU0\tGPU3\nGPU0\tX\tNV18\nGPU3\tNV18\tX"
    found = verdict("b-1", topology=Topology(links=matrix))
    page = shown(state([sick("b-1")], [], [found]), "/nodes/b-1")
    assert re.search(r'class="sick">GPU3 .*unhealthy: Xid79GPUFallenOffBus', page)
    assert page.count('class="sick"') == 1


def test_issue15_11_a_node_has_one_timeline_of_faults_and_steps() -> None:
    page = shown(ill(), "/nodes/b-1")
    steps = page[page.index('id="steps"') :]
    for lane in ("Faults", "Sessions"):
        assert f">{lane}</text>" in steps
    rows = steps[steps.index("The same as a table") :]
    assert rows.index("Xid79") < rows.index("Marked")  # the latest first
    assert "goes on" in rows


def test_issue15_11_what_blocks_leads_to_its_runbook_and_the_runbook_is_there() -> None:
    page = shown(ill(), "/sessions/b-1-0badcafe")
    (link,) = set(re.findall(r'href="(/docs/runbooks/blocked/[^"]+)"', page))
    assert link == "/docs/runbooks/blocked/BudgetNeverAllows.md"
    book = runbook_of(ill(), link)
    assert "<h1>Blocked: BudgetNeverAllows</h1>" in book


def test_issue15_11_the_page_has_the_runbooks_of_the_documentation() -> None:
    """python -m hack.runbooks"""
    assert generated.PAGE.read_text(encoding="utf-8") == generated.text()
    assert {f"blocked/{why}.md" for why in WhyNot} <= set(runbooks())


@pytest.mark.parametrize("path", sorted(runbooks()))
def test_issue15_11_every_runbook_is_a_page_whose_links_lead_somewhere(path: str) -> None:
    page = runbook_of(ill(), f"/docs/runbooks/{path}")
    links = re.findall(r'href="(/docs/[^"]+|[^/#"][^"]*)"', page)
    assert set(links) <= {f"/docs/runbooks/{each}" for each in runbooks()}
    with pytest.raises(NotThereError):
        runbook_of(ill(), "/docs/runbooks/no-such.md")


@pytest.mark.parametrize("path", ["/nodes/b-1", "/sessions/b-1-0badcafe"])
def test_issue15_11_commands_are_there_to_be_copied(path: str) -> None:
    page = shown(ill(), path)
    assert '<code class="copy">kubectl gpuward why b-1</code>' in page
    assert '<code class="copy">kubectl gpuward release b-1 --reason' in page


def test_issue15_11_the_last_day_is_told_hour_by_hour() -> None:
    of = state(
        [node("a")],
        [
            session("a-1", "a", "Released", opened_s=600),
            session("a-2", "a", "Released", opened_s=700),
            session("a-3", "a", "Released", opened_s=3 * 3600 + 60),
            session("a-4", "a", "Released", opened_s=26 * 3600),
        ],
    )
    found: FleetSummary = api_fleet(of)
    assert (len(found.last_day), sum(found.last_day)) == (24, 3)
    assert (found.last_day[-1], found.last_day[-4]) == (2, 1)
    assert "Sessions opened in the last 24 hours: 3" in shown(of, "/")
    assert "No session was opened in the last 24 hours." in shown(state([node("a")]), "/")
