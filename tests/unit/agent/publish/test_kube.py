"""The agent's Kubernetes API client, against a simulated server with TLS and tokens."""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent.publish.client import Kube, KubeError
from hack.sim.cluster.resource import NODES, Caller
from hack.sim.cluster.server import HostedServer, run_in_thread
from hack.sim.proxy.server import make_serving_certificate
from remediator.kube.watch import Reflector
from rules.api.kube_config import KubeConfig, KubeConfigError, Material, from_files, in_cluster
from rules.api.timestamps import WATCH_SILENCE_S
from tests.support.agent.http_answers import Answer, serving

AGENT = "gpuward-agent/test"


@pytest.fixture(scope="module")
def hosted() -> Iterator[HostedServer]:
    caller = Caller(name="admin", groups=("system:masters",))
    with run_in_thread(tls=True, tokens={"right": caller}) as running:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}
        running.run(running.server.client.create(NODES, body))
        yield running


def kube_of(hosted: HostedServer, folder: Path, token: str = "right", **options: Any) -> Kube:
    path = hosted.server.write_kubeconfig(folder / "config", token)
    return Kube(from_files(path), user_agent=AGENT, **options)


@contextmanager
def answering(
    status: int,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    pause_s: float = 0.0,
    address: str = "127.0.0.1",
    **options: Any,
) -> Iterator[Kube]:
    """A client of a server that always sends this response, byte by byte with pauses."""

    class Handler(Answer):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            for start in range(len(body)) if pause_s else (0,):
                self.wfile.write(body[start : start + 1] if pause_s else body)
                time.sleep(pause_s)

    with serving(Handler, address) as port:
        host = f"[{address}]" if ":" in address else address
        yield Kube(KubeConfig(server=f"http://{host}:{port}"), user_agent=AGENT, **options)


@contextmanager
def tunnelling() -> Iterator[tuple[str, list[str]]]:
    """A proxy that opens tunnels and records the requests."""
    asked: list[str] = []

    class Tunnel(Answer):
        def do_CONNECT(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Proxy-Authorization')}")
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as there:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=pump, args=(there, self.connection), daemon=True)
                back.start()
                pump(self.connection, there)

    def pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    with serving(Tunnel) as port:
        yield f"127.0.0.1:{port}", asked


def test_a_proxy_opens_the_tunnel_to_the_api_server(hosted: HostedServer, tmp_path: Path) -> None:
    path = hosted.server.write_kubeconfig(tmp_path / "config", "right")
    with tunnelling() as (address, asked):
        config = replace(from_files(path, {}), proxy=f"http://u:p%40ss@{address}")
        kube = Kube(config, user_agent=AGENT)
        assert kube.node("gpu-1").metadata.name == "gpu-1"
        kube.close()
    assert hosted.server.requests.all[-1].agent == AGENT
    assert asked == [f"{hosted.url.removeprefix('https://')} Basic dTpwQHNz"]


def test_a_wrong_token_is_an_error_without_the_token(hosted: HostedServer, tmp_path: Path) -> None:
    with pytest.raises(KubeError) as raised:
        kube_of(hosted, tmp_path, "wr0ng").node("gpu-1")
    assert raised.value.status == 401
    assert "wr0ng" not in str(raised.value)


def test_an_unknown_authority_is_unreachable(hosted: HostedServer) -> None:
    kube = Kube(KubeConfig(server=hosted.url, token="right"), user_agent=AGENT)
    with pytest.raises(KubeError) as raised:
        kube.node("gpu-1")
    assert raised.value.status == 0


def test_a_watch_returns_changes_of_this_node_only(hosted: HostedServer, tmp_path: Path) -> None:
    kube = kube_of(hosted, tmp_path)
    client = hosted.server.client
    node = kube.node("gpu-1")
    events = kube.watch_node("gpu-1", node.metadata.resource_version)
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}
    hosted.run(client.create(NODES, other))
    patch = {"metadata": {"labels": {"a": "b"}}}
    hosted.run(client.patch(NODES, "gpu-1", patch, "application/merge-patch+json"))
    kind, seen = next(events)
    assert (kind, seen.metadata.name, seen.metadata.labels) == ("MODIFIED", "gpu-1", {"a": "b"})


def test_a_watch_that_expires_ends_with_410(hosted: HostedServer, tmp_path: Path) -> None:
    kube = kube_of(hosted, tmp_path)
    events = kube.watch_node("gpu-1", kube.node("gpu-1").metadata.resource_version)
    patch = {"metadata": {"labels": {"c": "d"}}}
    hosted.run(hosted.server.client.patch(NODES, "gpu-1", patch, "application/merge-patch+json"))
    next(events)
    hosted.call(hosted.server.faults.expire_watches)
    with pytest.raises(KubeError) as raised:
        next(events)
    assert raised.value.status == 410


def test_a_watch_without_data_ends(hosted: HostedServer, tmp_path: Path) -> None:
    for client in (Reflector, Kube):
        assert signature(client).parameters["silence_s"].default == WATCH_SILENCE_S == 90.0
    kube = kube_of(hosted, tmp_path, silence_s=0.5)
    events = kube.watch_node("gpu-1", kube.node("gpu-1").metadata.resource_version)
    with pytest.raises(KubeError) as raised:
        next(events)
    assert (raised.value.status, raised.value.reason) == (0, "WatchBroken")


def test_an_api_server_with_an_ipv6_address_is_reached(tmp_path: Path) -> None:
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "ca.crt").write_text("")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert in_cluster(environ, account).server == "https://[fd00::1]:6443"
    with answering(200, b'{"metadata": {"name": "gpu-1"}}', address="::1") as kube:
        assert kube.node("gpu-1").metadata.name == "gpu-1"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(200, b"<html>hello", id="no json"),
        pytest.param(200, b'{"metadata": []}', id="other types"),
        pytest.param(200, b"\xff\xfe", id="bytes"),
        pytest.param(502, b"<html>secret", id="a proxy's page"),
        pytest.param(200, b"[" + b" " * (5 << 20) + b"]", id="five megabytes"),
    ],
)
def test_invalid_responses_are_errors(status: int, body: bytes) -> None:
    with answering(status, body) as kube, pytest.raises(KubeError) as raised:
        kube.node("gpu-1")
    assert raised.value.status == status
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7.0),
        ("99999", 300.0),
        ("1e9", 0.0),
        ("inf", 0.0),
        ("nan", 0.0),
        ("-5", 0.0),
        ("Sat, 21 Nov 2026 14:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_bounded(header: str, wait_s: float) -> None:
    with answering(429, b"{}", {"Retry-After": header}) as kube:
        with pytest.raises(KubeError) as raised:
            kube.node("gpu-1")
        assert raised.value.retry_after_s == wait_s


def test_a_response_that_does_not_end_times_out() -> None:
    with answering(200, b" " * 10_000, {}, pause_s=0.02, answer_within_s=0.2) as kube:
        with pytest.raises(KubeError) as raised:
            kube.node("gpu-1")
        assert raised.value.reason == "TooSlow"


def test_a_renewed_token_is_read_after_a_refusal(hosted: HostedServer, tmp_path: Path) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.pem"
    token.write_text("expired\n")
    ca.write_bytes(hosted.server.ca_pem or b"")
    config = KubeConfig(server=hosted.url, token_file=str(token), ca=Material(file=str(ca)))
    kube = Kube(config, user_agent=AGENT)
    with pytest.raises(KubeError):
        kube.node("gpu-1")
    token.write_text("right\n")
    assert kube.node("gpu-1").metadata.name == "gpu-1"


def test_a_renewed_ca_is_read_after_a_refusal(hosted: HostedServer, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(make_serving_certificate("127.0.0.1").ca_pem)
    config = KubeConfig(server=hosted.url, token="right", ca=Material(file=str(ca)))
    kube = Kube(config, user_agent=AGENT, reload_every_s=0.0)
    with pytest.raises(KubeError):
        kube.node("gpu-1")
    ca.write_bytes(b"half a certif")
    with pytest.raises(KubeError):
        kube.node("gpu-1")
    ca.write_bytes(hosted.server.ca_pem or b"")
    with pytest.raises(KubeError):
        kube.node("gpu-1")
    assert kube.node("gpu-1").metadata.name == "gpu-1"


def test_a_kubeconfig_is_read_again_after_a_refusal_for_the_same_server_only(
    hosted: HostedServer, tmp_path: Path
) -> None:
    path = hosted.server.write_kubeconfig(tmp_path / "config", "expired")
    found = [replace(from_files(path), server="https://127.0.0.1:9")]
    kube = Kube(from_files(path), user_agent=AGENT, reread=lambda: found[0], reload_every_s=0.0)
    for _ in range(2):
        with pytest.raises(KubeError) as raised:
            kube.node("gpu-1")
        assert raised.value.status == 401
    found[0] = replace(from_files(path), token="right")
    with pytest.raises(KubeError):
        kube.node("gpu-1")
    assert kube.node("gpu-1").metadata.name == "gpu-1"


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    config = KubeConfig(
        server="https://api.example", ca=Material(file=str(tmp_path / "nothing.pem"))
    )
    with pytest.raises(KubeConfigError, match=r"api\.example"):
        Kube(config, user_agent=AGENT)
