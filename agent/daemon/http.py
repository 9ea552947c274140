"""Serve `/metrics`, `/healthz` and `/readyz` on the agent's own port, plain text, read-only.

A few threads of the standard library's server; the main loop is never waited for. `/healthz`
reports that the loop ticks, `/readyz` that it ticks and the last health status was accepted: the
remediator trusts a health status only while the agent's pod is Ready.

Anything in the pod network can connect, so a connection lives for at most `CONNECTION_S` and the
oldest one makes room for the newest: a probe, which takes milliseconds, is always answered.
"""

import errno
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from agent.settings import SettingsError
from rules.text import user_input

CONNECTION_S = 10.0
"""From accepting a connection to the last byte of its answer; a scrape takes far less."""
MOST_CONNECTIONS = 32
"""Open at once, each with a thread: kubelet, Prometheus and a few people need under ten."""
BACKLOG = 128
"""Connections that the kernel completes for us meanwhile."""
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"


class MetricsListenError(SettingsError):
    """The address cannot be served; the text names it and the remedy."""


class Server(ThreadingTCPServer):
    """The agent's HTTP server. `healthz` and `readyz` return None when well, else a sentence."""

    daemon_threads = True
    # Its threads end within `CONNECTION_S`; nobody waits for them.
    block_on_close = False

    def __init__(
        self,
        listen: str,
        *,
        metrics: Callable[[], bytes],
        healthz: Callable[[], str | None],
        readyz: Callable[[], str | None],
    ) -> None:
        self.metrics = metrics
        self.checks = {"/healthz": healthz, "/readyz": readyz}
        self._accepted: dict[socket.socket, float] = {}
        """The open connections, oldest first, and when each was accepted."""
        self._lock = threading.Lock()
        address = _address(listen)
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()
        try:
            self.socket = _listening(address)
        except OSError as error:
            raise MetricsListenError(
                f"{listen} cannot be listened on ({error.strerror}): choose another --listen"
            ) from error
        self.server_address = self.socket.getsockname()
        self._thread = threading.Thread(target=self.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port in use; tells which one when 0 was asked for."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; the oldest connection is closed where there are too many."""
        with self._lock:
            while len(self._accepted) >= MOST_CONNECTIONS:
                self._end(next(iter(self._accepted)))
            self._accepted[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close the connections that are too old, twice a second."""
        now = time.monotonic()
        with self._lock:
            for connection, since in tuple(self._accepted.items()):
                if now - since < CONNECTION_S:
                    break
                self._end(connection)

    def shutdown_request(self, request: Any) -> None:
        """The answer is sent, or there is none to send."""
        with self._lock:
            self._accepted.pop(request, None)
        super().shutdown_request(request)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:
            # Out of file descriptors or memory: the socket stays readable, so wait before the
            # next attempt instead of spinning.
            time.sleep(0.05)
            raise

    def _end(self, connection: socket.socket) -> None:
        """Wake the thread that reads or writes this connection: it ends with it."""
        del self._accepted[connection]
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the client was faster

    def handle_error(self, *_: Any) -> None:
        """A client that hung up is not the agent's trouble; nothing else raises here."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = CONNECTION_S
    server_version = "gpuward-agent"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        path = self.path.partition("?")[0]
        check = self.server.checks.get(path)
        if path == "/metrics":
            self._answer(HTTPStatus.OK, METRICS_TYPE, self.server.metrics())
        elif check is None:
            self._answer(HTTPStatus.NOT_FOUND, PLAIN, b"/metrics /healthz /readyz\n")
        else:
            complaint = check()
            status = HTTPStatus.SERVICE_UNAVAILABLE if complaint else HTTPStatus.OK
            self._answer(status, PLAIN, f"{complaint or 'ok'}\n".encode())

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Requests are not logged: probes and scrapes come every few seconds."""


def _address(listen: str) -> tuple[str, int]:
    try:
        return user_input.listen_address(listen)
    except ValueError:
        raise MetricsListenError(
            f"{listen!r} is no address to listen on: write :9412, 127.0.0.1:9412 or [::1]:9412"
        ) from None


def _listening(address: tuple[str, int]) -> socket.socket:
    """A listening socket. Every address means IPv6 and IPv4, or IPv4 alone where the kernel has
    no IPv6. Raises OSError.
    """
    host, port = address
    if host != user_input.EVERY_ADDRESS:
        named = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # Of a name with both, such as localhost, the IPv4 address.
        family, _, _, _, found = min(named, key=lambda one: one[0] != socket.AF_INET)
        return socket.create_server(found[:2], family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno not in NO_IPV6:
                raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)
