"""Serves `/metrics`, `/healthz` and `/readyz` on the agent's own port, plain text, read-only.

A few threads of the standard library's server; the main loop is never waited for. `/healthz` says
that the loop ticks, `/readyz` that it ticks and the last verdict was accepted: the remediator
trusts a verdict only while the agent's pod is Ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REQUEST_TIMEOUT_S = 10.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"


class MetricsListenError(Exception):
    """The address cannot be served; the text names it and the remedy."""


class Server(ThreadingHTTPServer):
    """The agent's HTTP server. `healthz` and `readyz` return None when well, else a sentence."""

    daemon_threads = True
    # A restarted agent must not wait for the old socket's last connections.
    allow_reuse_address = True

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
        try:
            super().__init__(address(listen), _Handler)
        except OSError as error:
            raise MetricsListenError(
                f"{listen} cannot be listened on ({error.strerror}): choose another --listen"
            ) from error
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

    def handle_error(self, *_: Any) -> None:
        """A client that hung up is not the agent's trouble; nothing else raises here."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = REQUEST_TIMEOUT_S
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


def address(listen: str) -> tuple[str, int]:
    """`:9412`, `127.0.0.1:0` or `[::1]:9412` as host and port."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise MetricsListenError(
            f"{listen!r} is no address to listen on: write :9412 or 127.0.0.1:9412"
        )
    return host.strip("[]"), int(port)
