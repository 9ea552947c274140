"""Faults on purpose, and what the server remembers of each request."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from apiserver_support import NODES, PODS, eviction, node, running_pod, serving

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.faults import Fault
from hack.sim.cluster.statuses import internal


async def test_the_next_requests_fail_as_told_and_the_one_after_does_not():
    async with serving() as api:
        fault = api.server.faults.fail(internal("etcd is away"), path="/nodes$", times=2)
        codes = [(await api("GET", NODES)).code for _ in range(3)]
        assert (codes, fault.hits) == ([500, 500, 200], 2)


@pytest.mark.parametrize(
    ("method", "path", "agent", "hit"),
    [
        ("GET", NODES, "x", True),
        ("POST", NODES, "x", False),
        ("GET", "/version", "x", False),
        ("GET", NODES, "y", False),
    ],
)
async def test_a_fault_hits_only_what_it_names(method, path, agent, hit):
    async with serving() as api:
        error = ApiError(503, "ServiceUnavailable", "no")
        api.server.faults.fail(error, method="GET", path="/nodes", agent="^x", times=None)
        answer = await api(
            method, path, None if method == "GET" else node(), headers={"User-Agent": agent}
        )
        assert (answer.code == 503) is hit


async def test_throttling_looks_like_api_priority_and_fairness():
    async with serving() as api:
        await running_pod(api)
        api.server.faults.throttle(path="eviction")
        answer = await api("POST", f"{PODS}/p1/eviction", eviction())
        assert (answer.code, answer.headers["Retry-After"]) == (429, "1")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.body == "Too many requests, please try again later.\n"
        assert (await api("POST", f"{PODS}/p1/eviction", eviction())).code == 201


async def test_a_reset_connection_may_or_may_not_have_taken_effect():
    async with serving() as api:
        api.server.faults.add(Fault(method="POST", action="reset"))
        with pytest.raises(aiohttp.ClientError):
            await api("POST", NODES, node("lost"))
        assert (await api("GET", f"{NODES}/lost")).code == 404
        api.server.faults.add(Fault(method="POST", action="reset", after=True))
        with pytest.raises(aiohttp.ClientError):
            await api("POST", NODES, node("done"))
        assert (await api("GET", f"{NODES}/done")).code == 200


async def test_a_hanging_request_hangs_alone():
    async with serving() as api:
        api.server.faults.add(Fault(path="/nodes", action="hang"))
        hanging = asyncio.create_task(api("GET", NODES))
        await asyncio.sleep(0.02)
        assert (await api("GET", "/version")).code == 200
        assert not hanging.done()
        hanging.cancel()


async def test_a_frozen_server_answers_nobody_until_it_thaws():
    async with serving() as api:
        api.server.faults.freeze()
        waiting = [asyncio.create_task(api("GET", path)) for path in (NODES, "/readyz")]
        await asyncio.sleep(0.02)
        assert not any(one.done() for one in waiting)
        api.server.faults.thaw()
        assert [(await one).code for one in waiting] == [200, 200]


async def test_a_delay_answers_late_but_truly():
    async with serving() as api:
        api.server.faults.add(Fault(action="delay", delay_s=0.03))
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await api("GET", NODES)).code == 200
        assert loop.time() - began >= 0.03


async def test_stale_lists_show_an_older_revision():
    async with serving() as api:
        await api.post(NODES, node("n1"))
        old = api.server.store.revision
        await api.post(NODES, node("n2"))
        api.server.faults.stale_lists(old)
        stale = await api.get(NODES)
        assert [one["metadata"]["name"] for one in stale["items"]] == ["n1"]
        assert stale["metadata"]["resourceVersion"] == str(old)
        api.server.faults.clear()
        assert len((await api.get(NODES))["items"]) == 2


async def test_requests_are_counted_by_what_they_did():
    async with serving() as api:
        await running_pod(api)
        agent = {"User-Agent": "gpuward-remediator/0.1"}
        path = f"{PODS}/p1/eviction"
        await api("POST", path, eviction(), dryRun="All", headers=agent)
        await api("POST", path, eviction(dryRun=["All"]), headers=agent)
        await api("POST", path, eviction(), headers=agent)
        await api("GET", f"{NODES}/none", headers=agent)
        count = api.server.requests.count
        assert count("create", "pods", "eviction") == 3
        assert count("create", "pods", "eviction", dry_run=True) == 2
        assert count(agent="gpuward-remediator", code=404) == 1
        assert count("get", "nodes", "") == 1
        ours = [one for one in api.server.requests.mutations if one.agent.startswith("gpuward")]
        assert [(one.verb, one.resource, one.subresource) for one in ours] == [
            ("create", "pods", "eviction")
        ]
        assert b"policy/v1" in ours[0].body
        api.server.requests.clear()
        assert count() == 0


async def test_watches_are_counted_when_they_begin():
    async with serving() as api, api.watch(NODES):
        assert api.server.requests.count("watch", "nodes", code=200) == 1


async def test_answers_are_dated_by_a_clock_that_was_set():
    async with serving(clock=lambda: 1_700_000_000.0) as api:
        answer = await api("GET", NODES)
        assert answer.headers["Date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
