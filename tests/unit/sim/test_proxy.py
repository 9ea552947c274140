"""Faults on purpose, and what is remembered of each request: before either kind of server.

`near` is the simulated server with the proxy's layer in its process, `afar` one that the proxy
reaches over HTTP, as it reaches a real API server.
"""

import asyncio
import contextlib

import aiohttp
import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.proxy.faults import Fault
from hack.sim.proxy.server import proxy_before
from tests.support.cluster.apiserver_support import (
    NODES,
    PODS,
    Http,
    eventually,
    eviction,
    node,
    running_pod,
    serving_afar,
)
from tests.support.cluster.apiserver_support import serving as serving_near


@pytest.fixture(params=["near", "afar"])
def serving(request):
    return {"near": serving_near, "afar": serving_afar}[request.param]


async def test_the_next_requests_fail_as_configured_and_the_one_after_does_not(serving):
    async with serving() as api:
        fault = api.faults.fail(
            ApiError(500, "InternalError", "etcd is away"), path="/nodes$", times=2
        )
        codes = [(await api("GET", NODES)).code for _ in range(3)]
        assert (codes, fault.hits) == ([500, 500, 200], 2)


async def test_throttling_looks_like_api_priority_and_fairness(serving):
    async with serving() as api:
        await running_pod(api)
        api.faults.throttle(path="eviction")
        answer = await api("POST", f"{PODS}/p1/eviction", eviction())
        assert (answer.code, answer.headers["Retry-After"]) == (429, "1")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.body == "Too many requests, please try again later.\n"
        assert (await api("POST", f"{PODS}/p1/eviction", eviction())).code == 201


async def test_a_reset_connection_may_or_may_not_have_taken_effect(serving):
    async with serving() as api:
        api.faults.add(Fault(method="POST", action="reset"))
        with pytest.raises(aiohttp.ClientError):
            await api("POST", NODES, node("lost"))
        assert (await api("GET", f"{NODES}/lost")).code == 404
        api.faults.add(Fault(method="POST", action="reset", after=True))
        with pytest.raises(aiohttp.ClientError):
            await api("POST", NODES, node("done"))
        assert (await api("GET", f"{NODES}/done")).code == 200


async def test_a_hanging_request_hangs_alone(serving):
    async with serving() as api:
        api.faults.add(Fault(path="/nodes", action="hang"))
        hanging = asyncio.create_task(api("GET", NODES))
        await asyncio.sleep(0.02)
        assert (await api("GET", "/version")).code == 200
        assert not hanging.done()
        hanging.cancel()


async def test_a_frozen_server_answers_nobody_until_it_thaws(serving):
    async with serving() as api:
        api.faults.freeze()
        waiting = [asyncio.create_task(api("GET", path)) for path in (NODES, "/readyz")]
        await asyncio.sleep(0.02)
        assert not any(one.done() for one in waiting)
        api.faults.thaw()
        assert [(await one).code for one in waiting] == [200, 200]


async def test_running_watches_can_be_expired(serving):
    async with serving() as api, api.watch(NODES) as watch:
        await eventually(lambda: api.requests.count("watch"))
        assert api.faults.expire_watches() == 1
        type_, status = await watch.next()
        assert (type_, status["code"]) == ("ERROR", 410)
        assert await watch.ended()


async def test_a_rule_begins_at_the_kth_write_of_one_client(serving):
    """Reads, dry runs, reviews and other clients' writes are not counted."""
    ours = {"User-Agent": "gpuward-remediator/0.1"}
    stopped = []
    async with serving() as api:
        await running_pod(api)
        rule = api.faults.at_write(3, lambda: stopped.append(True), agent="^gpuward")
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}}
        access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        for number in (1, 2):
            await api("GET", NODES, headers=ours)
            await api("POST", access, review, headers=ours)
            await api("POST", f"{PODS}/p1/eviction", eviction(dryRun=["All"]), headers=ours)
            await api.post(NODES, node(f"theirs-{number}"))
            assert (await api("POST", NODES, node(f"n{number}"), headers=ours)).code == 201
        assert not stopped
        with pytest.raises(aiohttp.ClientError):
            await api("POST", NODES, node("n3"), headers=ours)
        assert (stopped, rule.hits) == ([True], 1)
        assert (await api("GET", f"{NODES}/n3")).code == 404
        assert (await api("POST", NODES, node("n4"), headers=ours)).code == 201


@pytest.mark.parametrize(("after", "code"), [(False, 404), (True, 200)])
async def test_a_write_without_an_answer_was_done_or_was_not(serving, after, code):
    async with serving() as api:
        api.faults.at_write(1, lambda: None, after=after)
        with pytest.raises(aiohttp.ClientError):
            await api("POST", NODES, node())
        assert (await api("GET", f"{NODES}/n1")).code == code


async def test_a_server_that_goes_away_breaks_the_connection_and_no_more():
    async with serving_afar() as api, api.watch(NODES) as watch:
        await api.server.stop()
        with pytest.raises(aiohttp.ClientError):
            await api("GET", NODES)
        with contextlib.suppress(aiohttp.ClientError):
            assert await watch.ended()
        await api.server.start()
        assert (await api("GET", NODES)).code == 200


async def test_what_is_read_can_be_changed_on_its_way_and_what_is_stored_cannot():
    def renamed(plural, obj):
        return {**obj, "metadata": {**obj["metadata"], "labels": {"seen": plural}}}

    async with (
        serving_near() as api,
        proxy_before(api.url, ca_pem=None, users={}, served=renamed) as proxy,
    ):
        seen = Http(api.server, api.session, proxy)
        async with seen.watch(NODES) as watch:
            await seen.post(NODES, node())
            event, watched = await watch.next()
        listed = (await seen.get(NODES))["items"][0]
        got = await seen.get(f"{NODES}/n1")
        assert event == "ADDED"
        assert [o["metadata"]["labels"]["seen"] for o in (watched, listed, got)] == ["nodes"] * 3
        assert "labels" not in (await api.get(f"{NODES}/n1"))["metadata"]


async def test_a_watch_whose_change_fails_ends_and_does_not_fall_silent():
    def wrong(plural, obj):
        raise ValueError(plural)

    async with (
        serving_near() as api,
        proxy_before(api.url, ca_pem=None, users={}, served=wrong) as proxy,
        Http(api.server, api.session, proxy).watch(NODES) as watch,
    ):
        await api.post(NODES, node())
        with contextlib.suppress(aiohttp.ClientError):
            assert await watch.ended()
