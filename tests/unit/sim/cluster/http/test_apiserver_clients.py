"""Both clients against one server: the same answers, whatever the transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientConnectionError

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import ADMIN
from hack.sim.cluster.clients.client import ApiError, Client
from hack.sim.cluster.clients.http_client import HttpClient
from hack.sim.cluster.http.threaded import run_in_thread
from hack.sim.cluster.server import SimulatedApiServer
from tests.support.cluster.apiserver_support import eventually, node, pod, serving


@asynccontextmanager
async def connected(transport, tmp_path):
    async with SimulatedApiServer(tls=transport == "tls", tokens={"t": ADMIN}) as server:
        if transport == "in-process":
            yield server, server.client
            return
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with HttpClient.from_kubeconfig(path) as client:
            yield server, client


@pytest.fixture(params=["in-process", "http", "tls"])
async def client(request, tmp_path):
    async with connected(request.param, tmp_path) as (_, one):
        yield one


async def test_objects_live_their_life(client: Client):
    made = await client.create(r.NODES, node())
    assert await client.get(r.NODES, "n1") == made
    made["metadata"]["labels"] = {"a": "b"}
    updated = await client.update(r.NODES, made)
    assert updated["metadata"]["labels"] == {"a": "b"}
    patched = await client.patch(r.NODES, "n1", {"spec": {"unschedulable": True}})
    assert patched["spec"]["unschedulable"] is True
    patched = await client.patch(r.NODES, "n1", {"spec": {"unschedulable": None}})
    assert patched["spec"] == {}
    patched["status"]["phase"] = "Running"
    assert (await client.update_status(r.NODES, patched))["status"]["phase"] == "Running"
    dry = await client.patch(r.NODES, "n1", {"spec": {"unschedulable": True}}, dry_run=True)
    assert dry["spec"] == {"unschedulable": True}
    items, version = await client.list(r.NODES)
    assert items[0]["spec"] == {}
    assert int(version) > 0
    await client.delete(r.NODES, "n1", uid=made["metadata"]["uid"])
    with pytest.raises(ApiError) as caught:
        await client.get(r.NODES, "n1")
    assert (caught.value.code, caught.value.reason) == (404, "NotFound")
    assert caught.value.details == {"name": "n1", "kind": "nodes"}


async def test_pods_are_bound_evicted_and_gone(client: Client):
    await client.create(r.PODS, pod(node_name=None), "default")
    await client.bind("default", "p1", "n1")
    with pytest.raises(ApiError, match="already assigned"):
        await client.bind("default", "p1", "n2")
    await client.patch(
        r.PODS, "p1", {"status": {"phase": "Running"}}, "default", subresource="status"
    )
    await client.evict("default", "p1", dry_run=True)
    with pytest.raises(ApiError, match="does not match the UID in record"):
        await client.evict("default", "p1", uid="another")
    await client.evict("default", "p1")
    left = await client.get(r.PODS, "p1", "default")
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    await client.delete(r.PODS, "p1", "default", uid=left["metadata"]["uid"], grace=0)
    items, _ = await client.list(r.PODS, "default")
    assert items == []


async def test_a_refused_eviction_says_why(client: Client):
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await client.create(
        r.POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "default"
    )
    await client.create(r.PODS, pod(), "default")
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await client.patch(r.PODS, "p1", status, "default", subresource="status")
    with pytest.raises(ApiError) as caught:
        await client.evict("default", "p1")
    assert (caught.value.code, caught.value.headers) == (429, {"Retry-After": "10"})
    assert caught.value.details["causes"][0]["reason"] == "DisruptionBudget"


async def test_a_watch_tells_what_happens_after_a_list(client: Client):
    await client.create(r.NODES, node("n1"))
    items, version = await client.list(
        r.NODES, label_selector="!x", field_selector="metadata.name=n1"
    )
    assert len(items) == 1
    watch = client.watch(r.NODES, resource_version=version)
    first = asyncio.ensure_future(anext(watch))
    await client.create(r.NODES, node("n2"))
    type_, obj = await first
    assert (type_, obj["metadata"]["name"]) == ("ADDED", "n2")
    assert isinstance(watch, AsyncGenerator)
    await watch.aclose()


async def test_a_watch_from_too_long_ago_raises_410(tmp_path):
    for transport in ("in-process", "http"):
        async with connected(transport, tmp_path) as (server, client):
            await client.create(r.NODES, node())
            server.store.compact()
            with pytest.raises(ApiError) as caught:
                async for _ in client.watch(r.NODES, resource_version="1"):
                    pass
            assert (caught.value.code, caught.value.reason) == (410, "Expired")


async def test_the_http_client_reads_long_lists_page_by_page():
    async with serving() as api, HttpClient(api.server.url) as client:
        api.server.load(r.NODES, (node(f"n{i:04}") for i in range(1100)))
        items, _ = await client.list(r.NODES)
        assert len(items) == 1100
        assert api.server.requests.count("list", "nodes") == 3


async def test_what_the_in_process_client_returns_belongs_to_the_caller():
    async with serving() as api:
        client = api.server.client
        body = node()
        made = await client.create(r.NODES, body)
        made["metadata"]["name"] = body["metadata"]["name"] = "changed"
        assert (await client.get(r.NODES, "n1"))["metadata"]["name"] == "n1"
        named = client.named("scheduler")
        patched = await named.patch(r.NODES, "n1", {"spec": {"unschedulable": True}})
        assert patched["metadata"]["managedFields"][-1]["manager"] == "scheduler"


async def test_a_plain_text_refusal_keeps_its_text_and_retry_after():
    async with serving() as api, HttpClient(api.server.url) as client:
        api.server.faults.throttle()
        with pytest.raises(ApiError) as caught:
            await client.list(r.NODES)
        assert (caught.value.code, caught.value.reason) == (429, "")
        assert caught.value.message == "Too many requests, please try again later."
        assert caught.value.headers == {"Retry-After": "1"}


def test_a_server_in_a_thread_serves_synchronous_code():
    with run_in_thread() as hosted:
        assert hosted.call(lambda: hosted.server.load(r.NODES, [node()])) == 1
        items, _ = hosted.run(hosted.server.client.list(r.NODES))
        assert items[0]["metadata"]["name"] == "n1"

        async def over_http():
            async with HttpClient(hosted.url) as client:
                return await client.get(r.NODES, "n1")

        assert asyncio.run(over_http())["metadata"]["name"] == "n1"


def test_a_server_that_cannot_start_says_so():
    with pytest.raises(RuntimeError, match="did not start"), run_in_thread(port=-1):
        pass


async def test_stopping_the_server_ends_its_watches():
    server = SimulatedApiServer()
    await server.start()
    async with HttpClient(server.url) as client:

        async def follow():
            return [event async for event in client.watch(r.NODES)]

        task = asyncio.create_task(follow())
        await eventually(lambda: server.engine.subscriptions)
        await server.stop()
        assert await task == []


async def test_an_outage_loses_nothing():
    server = SimulatedApiServer()
    await server.start()
    url = server.url
    async with HttpClient(url) as client:
        made = await client.create(r.NODES, node())
        await server.stop()
        with pytest.raises(ClientConnectionError):
            await client.get(r.NODES, "n1")
        await server.start()
        assert server.url == url
        assert await client.get(r.NODES, "n1") == made
    await server.stop()


async def test_long_queries_are_read():
    async with serving() as api, HttpClient(api.server.url) as client:
        values = ",".join(f"value-{index:05}" for index in range(2000))
        items, _ = await client.list(r.NODES, label_selector=f"key in ({values})")
        assert items == []
