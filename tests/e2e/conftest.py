"""The clusters that end-to-end tests run on; see `tests.support.cluster.either_cluster`."""

from collections.abc import AsyncIterator

import pytest

from hack.sim.cluster.fleet.fleet import Pool
from tests.support.cluster.either_cluster import Cluster, a_cluster
from tests.support.remediator.remediator_process import prepare


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """An empty cluster that knows our definitions; the simulator lets everybody do everything."""
    async with a_cluster(secure=False) as found:
        yield found


@pytest.fixture
async def fleet(cluster: Cluster) -> Cluster:
    """Four healthy GPU nodes, and the namespace of a remediator."""
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=4))
    await cluster.health.all_healthy([f"gpu-000{number}" for number in range(4)])
    return cluster


@pytest.fixture
async def secure_cluster() -> AsyncIterator[Cluster]:
    """The same with TLS, tokens and RBAC, as a real cluster always has them."""
    async with a_cluster(secure=True) as found:
        yield found
