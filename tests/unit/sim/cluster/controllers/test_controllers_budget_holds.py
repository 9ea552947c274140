"""However hard many clients evict, a budget's pods never fall below what it asks for."""

from __future__ import annotations

import asyncio
import random

import pytest

from hack.sim.cluster.clients.client import ApiError, Object
from hack.sim.cluster.controllers.nodes.kubelet import KubeletSettings
from hack.sim.cluster.controllers.pods import is_ready, is_terminating
from hack.sim.cluster.controllers.suite import ClusterControllers, Parts, utc_now
from hack.sim.cluster.fleet.fleet import Budget, Fleet, Pool, Serving
from hack.sim.cluster.fleet.fleet_load import load
from hack.sim.cluster.http.resource_calls import InProcessClient
from hack.sim.cluster.resource import PODS
from hack.sim.cluster.store.engine import Engine

REPLICAS, EVICTIONS = 8, 60


@pytest.mark.parametrize(
    ("budget", "least"),
    [
        pytest.param(Budget(max_unavailable=2), 6, id="maximum"),
        pytest.param(Budget(min_available="60%"), 5, id="percentage"),
    ],
)
async def test_the_budget_holds_at_every_moment(budget: Budget, least: int) -> None:
    engine = Engine()
    client = InProcessClient(engine)
    web = Serving(name="web", replicas=REPLICAS, pool="gpu", budget=budget)
    fleet = Fleet(pools=(Pool(name="gpu", nodes=3),), workloads=(web,))
    await load(client, fleet, utc_now(), bulk=engine.load)
    lowest, evicted = REPLICAS, 0
    parts = Parts(kubelet=KubeletSettings(start_s=0.005, stop_s=0.005))
    async with ClusterControllers(client, parts) as controllers:

        def count(old: Object | None, new: Object | None) -> None:
            nonlocal lowest
            pods = controllers.caches[PODS].in_namespace("serving")
            healthy = sum(is_ready(pod) and not is_terminating(pod) for pod in pods)
            lowest = min(lowest, healthy)

        controllers.caches[PODS].subscribe(count)

        async def evict_for_ever(seed: int) -> None:
            nonlocal evicted
            rng = random.Random(seed)
            while evicted < EVICTIONS:
                pods, _ = await client.list(PODS, "serving")
                chosen = rng.choice(pods)["metadata"]
                try:
                    await client.evict("serving", chosen["name"], uid=chosen["uid"])
                    evicted += 1
                except ApiError as error:
                    if error.code not in (404, 409, 429):
                        raise
                await asyncio.sleep(0.001)

        async with asyncio.timeout(30), asyncio.TaskGroup() as evictors:
            for seed in range(4):
                evictors.create_task(evict_for_ever(seed))
    assert evicted >= EVICTIONS
    assert least <= lowest < REPLICAS
