"""Runs a simulated cluster until it is interrupted: `python -m hack.sim.cluster`.

For people who want to try kubectl or our programs against something.  Wrong use ends with 64.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import ADMIN
from hack.sim.cluster.controllers.nodes.node_objects import node_object
from hack.sim.cluster.controllers.suite import ClusterControllers
from hack.sim.cluster.server import SimulatedApiServer

WRONG_USE = 64


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one sentence."""
        self.exit(WRONG_USE, f"{self.prog}: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m hack.sim.cluster", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port, 0 for any free one (0)")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS with a token (off)")
    parser.add_argument("--rbac", action="store_true", help="enforce RBAC (off)")
    parser.add_argument("--nodes", type=int, default=0, help="GPU nodes to begin with (0)")
    parser.add_argument("--kubeconfig-out", type=Path, help="write a kubeconfig here")
    return parser


async def serve(options: argparse.Namespace) -> None:
    """Serve with controllers, scheduler and fake kubelets until SIGINT or SIGTERM."""
    tokens = {secrets.token_urlsafe(24): ADMIN} if options.tls else None
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with SimulatedApiServer(
        host=options.host,
        port=options.port,
        tls=options.tls,
        tokens=tokens,
        authorization="RBAC" if options.rbac else "AlwaysAllow",
    ) as server:
        now = datetime.now(UTC)
        names = (f"gpu-{index}" for index in range(options.nodes))
        server.load(r.NODES, (node_object(name, now=now) for name in names))
        if options.kubeconfig_out:
            server.write_kubeconfig(options.kubeconfig_out)
        async with ClusterControllers(server.client):
            print(f"simulated Kubernetes v1.36 on {server.url}", flush=True)
            await stop.wait()


def main() -> None:
    """Parse the command line and serve."""
    options = _parser().parse_args()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(options))
    except OSError as error:
        print(f"cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
