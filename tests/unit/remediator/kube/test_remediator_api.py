"""The transport: every answer is a value, credentials are renewed, the last check can stop a
call.
"""

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiohttp import web

from remediator.kube.access import Access
from remediator.kube.answer import NO_ANSWER, Answer, ApiError, HeldError
from remediator.kube.api import IN_FLIGHT, Api
from remediator.kube.clock import CallQueue, RateLimiter
from rules.api.nodes import NodeView
from tests.support.remediator.edge import SteppedClock
from tests.support.remediator.scripted_server import (
    node,
    refusal,
    scripted_server,
    write_kubeconfig,
)


@asynccontextmanager
async def connected(tmp_path, handler, observe=None):
    async with (
        scripted_server(handler) as address,
        talking_to(tmp_path, address, observe) as (api, clock),
    ):
        yield api, clock


@asynccontextmanager
async def talking_to(tmp_path, address, observe=None):
    clock = SteppedClock()
    access = Access(write_kubeconfig(tmp_path / "kubeconfig", address, "first"))
    await access.load()
    api = Api(access, clock, RateLimiter({}, clock), observe)
    await api.open()
    try:
        yield api, clock
    finally:
        await api.close()


async def test_an_object_is_decoded_and_the_call_has_a_user_agent(tmp_path):
    seen = []

    async def handler(request):
        seen.append(request.headers)
        return web.json_response(node("a", 1))

    calls = []
    async with connected(tmp_path, handler, lambda *call: calls.append(call[:3])) as (api, _):
        found = await api.get("/api/v1/nodes/a", NodeView)
    assert found.uid == "uid-a"
    assert seen[0]["User-Agent"].startswith("gpuward-remediator/")
    assert seen[0]["Authorization"] == "Bearer first"
    assert calls == [("GET", CallQueue.READ, 200)]


@pytest.mark.parametrize(
    ("make", "code", "sentence", "retry_after_s"),
    [
        pytest.param(
            lambda: refusal(403, "Forbidden", "nodes is forbidden"),
            403,
            "403 nodes is forbidden",
            None,
            id="Status",
        ),
        pytest.param(
            lambda: web.Response(
                status=429,
                text="Too many requests, please try again later.",
                headers={"Retry-After": "7"},
            ),
            429,
            "429 Too many requests, please try again later.",
            7.0,
            id="text of priority and fairness",
        ),
        pytest.param(
            lambda: web.Response(status=502, body=b"\xff<html>\n bad   gateway"),
            502,
            "502 \ufffd<html> bad gateway",
            None,
            id="bytes of a proxy",
        ),
    ],
)
async def test_a_refusal_keeps_its_message(tmp_path, make, code, sentence, retry_after_s):
    async def handler(_):
        return make()

    async with connected(tmp_path, handler) as (api, _):
        answer = await api.call(CallQueue.READ, "GET", "/x")
    assert (answer.code, answer.sentence()) == (code, sentence)
    assert answer.retry_after_s == retry_after_s
    with pytest.raises(ApiError):
        answer.decode(NodeView)


async def test_silence_is_an_answer_too(tmp_path):
    async def handler(_):
        await asyncio.sleep(60)

    async with connected(tmp_path, handler) as (api, _):
        answer = await api.call(CallQueue.READ, "GET", "/x", timeout_s=0.05)
    assert answer.code == NO_ANSWER
    assert "nothing within" in answer.sentence()


async def test_an_unreachable_server_is_an_answer_too(tmp_path):
    clock = SteppedClock()
    access = Access(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1"))
    await access.load()
    api = Api(access, clock, RateLimiter({}, clock))
    await api.open()
    answer = await api.call(CallQueue.READ, "GET", "/x")
    await api.close()
    assert answer.code == NO_ANSWER
    # For an operator: no class of a library, no address in memory.
    assert answer.failure.startswith("Cannot connect to host 127.0.0.1:1 [")
    assert "ssl" not in answer.failure
    assert api.last_answer_at is None


async def test_a_401_reads_the_credentials_again_and_repeats_the_call_once(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    tokens = []

    async def handler(request):
        tokens.append(request.headers["Authorization"])
        if tokens[-1] == "Bearer first":
            server = f"http://{request.host}"
            write_kubeconfig(kubeconfig, server, "second")
            return refusal(401, "Unauthorized", "Unauthorized")
        return web.json_response(node("a", 1))

    async with connected(tmp_path, handler) as (api, _):
        await api.get("/api/v1/nodes/a", NodeView)
    assert tokens == ["Bearer first", "Bearer second"]


async def test_the_last_check_stops_a_call_before_it_is_sent(tmp_path):
    heard = []

    async def handler(request):
        heard.append(request.path)
        return web.json_response({})

    class TooLateError(HeldError):
        pass

    def last_check():
        raise TooLateError

    async with connected(tmp_path, handler) as (api, _):
        await api.call(CallQueue.READ, "GET", "/before")
        with pytest.raises(TooLateError):
            await api.call(CallQueue.EVICT, "POST", "/evict", body={}, before_send=last_check)
        await api.call(CallQueue.READ, "GET", "/after")
    assert heard == ["/before", "/after"]


async def test_nothing_else_runs_between_the_last_check_and_the_request(tmp_path):
    """A process that is stopped behind its last check must have nothing left to send."""
    heard, heard_before_anything_else = threading.Event(), []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.set()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    def next_in_the_loop():
        heard_before_anything_else.append(heard.wait(2))

    def last_check():
        asyncio.get_running_loop().call_soon(next_in_the_loop)

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with talking_to(tmp_path, f"http://127.0.0.1:{server.server_port}") as (api, _):
            await api.call(CallQueue.EVICT, "POST", "/evict", body={}, before_send=last_check)
        server.shutdown()
    assert heard_before_anything_else == [True]


async def test_the_servers_date_corrects_the_clock(tmp_path):
    async def handler(_):
        return web.json_response({}, headers={"Date": "Sat, 01 Jan 2050 00:00:00 GMT"})

    async with connected(tmp_path, handler) as (api, clock):
        for _ in range(3):
            await api.call(CallQueue.READ, "GET", "/x")
            clock.ahead_s += 1.2
    assert clock.now() == pytest.approx(2_524_608_000, abs=6)


async def test_the_date_of_one_answer_alone_moves_nothing(tmp_path):
    dates = [None, None, "Sat, 01 Jan 2050 00:00:00 GMT"]

    async def handler(_):
        date = dates.pop(0)
        return web.json_response({}, headers={"Date": date} if date else {})

    async with connected(tmp_path, handler) as (api, clock):
        for _ in range(3):
            before = clock.now()
            await api.call(CallQueue.READ, "GET", "/x")
            assert clock.now() == pytest.approx(before, abs=5)
    assert clock.skew.contradictions == 1


def test_an_answer_that_is_no_object_is_an_error_not_a_crash():
    with pytest.raises(ApiError, match="unreadable object"):
        Answer(code=200, body=b"[]", content_type="application/json").decode(NodeView)


@pytest.mark.parametrize(
    ("code", "body", "gone"),
    [
        pytest.param(404, {"reason": "NotFound", "details": {"name": "n1"}}, True, id="itself"),
        pytest.param(404, {"reason": "NotFound", "details": {}}, False, id="a path nobody serves"),
        pytest.param(404, {"reason": "NotFound", "details": {"name": "n2"}}, False, id="another"),
        pytest.param(404, {"error": "no route"}, False, id="a proxy"),
        pytest.param(200, {"reason": "NotFound", "details": {"name": "n1"}}, False, id="no 404"),
    ],
)
def test_an_object_is_gone_only_if_the_server_names_it_in_the_404(code, body, gone):
    answer = Answer(code=code, body=json.dumps(body).encode(), content_type="application/json")
    assert answer.is_not_found("n1") is gone


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (CallQueue.TAINT, CallQueue.STATUS),
        (CallQueue.OPEN, CallQueue.STATUS),
        (CallQueue.TAINT, CallQueue.RECORD),
        (CallQueue.EVICT, CallQueue.RECORD),
        (CallQueue.STATUS, CallQueue.RECORD),
    ],
)
async def test_quarantines_go_before_evictions_and_records_last(tmp_path, first, later):
    order, answer = [], asyncio.Event()

    async def handler(request):
        order.append(request.path)
        if request.path == "/first":
            await answer.wait()
        return web.json_response(node("a", 1))

    async with connected(tmp_path, handler) as (api, _):
        before = asyncio.create_task(api.call(first, "GET", "/first"))
        while not order:  # noqa: ASYNC110 - the other end of a connection
            await asyncio.sleep(0)
        # More than its queue has slots: those that wait hold none.
        after = [
            asyncio.create_task(api.call(later, "GET", "/later")) for _ in range(IN_FLIGHT[later])
        ]
        await api.call(CallQueue.READ, "GET", "/read")
        assert order == ["/first", "/read"]
        answer.set()
        await asyncio.gather(before, *after)
    assert order[:3] == ["/first", "/read", "/later"]


async def test_a_status_waits_for_quarantines_for_a_limited_time(tmp_path):
    async def handler(request):
        if request.path == "/taint":
            await asyncio.sleep(60)
        return web.json_response(node("a", 1))

    async with connected(tmp_path, handler) as (api, _):
        taint = asyncio.create_task(api.call(CallQueue.TAINT, "GET", "/taint"))
        await asyncio.sleep(0)
        assert (await api.call(CallQueue.STATUS, "GET", "/status")).ok
        taint.cancel()
        await asyncio.gather(taint, return_exceptions=True)


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        pytest.param({"http_proxy": "http://u:p@proxy:3128"}, "http://u:p@proxy:3128", id="named"),
        pytest.param({"http_proxy": "http://p:1", "no_proxy": "api.test"}, None, id="excepted"),
        pytest.param({"https_proxy": "http://p:1"}, None, id="of the other scheme"),
    ],
)
async def test_the_proxy_of_the_environment_is_found_once(
    tmp_path, monkeypatch, environment, proxy
):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    access = Access(write_kubeconfig(tmp_path / "kubeconfig", "http://api.test:1"))
    await access.load()
    assert access.proxy == proxy
