"""Many nodes at once with a real process: rates hold, blocked nodes block no other, caches may
lag.
"""

from datetime import datetime

import psutil
import pytest

from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Budget, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

SICK = 100
PODS_PER_NODE = 10
RATE = 250
ALL_AT_ONCE = """
mode: Enforce
budget:
  maxUnavailable: {percent: 100, atMost: 1000}
  maxNew: {count: 1000, window: 1m}
  perReason: {count: 1000, window: 1m}
drain: {settle: 0s, gangWindow: 0s, unmanaged: Evict}
"""


def drains_begun(one: RemediatorProcess) -> list[float]:
    """When it knew of a drain that it is on record: nobody is evicted before that."""
    return [
        datetime.fromisoformat(line["timestamp"]).timestamp()
        for line in one.lines()
        if (line.get("kind"), line.get("phase")) == ("WriteSessionStatus", "Draining")
    ]


@pytest.mark.slow
async def test_s28_a_hundred_nodes_keep_to_the_rate_and_a_blocked_one_holds_up_no_other(
    cluster, tmp_path
):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=SICK))
    names = [f"gpu-{number:04}" for number in range(SICK)]
    await cluster.health.all_healthy(names)
    await cluster.add(
        Serving(name="solo", replicas=1, pool="gpu", gpus=8, budget=Budget(min_available=1))
    )
    blocked = node_of((await cluster.ready_pods("solo", 1))[0])
    for name in names:
        for number in range(PODS_PER_NODE):
            await cluster.add_pod(f"{name}-{number}", name, terminationGracePeriodSeconds=0)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=ALL_AT_ONCE)
    with running(one):
        await leads(cluster, "one")
        for name in names:
            await cluster.health.fail(name, XID_79)
        for name in names:
            if name != blocked:
                await phase(cluster, name, "Quarantined")
        used = psutil.Process(one.pid).memory_info().rss
        session = await phase(cluster, blocked, "Draining")
    assert session["status"]["drain"]["blocked"][0]["pdb"] == "serving/solo"
    sent = [r.at for r in cluster.plane.requests.all if r.subresource == "eviction"]
    assert len(sent) >= (SICK - 1) * PODS_PER_NODE
    # The server's own stalls bunch calls up, the first ones too: so over the entire run, from the
    # moment when the first drain was on record by the remediator's own log.
    began = min(drains_begun(one))
    assert min(sent) >= began
    assert len(sent) <= (max(sent) - began) * RATE * 1.1
    assert used < 300e6
