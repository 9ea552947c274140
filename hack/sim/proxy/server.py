"""The proxy on a port of its own, in front of a server that runs elsewhere."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hack.sim.proxy.faults import Faults
from hack.sim.proxy.forward import Forwarder
from hack.sim.proxy.layer import Proxy
from hack.sim.proxy.listener import Listener
from hack.sim.proxy.request_log import RequestLog
from hack.sim.proxy.served import Served

_HOST = "127.0.0.1"
_BODY_LIMIT = 64 * 1024 * 1024
"""More than any API server takes, so that the refusal is the server's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProxy:
    """Where it listens, whom to trust, its rules and its log."""

    url: str
    ca_pem: bytes | None
    faults: Faults
    requests: RequestLog


@asynccontextmanager
async def proxy_before(
    url: str, *, ca_pem: bytes | None, users: Mapping[str, str], served: Served | None = None
) -> AsyncIterator[RunningProxy]:
    """A proxy before the server at `url`, with TLS where the server has it.

    `users` are the server's static tokens with their users; `served` changes what clients read.
    """
    faults, log = Faults(), RequestLog()
    tls = ssl.create_default_context(cadata=ca_pem.decode()) if ca_pem else None
    forwarder = Forwarder(url, faults=faults, tls=tls, users=users, served=served)
    proxy = Proxy(forwarder, faults=faults, log=log)
    listener = Listener(
        proxy.handle, host=_HOST, port=0, tls=tls is not None, body_limit=_BODY_LIMIT
    )
    try:
        await listener.start()
        yield RunningProxy(url=listener.url, ca_pem=listener.ca_pem, faults=faults, requests=log)
    finally:
        faults.drop_watches()
        await listener.stop()
        await forwarder.close()
