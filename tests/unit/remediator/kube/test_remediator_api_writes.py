"""A write goes out once, as the API server and whatever stands before it expect it."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from remediator.kube.access import Access
from remediator.kube.answer import NO_ANSWER, HeldError
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, RateLimiter
from tests.support.remediator.edge import SteppedClock
from tests.support.remediator.scripted_server import scripted_server, write_kubeconfig


@asynccontextmanager
async def talking_to(tmp_path, address):
    clock = SteppedClock()
    access = Access(write_kubeconfig(tmp_path / "kubeconfig", address, "t"))
    await access.load()
    api = Api(access, clock, RateLimiter({}, clock))
    await api.open()
    try:
        yield api
    finally:
        await api.close()


async def send(api, path="/x", *, method="POST", body=b"{}", **options):
    options = {"before_send": lambda: None, "timeout_s": 5, **options}
    return await api.call(CallQueue.EVICT, method, path, body=body, **options)


@asynccontextmanager
async def raw_server(*answers: bytes):
    """Answer every connection with the next of these and close it."""
    heard, rest = [], list(answers)

    async def serve(reader, writer):
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(rest.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}", heard


async def test_a_held_write_is_not_heard_and_the_next_one_goes_out(tmp_path):
    heard = []

    async def handler(request):
        heard.append(request.path)
        return web.Response(body=b"{}")

    def hold():
        raise HeldError("not now")

    async with scripted_server(handler) as address, talking_to(tmp_path, address) as api:
        await send(api, "/first")
        with pytest.raises(HeldError, match="not now"):
            await send(api, "/held", before_send=hold)
        await send(api, "/last")
    assert heard == ["/first", "/last"]


async def test_an_error_in_the_last_check_is_no_lost_connection(tmp_path):
    heard = []

    async def handler(request):
        heard.append(request.path)
        return web.Response()

    def look():
        raise KeyError("a mistake")

    async with scripted_server(handler) as address, talking_to(tmp_path, address) as api:
        with pytest.raises(KeyError, match="a mistake"):
            await send(api, before_send=look)
    assert heard == []


async def test_a_patch_or_an_eviction_that_may_have_happened_is_not_sent_again(tmp_path):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    for method in ("POST", "PATCH"):
        async with (
            raw_server(b"", answer) as (address, heard),
            talking_to(tmp_path, address) as api,
        ):
            assert (await send(api, method=method)).code == NO_ANSWER
            assert len(heard) == 1


async def test_a_redirect_is_an_answer_that_is_not_followed(tmp_path):
    paths = []

    async def handler(request):
        paths.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with scripted_server(handler) as address, talking_to(tmp_path, address) as api:
        assert (await send(api)).code == 307
    assert paths == ["/x"]


async def test_an_answer_of_any_size_is_not_read(tmp_path):
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n{}"
    async with raw_server(huge) as (address, _), talking_to(tmp_path, address) as api:
        answer = await send(api)
    assert answer.code == NO_ANSWER
    assert "larger than 256 MiB" in answer.failure


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä", "/a\x00"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_target_that_ends_the_line_is_never_sent(tmp_path, method, target):
    heard = []

    async def handler(request):
        heard.append(request.path)
        return web.Response()

    async with scripted_server(handler) as address, talking_to(tmp_path, address) as api:
        with pytest.raises(ValueError, match="not the address of a request"):
            await api.call(CallQueue.READ, method, target)
    assert heard == []
