"""The probes and the metrics page, and the golden list of every metric."""

import asyncio
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web
from aiohttp.test_utils import TestClient, TestServer

from remediator.kube.clock import CallQueue
from remediator.metrics import Metrics
from remediator.page.server import (
    MOST_CONNECTIONS,
    ListenError,
    make_app,
    parse_listen,
    start_server,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "remediator_metrics.prom"


def well() -> web.Application:
    """An application whose probes are well."""
    return make_app(Metrics(), healthy=lambda: "", ready=lambda: "", refresh=lambda: None)


@pytest.mark.parametrize(
    ("listen", "answering"),
    [
        pytest.param(":0", ("127.0.0.1", "[::1]"), id="every address"),
        pytest.param("127.0.0.1:0", ("127.0.0.1",), id="IPv4"),
        pytest.param("[::1]:0", ("[::1]",), id="IPv6"),
    ],
)
async def test_every_address_is_of_both_families(listen, answering):
    served = await start_server(well(), listen)
    try:
        async with ClientSession() as client:
            for host in answering:
                answer = await client.get(f"http://{host}:{served.port}/healthz")
                assert answer.status == 200
    finally:
        await served.close()


async def test_a_kernel_without_ipv6_serves_ipv4():
    served = await start_server(well(), ":0", has_dualstack=lambda: False)
    try:
        async with ClientSession() as client:
            answer = await client.get(f"http://127.0.0.1:{served.port}/healthz")
            assert answer.status == 200
        assert [one.family for one in served.server.sockets] == [socket.AF_INET]
    finally:
        await served.close()


def open_connections(served):
    server = served.runner.server
    assert server is not None
    return [one for one in server.connections if one.transport is not None]


async def half_sent(port):
    connection = await asyncio.open_connection("127.0.0.1", port)
    connection[1].write(b"GET /metrics HTTP/1.1\r\nX: ")
    return connection


async def test_probes_are_answered_while_hundreds_of_requests_stay_half_sent():
    served = await start_server(well(), "127.0.0.1:0")
    slow = [await half_sent(served.port) for _ in range(400)]
    try:
        async with ClientSession(connector=TCPConnector(force_close=True)) as client:
            for _ in range(5):
                answer = await client.get(f"http://127.0.0.1:{served.port}/healthz")
                assert answer.status == 200
        still = open_connections(served)
        assert len(still) <= MOST_CONNECTIONS
    finally:
        for _, writer in slow:
            writer.close()
        await served.close()


async def test_clients_that_read_no_answer_make_room_as_well():
    app = web.Application()

    async def large(_):
        return web.Response(body=bytes(6 << 20))

    app.router.add_get("/large", large)
    served = await start_server(app, "127.0.0.1:0", most_connections=4)
    slow = []
    try:
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
            writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            slow.append((reader, writer))
        async with ClientSession() as client:
            answer = await client.get(f"http://127.0.0.1:{served.port}/none")
            assert answer.status == 404
        still = open_connections(served)
        assert len(still) <= 4
    finally:
        for _, writer in slow:
            writer.transport.abort()
        await served.close()


async def test_a_request_that_trickles_in_ends_at_its_deadline():
    served = await start_server(well(), "127.0.0.1:0", idle_s=1.0)
    try:
        reader, writer = await half_sent(served.port)
        began = time.monotonic()
        while not reader.at_eof() and time.monotonic() < began + 8:
            writer.write(b"x")
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.2):
                    await reader.read(1)
        assert time.monotonic() < began + 8
        writer.close()
    finally:
        await served.close()


@pytest.mark.parametrize("text", ["9413", "host:", ":port", ":70000"])
def test_a_wrong_listen_address_is_named(text):
    with pytest.raises(ListenError, match="HOST:PORT"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("path", "problem", "status", "text"),
    [
        pytest.param("/healthz", "", 200, "ok\n", id="healthy"),
        pytest.param("/healthz", "stuck", 503, "stuck\n", id="not healthy"),
        pytest.param("/readyz", "", 200, "ok\n", id="ready"),
        pytest.param("/readyz", "no list yet", 503, "no list yet\n", id="not ready"),
    ],
)
async def test_probes_say_why_not(path, problem, status, text):
    app = make_app(Metrics(), healthy=lambda: problem, ready=lambda: problem, refresh=lambda: None)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(path)
        assert (answer.status, await answer.text()) == (status, text)


async def test_a_scrape_refreshes_first_and_speaks_prometheus():
    metrics = Metrics()
    app = make_app(
        metrics,
        healthy=lambda: "",
        ready=lambda: "",
        refresh=lambda: metrics.nodes.set(7),
    )
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "gpuward_nodes 7.0\n" in await answer.text()


def example() -> str:
    """One page with every metric and every label."""
    metrics = Metrics()
    metrics.observe_call("GET", CallQueue.READ, 200, 0.01)
    metrics.fault_to_unschedulable.observe(0.3)
    metrics.evictions.labels("evicted").inc()
    metrics.writes.labels("EvictPod", "done").inc()
    metrics.open_session.labels(
        "gpu-7", "Draining", "Enforce", "Fatal", "Xid79GPUFallenOffBus"
    ).set(1)
    metrics.open_session_condition.labels("gpu-7", "NeedsHuman", "BudgetNeverAllows").set(1)
    metrics.open_session_repair.labels("gpu-8", "RestartNode", "NodeConditions", "Asked").set(1)
    metrics.budget_size.labels("all").set(10)
    metrics.budget_used.labels("all").set(1)
    metrics.correlated_cause.labels("Xid79GPUFallenOffBus", "driver=580.65.06").set(4)
    metrics.node_common_cause.labels("gpu-5", "ThermalSlowdown", "example.com/rack=r7").set(1)
    metrics.pause_created.labels("drill").set(1_800_000_000)
    metrics.node_held.labels("gpu-7").set(1)
    metrics.node_left_alone.labels("gpu-8", "OptOut").set(1)
    metrics.node_policy.labels("gpu-7", "inference", "Enforce").set(1)
    metrics.policy_overlap.labels("inference and new-nodes").set(2)
    metrics.watch_staleness.labels("nodes").set(1.5)
    metrics.watch_synced.labels("nodes").set(1)
    metrics.undecodable.labels("nodes").set(0)
    metrics.count_surprise("node_check")
    metrics.build_info.labels("0.1.0").set(1)
    return metrics.page().decode()


def test_every_name_help_and_label_is_as_agreed():
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(example())
    assert example() == GOLDEN.read_text()
