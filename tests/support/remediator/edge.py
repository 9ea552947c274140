"""The remediator's edge against the simulated API server, part by part, over real HTTP."""

import functools
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.sim.cluster.client import Object
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, Resource
from hack.sim.cluster.server import SimulatedApiServer
from hack.sim.manifests import read_manifests
from remediator.kube.access import Access
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, Clock, RateLimiter, SkewEstimate
from remediator.metrics import Metrics
from tests.support.cluster.made import made

ROOT = Path(__file__).parents[3]
QUARANTINES = Resource("gpuward.io", "v1alpha1", "gpuquarantines", False, "GPUQuarantine")


class SteppedClock(Clock):
    """The machine's clock, moved on by a test."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        super().__init__()

    def elapsed(self) -> float:
        return super().elapsed() + self.ahead_s


class NoSkew(SkewEstimate):
    """Answers of the server do not move the clock: for tests that move both clocks on."""

    def add(self, server_date: float, sent_at: float, received_at: float) -> None:
        """Learn nothing."""


@dataclass
class Edge:
    """A server, a connection to it, and what parts are made of."""

    server: SimulatedApiServer
    api: Api
    clock: SteppedClock
    metrics: Metrics

    @property
    def client(self) -> Any:
        return self.server.client

    async def add_node(self, name: str, **spec: Any) -> dict:
        ready = {"type": "Ready", "status": "True"}
        status = {"conditions": [ready], "nodeInfo": {"bootID": "boot-1"}}
        return await made(self.client, NODES, name, spec=spec, status=status)

    def writes(self) -> list[tuple[str, str]]:
        """What the remediator changed so far: verb and resource."""
        return [
            (r.verb, r.resource)
            for r in self.server.requests.mutations
            if r.agent.startswith("gpuward-remediator")
        ]


@functools.cache
def _definitions() -> list[Object]:
    return read_manifests(ROOT / "daemonset" / "crds")


@asynccontextmanager
async def edge(
    folder: Path,
    clock: SteppedClock | None = None,
    rates: Mapping[CallQueue, float] | None = None,
):
    """A server with our definitions and the namespace of the lease; `rates` limits calls."""
    async with SimulatedApiServer() as server:
        for body in _definitions():
            await server.client.create(CUSTOM_RESOURCE_DEFINITIONS, body)
        await made(server.client, NAMESPACES, "gpuward")
        clock, metrics = clock or SteppedClock(), Metrics()
        access = Access(str(server.write_kubeconfig(folder / "kubeconfig")))
        await access.load()
        api = Api(access, clock, RateLimiter(rates or {}, clock), metrics.observe_call)
        await api.open()
        try:
            yield Edge(server, api, clock, metrics)
        finally:
            await api.close()
