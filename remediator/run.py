"""Run one replica until SIGTERM: start the servers, then its parts, and release the lease last."""

import asyncio
import contextlib
import gc
import json
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import structlog

from remediator.kube.access import Access
from remediator.page import server, site
from remediator.replica import Replica
from remediator.settings import RemediatorSettings

# The longest shutdown; after it, the lease expires by itself.
_SHUTDOWN_S = 5.0
# Thresholds of the garbage collector. Python's defaults (700, 10, 10) took a tenth of the CPU in a
# storm, and nearly all objects are freed without it.
_COLLECTED_AFTER = (20_000, 20, 20)
_SYNCED_S = 0.1

_LOG = structlog.get_logger()
# `json.dumps` would create an encoder for each line.
_ENCODER = json.JSONEncoder(default=repr)


def _encoded(event: Any, **_: Any) -> bytes:
    return _ENCODER.encode(event).encode()


def configure_logs() -> None:
    """Log JSON lines to standard error. No secret, token or entire object may be logged."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_encoded),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # One write per line: a storm has thousands of lines.
        logger_factory=structlog.BytesLoggerFactory(file=sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    # The client library logs configuration problems that gpuward reports itself.
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)


async def run(settings: RemediatorSettings) -> int:
    """Run until SIGTERM or SIGINT. Raises KubeConfigError and ListenError."""
    configure_logs()
    gc.set_threshold(*_COLLECTED_AFTER)
    access = Access(settings.kubeconfig)
    await access.load()
    replica = Replica(settings, access)
    app = server.make_app(
        replica.metrics, healthy=replica.healthy, ready=replica.ready, refresh=replica.refresh
    )
    served = await server.start_server(app, settings.listen)
    page = await site.serve_page(
        replica.page_source(), settings.page_listen, site.hosts_of(settings.page_hosts)
    )
    _LOG.info(
        "started",
        identity=settings.identity,
        server=access.host,
        port=served.port,
        namespace=settings.namespace,
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await replica.api.open()
    tasks = replica.parts()
    settling = asyncio.create_task(_set_aside(replica))
    try:
        await _until_stopped(tasks, stopped)
    finally:
        settling.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_S):
                await replica.elector.release()
        if page is not None:
            await page.close()
        await replica.api.close()
        await served.close()
        _LOG.info("stopped")
    return 0


async def _set_aside(replica: Replica) -> None:
    """Exclude the complete caches from garbage collection."""
    while replica.caches.problem():
        await replica.clock.sleep(_SYNCED_S)
    gc.freeze()


async def _until_stopped(parts: list[Coroutine[None, None, None]], stopped: asyncio.Event) -> None:
    """Run all parts until stopped or until one of them ends with an error."""
    tasks = [asyncio.create_task(part) for part in parts]
    waiter = asyncio.create_task(stopped.wait())
    done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (waiter, *tasks):
        task.cancel()
    await asyncio.gather(waiter, *tasks, return_exceptions=True)
    for task in done:
        if task is not waiter:
            task.result()
