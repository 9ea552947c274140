"""Both clients against one server: the same answers, whatever the transport."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientConnectionError

from hack.sim.cluster import resource as r
from hack.sim.cluster.clients.client import ApiError, Client
from hack.sim.cluster.clients.http_client import HttpClient
from hack.sim.cluster.resource import ADMIN
from hack.sim.cluster.server import SimulatedApiServer
from tests.support.cluster.apiserver_support import node, pod, serving


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
