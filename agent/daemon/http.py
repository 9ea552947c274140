"""The agent's HTTP server: `/metrics`, `/healthz` and `/readyz`, plain text and read-only.

Requests run in their own threads and never wait for the main loop. `/healthz` checks that the loop
runs, `/readyz` also that the API server accepted the last health status. The remediator uses a
health status only while the agent's pod is Ready.

Every pod can connect, so a connection lasts at most `CONNECTION_S`, and at the limit the oldest is
closed. A probe takes milliseconds and is always answered.
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
"""From accepting a connection to the last byte of its response; a scrape takes far less."""
MOST_CONNECTIONS = 32
"""Open connections, each with a thread; kubelet, Prometheus and operators need under ten."""
BACKLOG = 128
"""Connections that wait in the kernel to be accepted."""
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"


class MetricsListenError(SettingsError):
    """The server cannot listen on the address; the text has the address and the remedy."""


class Server(ThreadingTCPServer):
    """The HTTP server. `healthz` and `readyz` return None if the check passes, else a sentence."""

    daemon_threads = True
    # Its threads end within `CONNECTION_S`, so `close` does not wait for them.
    block_on_close = False

    def __init__(
        self,
        listen: str,
        *,
        metrics: Callable[[], bytes],
        healthz: Callable[[], str | None],
        readyz: Callable[[], str | None],
        connection_s: float = CONNECTION_S,
        has_dualstack: Callable[[], bool] = socket.has_dualstack_ipv6,
    ) -> None:
        self.metrics = metrics
        self._connection_s = connection_s
        self.checks = {"/healthz": healthz, "/readyz": readyz}
        self._accepted: dict[socket.socket, float] = {}
        """The open connections, oldest first, and when each was accepted."""
        self._lock = threading.Lock()
        address = _address(listen)
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()
        try:
            self.socket = _listening(address, has_dualstack)
        except OSError as error:
            raise MetricsListenError(
                f"cannot listen on {listen} ({error.strerror}): set another --listen address"
            ) from error
        self.server_address = self.socket.getsockname()
        self._thread = threading.Thread(target=self.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port in use, also if port 0 was requested."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Respond in a thread; close the oldest connection if there are too many."""
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
                if now - since < self._connection_s:
                    break
                self._end(connection)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection after its response."""
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
        """Close the connection, which ends its thread."""
        del self._accepted[connection]
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the client closed it first

    def handle_error(self, *_: Any) -> None:
        """Ignore the error: only a client that disconnects raises one here."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = CONNECTION_S
    server_version = "gpuward-agent"
    sys_version = ""

    def do_GET(self) -> None:
        """Respond to one request."""
        path = self.path.partition("?")[0]
        check = self.server.checks.get(path)
        if path == "/metrics":
            self._answer(HTTPStatus.OK, METRICS_TYPE, self.server.metrics())
        elif check is None:
            self._answer(HTTPStatus.NOT_FOUND, PLAIN, b"/metrics /healthz /readyz\n")
        else:
            problem = check()
            status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
            self._answer(status, PLAIN, f"{problem or 'ok'}\n".encode())

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Do not log requests: probes and scrapes come every few seconds."""


def _address(listen: str) -> tuple[str, int]:
    try:
        return user_input.listen_address(listen)
    except ValueError:
        raise MetricsListenError(
            f"{listen!r} is not a listen address: use :9412, 127.0.0.1:9412 or [::1]:9412"
        ) from None


def _listening(address: tuple[str, int], has_dualstack: Callable[[], bool]) -> socket.socket:
    """Return a listening socket. Raises OSError.

    Without a host it listens on IPv6 and IPv4, or on IPv4 only if the kernel has no IPv6.
    """
    host, port = address
    if host != user_input.EVERY_ADDRESS:
        named = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # Prefer IPv4 for a name with both, such as localhost.
        family, _, _, _, found = min(named, key=lambda one: one[0] != socket.AF_INET)
        return socket.create_server(found[:2], family=family, backlog=BACKLOG)
    if has_dualstack():
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno not in NO_IPV6:
                raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)
