"""Runs one replica until SIGTERM: servers first, then its parts, the lease given back at the
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine

import structlog

from remediator.kube.access import Access
from remediator.page.hosts import hosts_of
from remediator.page.service import serve_page
from remediator.replica import Replica
from remediator.serve.logs import configure_logs
from remediator.serve.server import make_app, start_server
from remediator.settings import RemediatorSettings

# How long a shutdown may take before what is left is dropped; the lease expires by itself.
_SHUTDOWN_S = 5.0

_LOG = structlog.get_logger()


async def run(settings: RemediatorSettings) -> int:
    """Run until SIGTERM or SIGINT; AccessError or ListenError when nothing useful can run."""
    configure_logs()
    access = Access(settings.kubeconfig)
    await access.load()
    replica = Replica(settings, access)
    app = make_app(
        replica.metrics, healthy=replica.healthy, ready=replica.ready, refresh=replica.refresh
    )
    runner, port = await start_server(app, settings.listen)
    page = await serve_page(
        replica.page_source(), settings.page_listen, hosts_of(settings.page_hosts)
    )
    _LOG.info(
        "started",
        identity=settings.identity,
        server=access.host,
        port=port,
        namespace=replica.elector.namespace,
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await replica.api.open()
    tasks = replica.parts()
    try:
        await _until_stopped(tasks, stopped)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_S):
                await replica.elector.release()
        if page is not None:
            await page.cleanup()
        await replica.api.close()
        await runner.cleanup()
        _LOG.info("stopped")
    return 0


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
