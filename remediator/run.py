"""Runs one replica until SIGTERM: servers first, then its parts, the lease returned to service at
the end.
"""

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

# How long a shutdown may take before what is left is dropped; the lease expires by itself.
_SHUTDOWN_S = 5.0
# Objects made more than freed before young ones are looked through for cycles, and how many such
# looks make an older generation's: nearly all that a storm makes is freed without any. Python's
# own numbers (700, 10, 10) took a tenth of a storm's CPU.
_COLLECTED_AFTER = (20_000, 20, 20)
_SYNCED_S = 0.1

_LOG = structlog.get_logger()
# Made once: `json.dumps` makes a new one for each line.
_ENCODER = json.JSONEncoder(default=repr)


def _encoded(said: Any, **_: Any) -> bytes:
    return _ENCODER.encode(said).encode()


def configure_logs() -> None:
    """Log lines as JSON on standard error, one object a line, for a cluster's log collector. No
    secret, token or whole object may be logged anywhere.
    """
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_encoded),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # One write a line: in a storm there are thousands.
        logger_factory=structlog.BytesLoggerFactory(file=sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    # The client library logs configuration problems that come back as our own sentences.
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)


async def run(settings: RemediatorSettings) -> int:
    """Run until SIGTERM or SIGINT; KubeConfigError or ListenError when nothing useful can run."""
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
    """What the caches hold once they are complete lives on: no collection goes through it."""
    while replica.caches.problem():
        await replica.clock.sleep(_SYNCED_S)
    gc.freeze()


async def _until_stopped(parts: list[Coroutine[None, None, None]], stopped: asyncio.Event) -> None:
    """Run all parts; only one that cannot even be kept apart ends by itself, and the process."""
    tasks = [asyncio.create_task(part) for part in parts]
    waiter = asyncio.create_task(stopped.wait())
    done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (waiter, *tasks):
        task.cancel()
    await asyncio.gather(waiter, *tasks, return_exceptions=True)
    for task in done:
        if task is not waiter:
            task.result()
