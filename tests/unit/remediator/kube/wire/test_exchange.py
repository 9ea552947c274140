"""A write goes out once, as the API server and whatever stands before it expect it."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from remediator.kube.wire.exchange import (
    EXCHANGE_ERRORS,
    Destination,
    Exchange,
    HeldError,
    TooLargeError,
)
from tests.support.remediator.scripted_server import scripted_server

HEADERS = (("Accept", "application/json"), ("Authorization", "Bearer t"))


@asynccontextmanager
async def exchanging(largest=1 << 20):
    connector = aiohttp.TCPConnector(limit=0)
    try:
        yield Exchange(connector, largest=largest)
    finally:
        await connector.close()


def to(host, proxy=None):
    return Destination(host=host, tls=None, server_name=None, proxy=proxy)


async def said(
    exchange, destination, target="/x", *, body=b"{}", headers=HEADERS, last_look=None, timeout_s=5
):
    return await exchange.send(
        destination, "POST", target, headers, body, timeout_s=timeout_s, last_look=last_look
    )


async def refused(address):
    """Why an exchange with that server had no answer."""
    async with exchanging() as exchange:
        with pytest.raises(EXCHANGE_ERRORS) as caught:
            await said(exchange, to(address))
    return caught.value


@asynccontextmanager
async def raw_server(*answers: bytes):
    """Every connection is answered by the next of these, whatever it says, and closed."""
    heard, rest = [], list(answers)

    async def serve(reader, writer):
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(rest.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}", heard


async def test_what_was_said_arrives_and_the_answer_comes_back_whole():
    seen = []

    async def handler(request):
        seen.append((request.method, request.raw_path, await request.read(), request.headers))
        return web.Response(
            status=201,
            body=gzip.compress(b"y" * 300_000),
            headers={"Content-Encoding": "gzip", "Retry-After": "3"},
        )

    async with scripted_server(handler) as address, exchanging() as exchange:
        answer = await said(exchange, to(address), "/a%2Fb?c=d", body=b"z" * 100_000)
    method, path, body, headers = seen[0]
    assert (method, path, body) == ("POST", "/a%2Fb?c=d", b"z" * 100_000)
    assert headers["Authorization"] == "Bearer t"
    assert headers["Host"] == address.removeprefix("http://")
    assert (answer.code, answer.body, answer.headers["Retry-After"]) == (201, b"y" * 300_000, "3")


async def test_a_gateway_before_the_api_server_keeps_the_start_of_its_paths():
    paths = []

    async def handler(request):
        paths.append(request.raw_path)
        return web.Response()

    async with scripted_server(handler) as address, exchanging() as exchange:
        await said(exchange, to(f"{address}/k8s/clusters/c-1"), "/api/v1/nodes/n")
    assert paths == ["/k8s/clusters/c-1/api/v1/nodes/n"]


async def test_a_proxy_without_a_tunnel_is_told_the_whole_address():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    async with raw_server(answer) as (address, heard), exchanging() as exchange:
        proxy = address.replace("http://", "http://u:p@")
        got = await said(exchange, to("http://api.test:1", proxy), "/x")
    assert heard[0].startswith(b"POST http://api.test:1/x HTTP/1.1\r\nHost: api.test:1\r\n")
    assert b"\r\nProxy-Authorization: Basic dTpw\r\n" in heard[0]
    assert got.code == 200


async def test_one_connection_serves_one_exchange_after_the_other_also_after_a_held_one():
    peers, looked = set(), []

    async def handler(request):
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=b"{}")

    def hold():
        looked.append(True)
        raise HeldError("not now")

    async with scripted_server(handler) as address, exchanging() as exchange:
        await said(exchange, to(address))
        with pytest.raises(HeldError, match="not now"):
            await said(exchange, to(address), last_look=hold)
        await said(exchange, to(address))
    assert looked == [True]
    assert len(peers) == 1


async def test_what_may_have_happened_is_not_sent_again():
    async with raw_server(b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (
        address,
        heard,
    ):
        assert isinstance(await refused(address), aiohttp.ServerDisconnectedError)
        assert len(heard) == 1


async def test_a_redirect_is_an_answer_that_is_not_followed():
    paths = []

    async def handler(request):
        paths.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with scripted_server(handler) as address, exchanging() as exchange:
        assert (await said(exchange, to(address))).code == 307
    assert paths == ["/x"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", id="cut off"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", id="no length"),
    ],
)
async def test_half_an_answer_is_none(answer):
    async with raw_server(answer) as (address, _):
        await refused(address)


async def test_a_word_before_the_answer_is_not_the_answer():
    early = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    async with raw_server(early) as (address, _), exchanging() as exchange:
        answer = await said(exchange, to(address))
    assert (answer.code, answer.body) == (200, b"{}")


async def test_an_answer_of_any_size_is_not_read():
    async def handler(_):
        return web.Response(body=b"y" * 2048)

    async with scripted_server(handler) as address, exchanging(largest=1024) as exchange:
        with pytest.raises(TooLargeError):
            await said(exchange, to(address))


async def test_silence_ends_with_its_time():
    async def handler(_):
        await asyncio.sleep(60)

    async with scripted_server(handler) as address, exchanging() as exchange:
        with pytest.raises(TimeoutError):
            await said(exchange, to(address), timeout_s=0.05)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä", "/a\x00"])
async def test_a_target_that_ends_the_line_is_never_sent(target):
    heard = []

    async def handler(request):
        heard.append(request.path)
        return web.Response()

    async with scripted_server(handler) as address, exchanging() as exchange:
        with pytest.raises(ValueError, match="not the start of a request"):
            await said(exchange, to(address), target)
        with pytest.raises(ValueError, match="holds a line break"):
            await said(exchange, to(address), headers=(("X", "a\r\nb"),))
    assert heard == []
