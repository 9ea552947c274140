"""The agent's HTTP server: metrics and probes, and nothing else."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from agent.daemon.http import MOST_CONNECTIONS, MetricsListenError, Server


class Served:
    def __init__(self, listen: str = "127.0.0.1:0", **options: Any) -> None:
        self.problem: str | None = None
        self.server = Server(
            listen,
            metrics=lambda: b"gpuward_x 1\n",
            healthz=lambda: None,
            readyz=lambda: self.problem,
            **options,
        )
        self.server.start()

    def get(self, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
        url = f"http://{host}:{self.server.port}{path}"
        response = urllib3.request("GET", url, retries=False, timeout=10.0)
        return response.status, response.data.decode()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    running = Served()
    yield running
    running.server.close()


def test_metrics_and_probes_are_answered_and_nothing_else(served: Served) -> None:
    assert served.get("/metrics?x=1") == (200, "gpuward_x 1\n")
    assert served.get("/readyz") == (200, "ok\n")
    served.problem = "the API server has not accepted a health status yet"
    assert served.get("/readyz") == (503, "the API server has not accepted a health status yet\n")
    assert served.get("/healthz") == (200, "ok\n")
    assert served.get("/etc/passwd")[0] == 404


@pytest.mark.parametrize(
    ("listen", "answering"),
    [
        pytest.param(":0", ("127.0.0.1", "[::1]"), id="every address"),
        pytest.param("[::1]:0", ("[::1]",), id="IPv6"),
        pytest.param("localhost:0", ("localhost",), id="a name"),
    ],
)
def test_every_address_is_of_both_families(listen: str, answering: tuple[str, ...]) -> None:
    running = Served(listen)
    try:
        assert [running.get("/healthz", host)[0] for host in answering] == [200] * len(answering)
    finally:
        running.server.close()


def test_a_kernel_without_ipv6_serves_ipv4() -> None:
    running = Served(":0", has_dualstack=lambda: False)
    try:
        assert running.server.socket.family == socket.AF_INET
        assert running.get("/healthz")[0] == 200
    finally:
        running.server.close()


def half_sent(served: Served) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", served.server.port))
    connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    return connection


def test_probes_are_answered_while_hundreds_of_requests_stay_half_sent(served: Served) -> None:
    threads = threading.active_count()
    slow = [half_sent(served) for _ in range(300)]
    try:
        assert [served.get("/healthz")[0] for _ in range(5)] == [200] * 5
        # The threads of closed connections end a moment later.
        until = time.monotonic() + 10
        while threading.active_count() > threads + MOST_CONNECTIONS and time.monotonic() < until:
            time.sleep(0.01)
        assert threading.active_count() <= threads + MOST_CONNECTIONS
    finally:
        for connection in slow:
            connection.close()


def test_a_request_that_trickles_in_ends_at_its_deadline() -> None:
    running = Served(connection_s=1.0)
    began = time.monotonic()
    with half_sent(running) as slow, contextlib.suppress(OSError):
        slow.settimeout(0.2)
        while time.monotonic() < began + 8:
            slow.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                assert slow.recv(1) == b""
                break
    running.server.close()
    assert time.monotonic() < began + 8


@pytest.mark.parametrize("listen", ["9412", "host", ":http", ":70000", ""])
def test_an_invalid_address_is_an_error(listen: str) -> None:
    with pytest.raises(MetricsListenError, match="use :9412"):
        Served(listen)


def test_a_port_in_use_is_an_error(served: Served) -> None:
    def nothing() -> None:
        return None

    with pytest.raises(MetricsListenError, match="set another --listen"):
        Server(
            f"127.0.0.1:{served.server.port}",
            metrics=lambda: b"",
            healthz=nothing,
            readyz=nothing,
        )
