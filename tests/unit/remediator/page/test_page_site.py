"""The site over HTTP: every address, its headers, its schema, its refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientPayloadError, web
from aiohttp.test_utils import TestClient, TestServer

from remediator.page.schema import schema_text
from remediator.page.site import HEADERS, mount
from remediator.view.state import PageState
from rules.api.nodes import HealthView
from tests.support.remediator.page_fleet import (
    big_state,
    blocked_session,
    node,
    session,
    sick,
    state,
    verdict,
)

PAGE = Path(__file__).resolve().parents[4] / "remediator" / "page"
SCHEMA = json.loads(schema_text())
Client = TestClient[web.Request, web.Application]


class FixedSource:
    """A source that never changes and keeps what was asked of it."""

    def __init__(self, of: PageState) -> None:
        self.of = of
        self.asked: list[str] = []

    async def state(self) -> PageState:
        return self.of

    async def verdict(self, node: str) -> HealthView | None:
        self.asked.append(node)
        return verdict(node, message="Read just now.")


def fleet() -> PageState:
    return state(
        [node("a"), sick("b"), node("c")],
        [
            blocked_session("b-1", "b"),
            session("c-1", "c", "Pending", mode="Shadow"),
            session("a-0", "a", "Released", opened_s=90_000, took_s=30),
            session("a-1", "a", "Cancelled", opened_s=80_000),
        ],
        [verdict("b")],
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
        pytest.param("/", "2 open sessions, 1 of them needs a person", id="fleet"),
        pytest.param("/sessions", "Open sessions", id="sessions"),
        pytest.param("/sessions?state=ended", "a-0", id="ended sessions"),
        pytest.param("/sessions/b-1", "add a replica or relax the PDB", id="session"),
        pytest.param("/nodes/b", "GPU 3 fell off the bus.", id="node"),
        pytest.param("/history", "Repeat offenders by GPU", id="history"),
    ],
)
async def test_pages(client: Client, path: str, text: str) -> None:
    answer = await client.get(path)

    assert (answer.status, answer.content_type) == (200, "text/html")
    assert text in await answer.text()


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        pytest.param("/api/fleet", "/api/fleet", id="fleet"),
        pytest.param("/api/nodes", "/api/nodes", id="nodes"),
        pytest.param("/api/nodes?health=unhealthy&limit=1", "/api/nodes", id="some nodes"),
        pytest.param("/api/nodes/a", "/api/nodes/{name}", id="healthy node"),
        pytest.param("/api/nodes/b", "/api/nodes/{name}", id="sick node"),
        pytest.param("/api/sessions", "/api/sessions", id="sessions"),
        pytest.param("/api/sessions?state=ended", "/api/sessions", id="ended sessions"),
        pytest.param("/api/sessions/b-1", "/api/sessions/{name}", id="session"),
        pytest.param("/api/history", "/api/history", id="history"),
        pytest.param("/api/live?page=/", "/api/live", id="live"),
        pytest.param("/api/live?page=/&region=counts", "/api/live", id="live region"),
        pytest.param("/api/nodes/nope", "error", id="refusal"),
    ],
)
async def test_answers_are_as_the_schema_says(client: Client, path: str, schema: str) -> None:
    answer = await client.get(path)
    said = await answer.json()

    jsonschema.validate(said, {**SCHEMA["answers"][schema], "$defs": SCHEMA["$defs"]})


@pytest.mark.parametrize("name", ["fleet", "nodes", "sessions", "history", "live"])
def test_the_schema_refuses_what_it_does_not_know(name: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {"surprise": 1}, {**SCHEMA["answers"][f"/api/{name}"], "$defs": SCHEMA["$defs"]}
        )


@pytest.mark.parametrize("path", ["/", "/api/fleet", "/static/page.js", "/nope", "/api/nope"])
async def test_every_answer_forbids_what_the_page_does_not_need(client: Client, path: str) -> None:
    answer = await client.get(path)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] in {"no-store", "no-cache"}


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        pytest.param("/api/nodes/nope", 404, "No GPU node nope is known", id="node"),
        pytest.param("/api/sessions/nope", 404, "no session nope", id="session"),
        pytest.param("/api/nope", 404, "nothing at this address", id="address"),
        pytest.param("/api/sessions?state=all", 400, "open or ended", id="state"),
        pytest.param("/api/nodes?limit=0", 400, "limit must be", id="limit"),
        pytest.param("/api/nodes?continue=x", 400, "not a token", id="token"),
        pytest.param("/api/live?page=http://x/", 400, "path of a page", id="live elsewhere"),
        pytest.param("/api/live?page=/nope", 404, "no page /nope", id="live nowhere"),
        pytest.param(
            "/api/live?page=/?a=1%26b=1%26c=1%26d=1%26e=1%26f=1%26g=1%26h=1%26i=1",
            400, "cannot|can be read", id="live with many fields",
        ),
    ],
)  # fmt: skip
async def test_refusals_are_sentences(
    client: Client, path: str, status: int, sentence: str
) -> None:
    answer = await client.get(path)
    said: dict[str, Any] = await answer.json()

    assert answer.status == status
    assert any(part in said["error"] for part in sentence.split("|"))


async def test_a_page_that_is_not_there_leads_back(client: Client) -> None:
    answer = await client.get("/sessions/<script>")
    text = await answer.text()

    assert answer.status == 404
    assert "There is no session &lt;script&gt;" in text
    assert 'href="/"' in text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/api/sessions/b-1", "/api/fleet"])
async def test_nothing_can_be_changed(client: Client, method: str, path: str) -> None:
    answer = await client.request(method, path)

    assert answer.status == 405


@pytest.mark.parametrize(
    ("name", "place"),
    [
        pytest.param("a", "/nodes/a", id="node"),
        pytest.param(" b ", "/nodes/b", id="with spaces"),
        pytest.param("b-1", "/sessions/b-1", id="session"),
    ],
)
async def test_the_search_goes_there(client: Client, name: str, place: str) -> None:
    answer = await client.get("/find", params={"name": name}, allow_redirects=False)

    assert (answer.status, answer.headers["Location"]) == (302, place)


@pytest.mark.parametrize("name", ["", "zzz", "//example.com", "<b>"])
async def test_a_search_that_finds_nothing_says_so(client: Client, name: str) -> None:
    answer = await client.get("/find", params={"name": name}, allow_redirects=False)

    assert answer.status == 404
    assert "No node and no session is called" in await answer.text()


async def test_static_files_are_sent_once(client: Client) -> None:
    first = await client.get("/static/page.css")
    again = await client.get("/static/page.css", headers={"If-None-Match": first.headers["ETag"]})
    missing = await client.get("/static/site.py")

    assert (first.status, again.status, missing.status) == (200, 304, 404)


async def test_a_healthy_nodes_verdict_is_read_and_a_sick_ones_is_known(
    client: Client, source: FixedSource
) -> None:
    assert "Read just now." in await (await client.get("/nodes/a")).text()
    assert "GPU 3 fell off the bus." in await (await client.get("/nodes/b")).text()
    assert (await client.get("/nodes/nope")).status == 404
    assert (await (await client.get("/api/nodes/c")).json())["verdict"] == "read"
    assert (await (await client.get("/api/sessions/a-1")).json())["gpus"][0]["serial"] == "S3"

    assert source.asked == ["a", "c", "a"]


async def test_the_live_answer_carries_what_the_page_shows(client: Client) -> None:
    page = await (await client.get("/")).text()
    said = await (await client.get("/api/live?page=/&region=headline&region=<nope>")).json()

    for name, mark in said["digests"].items():
        assert f'id="{name}" data-digest="{mark}"' in page
    assert list(said["regions"]) == ["headline"]
    tag, _, *children = said["regions"]["headline"]
    assert tag == "p"
    assert children == ["3 nodes: 1 unhealthy; 2 open sessions, 1 of them needs a person"]


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_the_front_page_begins_before_the_fleet_is_judged(
    client: Client, source: FixedSource, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    judged = asyncio.Event()

    async def state() -> PageState:
        await judged.wait()
        return source.of

    monkeypatch.setattr(source, "state", state)
    answer = await client.get("/", headers={"Accept-Encoding": encoding})
    begun = await answer.content.readany()
    assert begun.startswith(b'<!doctype html>\n<html lang="en"><head>')
    assert b"/static/page.css" in begun
    judged.set()
    whole = (begun + await answer.content.read()).decode()
    assert whole.count("<!doctype html>") == whole.count("</html>") == 1
    assert "<title>3 nodes: 1 unhealthy; 2 open sessions, 1 of them needs a person" in whole
    assert (await client.head("/")).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_front_page_that_cannot_be_made_says_so_and_breaks_off(
    client: Client, source: FixedSource, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    async def state() -> PageState:
        raise ValueError("a defect")

    monkeypatch.setattr(source, "state", state)
    answer = await client.get("/", headers={"Accept-Encoding": encoding})
    said = bytearray()

    async def read() -> None:
        async for piece in answer.content.iter_any():
            said.extend(piece)

    with pytest.raises(ClientPayloadError):
        await read()
    assert b"This page could not be made" in said


async def test_a_new_state_is_shown_at_once(client: Client, source: FixedSource) -> None:
    await client.get("/")
    source.of = state([node("z")])

    assert "1 node: all healthy" in await (await client.get("/")).text()


async def test_five_thousand_nodes_fit_into_one_page_and_many_json_pages() -> None:
    app = web.Application()
    mount(app, FixedSource(big_state()))
    async with TestClient(TestServer(app)) as client:
        page = await (await client.get("/")).text()
        assert page.count('<a class="n ') == 5000
        # Only the GPUs of the 500 sick nodes are elements of their own.
        assert page.count('<span class="q ') == 500 * 8 + 4
        assert page.count("/sessions/train-") == 25
        assert "All 500 open sessions" in page

        names: list[str] = []
        token = ""
        for _ in range(11):
            query = {"limit": "500", "continue": token}
            said = await (await client.get("/api/nodes", params=query)).json()
            assert (len(said["items"]), said["total"]) == (500, 5000)
            names += [row["name"] for row in said["items"]]
            token = said["continue"]
            if not token:
                break
        assert names == [f"train-{number:04d}" for number in range(5000)]


@pytest.mark.parametrize("path", ["/", "/api/fleet", "/static/page.js"])
async def test_a_name_that_a_stranger_points_here_is_refused(client: Client, path: str) -> None:
    answer = await client.get(path, headers={"Host": "evil.example.com"})

    assert answer.status == 421
    assert "--page-hosts" in (await answer.json())["error"]
