"""The agent's HTTP server: metrics and probes, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3

from agent.daemon.http import MetricsListenError, Server, address


class Served:
    def __init__(self) -> None:
        self.complaint: str | None = None
        self.server = Server(
            "127.0.0.1:0",
            metrics=lambda: b"gpuward_x 1\n",
            healthz=lambda: None,
            readyz=lambda: self.complaint,
        )
        self.server.start()

    def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.server.port}{path}"
        response = urllib3.request("GET", url, retries=False, timeout=10.0)
        return response.status, response.data.decode()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    running = Served()
    yield running
    running.server.close()


def test_metrics(served: Served) -> None:
    assert served.get("/metrics?x=1") == (200, "gpuward_x 1\n")


def test_a_probe_that_is_well(served: Served) -> None:
    served.complaint = None
    assert served.get("/healthz") == (200, "ok\n")
    assert served.get("/readyz") == (200, "ok\n")


def test_a_probe_that_is_not_well_says_why(served: Served) -> None:
    served.complaint = "no verdict was accepted yet"
    assert served.get("/readyz") == (503, "no verdict was accepted yet\n")


def test_anything_else_is_not_found(served: Served) -> None:
    assert served.get("/etc/passwd")[0] == 404


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        pytest.param(":9412", ("", 9412), id="all addresses"),
        pytest.param("127.0.0.1:0", ("127.0.0.1", 0), id="IPv4"),
        pytest.param("[::1]:9412", ("::1", 9412), id="IPv6"),
    ],
)
def test_addresses(listen: str, expected: tuple[str, int]) -> None:
    assert address(listen) == expected


@pytest.mark.parametrize("listen", ["9412", "host", ":http", ":70000", ""])
def test_what_is_no_address_is_said(listen: str) -> None:
    with pytest.raises(MetricsListenError, match="write :9412"):
        address(listen)


def test_a_port_in_use_is_said(served: Served) -> None:
    def nothing() -> None:
        return None

    with pytest.raises(MetricsListenError, match="choose another --listen"):
        Server(
            f"127.0.0.1:{served.server.port}",
            metrics=lambda: b"",
            healthz=nothing,
            readyz=nothing,
        )
