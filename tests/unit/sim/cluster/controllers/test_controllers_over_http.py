"""The controllers over a real port, as on a real API server, when watches end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from hack.sim.cluster.client import HttpClient
from hack.sim.cluster.controllers.pods import is_ready
from hack.sim.cluster.controllers.suite import ClusterControllers, utc_now
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Fleet, Pool, Serving, apply_fleet
from hack.sim.cluster.resource import DEPLOYMENTS, PODS
from hack.sim.cluster.server import SimulatedApiServer

LOOKS = 500
FLEET = Fleet(
    pools=(Pool(name="gpu", nodes=3),),
    workloads=(Serving(name="web", replicas=3, pool="gpu"),),
)


async def until(check: Callable[[], Awaitable[Any]], what: str) -> None:
    for _ in range(LOOKS):
        if await check():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never seen: {what}")


@pytest.fixture
async def server() -> AsyncIterator[SimulatedApiServer]:
    async with SimulatedApiServer() as running:
        yield running


@pytest.fixture
async def client(server: SimulatedApiServer) -> AsyncIterator[HttpClient]:
    async with HttpClient(server.url) as running:
        yield running


def ready_count(client: HttpClient, app: str, count: int) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        pods, _ = await client.list(PODS, label_selector=f"app={app}")
        staying = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        return len(staying) == count and all(is_ready(pod) for pod in staying)

    return check


@pytest.mark.parametrize("error", [None, ApiError(410, "Expired", "too old resource version")])
async def test_controllers_go_on_after_their_watches_end(
    server: SimulatedApiServer, client: HttpClient, error: ApiError | None
) -> None:
    async with ClusterControllers(client):
        await apply_fleet(client, FLEET, utc_now())
        await until(ready_count(client, "web", 3), "web ready")
        assert server.engine.close_watches(error=error) > 0
        await client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}}, "serving")
        await until(ready_count(client, "web", 5), "web scaled")
