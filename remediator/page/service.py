"""The review page on its own port, so that it can be left closed while probes stay open.

Called by `run`. The page only shows: where its port is taken, the remediator says so and goes on
without it.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog
from aiohttp import web

from remediator.page.site import mount
from remediator.serve.server import ListenError, Served, parse_listen, start_server
from remediator.view.live import PageSource

_LOG = structlog.get_logger()
OFF = "off"


async def serve_page(
    source: PageSource, listen: str, hosts: Collection[str] = ()
) -> Served | None:
    """Listen on `listen` (`off`: do not). ListenError for a wrong address."""
    if listen == OFF:
        return None
    try:
        parse_listen(listen)
    except ListenError:
        raise ListenError(
            f"--page-listen {listen} is not HOST:PORT; write for example :9414, or off."
        ) from None
    app = web.Application(client_max_size=64 * 1024)
    mount(app, source, hosts)
    try:
        served = await start_server(app, listen)
    except ListenError as problem:
        _LOG.warning("review page", problem=str(problem).replace("--listen", "--page-listen"))
        return None
    _LOG.info("review page", page_port=served.port)
    return served
