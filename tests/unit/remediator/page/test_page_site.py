"""The site over HTTP: every address, its headers, its refusals."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from remediator.page.site import HEADERS, hosts_of, may_ask, mount
from remediator.view.shapes import FleetPage, HistoryPage, NodePage, ProblemShown
from remediator.view.state import PageState
from tests.support.remediator.page_fleet import (
    FixedSource,
    big_state,
    blocked_session,
    health_of,
    node,
    session,
    sick,
    state,
)

Client = TestClient[web.Request, web.Application]


def fleet() -> PageState:
    return state(
        [node("a"), sick("b"), node("c")],
        [
            blocked_session("b-1", "b"),
            session("c-1", "c", "Pending", mode="Shadow"),
            session("a-0", "a", "Released", opened_s=90_000),
            session("a-1", "a", "Cancelled", opened_s=80_000),
        ],
        [health_of("b")],
    )


@pytest.fixture
def source() -> FixedSource:
    return FixedSource(fleet())


@pytest.fixture
async def client(source: FixedSource) -> AsyncIterator[Client]:
    app = web.Application()
    mount(app, source)
    async with TestClient(TestServer(app)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("/", "2 open sessions, 1 needs operator action", id="fleet"),
        pytest.param("/?health=unhealthy&phase=Draining", "1 node of 3", id="filtered"),
        pytest.param("/nodes/b", "add a replica or relax the PDB", id="node"),
        pytest.param("/history", "Repeat offenders", id="history"),
        pytest.param("/docs/blocked.md", "Blocking reasons", id="runbook"),
    ],
)
async def test_pages(client: Client, path: str, text: str) -> None:
    answer = await client.get(path)

    assert (answer.status, answer.content_type) == (200, "text/html")
    assert text in await answer.text()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param("/api/fleet", FleetPage, id="fleet"),
        pytest.param("/api/fleet?rack=r0", FleetPage, id="part of the fleet"),
        pytest.param("/api/nodes/a", NodePage, id="healthy node"),
        pytest.param("/api/nodes/b", NodePage, id="sick node"),
        pytest.param("/api/history", HistoryPage, id="history"),
        pytest.param("/api/nodes/nope", ProblemShown, id="refusal"),
    ],
)
async def test_an_answer_is_the_value_of_its_page(
    client: Client, path: str, kind: type[msgspec.Struct]
) -> None:
    answer = await client.get(path)

    assert msgspec.json.decode(await answer.read(), type=kind)


@pytest.mark.parametrize("path", ["/", "/api/fleet", "/static/page.js", "/nope", "/api/nope"])
async def test_every_answer_forbids_what_the_page_does_not_need(client: Client, path: str) -> None:
    answer = await client.get(path)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] in {"no-store", "no-cache"}


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        pytest.param("/sessions/<script>", "There is no session &lt;script&gt;", id="session"),
        pytest.param("/nodes/<script>", "No GPU node &lt;script&gt;", id="node"),
        pytest.param("/docs/<script>", "no runbook &lt;script&gt;", id="runbook"),
        pytest.param("/static/site.py", "no such file", id="file"),
    ],
)
async def test_a_page_that_is_not_there_leads_back(
    client: Client, path: str, sentence: str
) -> None:
    answer = await client.get(path)
    text = await answer.text()

    assert answer.status == 404
    assert sentence in text
    assert 'href="/"' in text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/sessions/b-1", "/api/fleet"])
async def test_nothing_can_be_changed(client: Client, method: str, path: str) -> None:
    answer = await client.request(method, path)

    assert answer.status == 405


@pytest.mark.parametrize(
    ("address", "place"),
    [
        pytest.param("/?q=a", "/nodes/a", id="node"),
        pytest.param("/?q=+b+", "/nodes/b", id="with spaces"),
        pytest.param("/?q=b-1", "/nodes/b#session-b-1", id="session"),
        pytest.param("/sessions/b-1", "/nodes/b#session-b-1", id="address of a session"),
        pytest.param("/sessions/a-0", "/nodes/a#session-a-0", id="of an ended one"),
    ],
)
async def test_a_name_leads_to_the_page_of_its_node(
    client: Client, address: str, place: str
) -> None:
    answer = await client.get(address, allow_redirects=False)

    assert (answer.status, answer.headers["Location"]) == (302, place)
    path, _, anchor = place.partition("#")
    page = await (await client.get(path)).text()
    assert not anchor or f'id="{anchor}"' in page


async def test_static_files_are_sent_once(client: Client) -> None:
    first = await client.get("/static/page.css")
    again = await client.get("/static/page.css", headers={"If-None-Match": first.headers["ETag"]})

    assert (first.status, again.status) == (200, 304)


async def test_the_health_of_a_healthy_node_is_read_and_of_a_sick_one_is_watched(
    client: Client, source: FixedSource
) -> None:
    assert "Read just now." in await (await client.get("/nodes/a")).text()
    assert "GPU 3 fell off the bus." in await (await client.get("/nodes/b")).text()
    assert (await client.get("/nodes/nope")).status == 404
    assert (await (await client.get("/api/nodes/c")).json())["verdict"] == "read"
    assert source.asked == ["a", "c"]


async def test_five_thousand_nodes_fit_into_one_page_and_one_answer() -> None:
    app = web.Application()
    mount(app, FixedSource(big_state()))
    async with TestClient(TestServer(app)) as client:
        page = await (await client.get("/")).text()
        assert page.count('<a class="n ') == 5000
        # Only the GPUs of the 500 sick nodes are elements of their own.
        assert page.count('<span class="q ') == 500 * 8 + 4
        # The sessions say the same: one row, which names 200 nodes.
        assert "500 nodes</summary>" in page
        assert "and 300 more</details>" in page

        html = await (await client.get("/api/fleet")).json()
        assert [row["name"] for row in html["nodes"]] == [f"train-{n:04d}" for n in range(5000)]
        assert [len(group["nodes"]) for group in html["sessions"]] == [500]


@pytest.mark.parametrize("path", ["/", "/api/fleet", "/static/page.js"])
async def test_a_name_that_a_stranger_points_here_is_refused(client: Client, path: str) -> None:
    answer = await client.get(path, headers={"Host": "evil.example.com"})

    assert answer.status == 421
    assert "--page-hosts" in (await answer.json())["error"]


@pytest.mark.parametrize(
    ("header", "answered"),
    [
        pytest.param("127.0.0.1:9414", True, id="port-forward"),
        pytest.param("localhost:9414", True, id="localhost"),
        pytest.param("[::1]:9414", True, id="IPv6"),
        pytest.param("10.1.2.3", True, id="pod address"),
        pytest.param("gpuward-remediator:9414", True, id="service"),
        pytest.param("gpuward-remediator.gpuward.svc", True, id="service with namespace"),
        pytest.param("x.gpuward.svc.cluster.local:9414", True, id="service in full"),
        pytest.param("", True, id="no browser"),
        pytest.param("evil.example.com:9414", False, id="public name"),
        pytest.param("127.0.0.1.evil.example.com", False, id="address as a label"),
        pytest.param("svc.evil.com", False, id="only the end counts"),
        pytest.param("a:b:c", False, id="neither name nor address"),
        pytest.param("GPU.Example.com", True, id="allowed name"),
    ],
)
def test_only_names_of_the_cluster_and_allowed_ones_are_answered(
    header: str, answered: bool
) -> None:
    assert may_ask(header, hosts_of("gpu.example.com, other.example.com")) is answered
