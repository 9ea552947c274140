"""HTTP servers with responses from a test: an exporter's page, an invalid API server."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO


class Answer(BaseHTTPRequestHandler):
    """A handler without logs; the test defines its responses."""

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(handler: type[Answer], address: str = "127.0.0.1") -> Iterator[int]:
    """The port of the server."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

        def handle_error(self, *_: object) -> None:
            pass

    with Quiet((address, 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextlib.contextmanager
def exporter(write: Callable[[BinaryIO], object]) -> Iterator[str]:
    """The address of a dcgm-exporter; `write` writes each page."""

    class Page(Answer):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            write(self.wfile)  # type: ignore[arg-type]  # it is one

    with serving(Page) as port:
        yield f"http://127.0.0.1:{port}/metrics"
