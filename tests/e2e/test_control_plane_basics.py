"""The simulator and a real API server, judged by the same tests: workloads run, budgets hold,
drains end. What else the simulator does is judged by the end-to-end tests that run on both.
"""

import pytest

from hack.sim.cluster.controllers.pods import condition, node_of
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import DCGM_EXPORTER, Budget, Gang, Pool, Serving
from hack.sim.cluster.resource import POD_DISRUPTION_BUDGETS

POOL = Pool(name="gpu", nodes=3)
WEB = Serving(name="web", replicas=3, pool="gpu", budget=Budget(max_unavailable=1))


async def test_kubectl_drains_a_node_within_the_budget(cluster) -> None:
    await cluster.add(WEB, DCGM_EXPORTER, pool=POOL)
    before = await cluster.ready_pods("web", 3)
    await cluster.ready_pods(DCGM_EXPORTER.name, 3)
    await cluster.budget_allows("web", "serving")
    node = node_of(before[0])

    status, out, err = await cluster.kubectl(
        "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"
    )

    assert status == 0, err
    assert f"node/{node} drained" in out
    after = await cluster.ready_pods("web", 3)
    assert node not in {node_of(pod) for pod in after}
    assert len(await cluster.pods(DCGM_EXPORTER.name, node=node)) == 1
    assert (await cluster.node(node))["spec"]["unschedulable"] is True


async def test_job_pods_under_a_maximum_stay_stale_for_ever(cluster) -> None:
    """The budget meets the pods at its first check, so that no look ever succeeds."""
    await cluster.add(Gang(name="llm", pods=2, pool="gpu"), pool=POOL)
    pod = (await cluster.ready_pods("llm", 2))[0]
    await cluster.add_budget("llm", "training", maxUnavailable=1)
    await cluster.until(lambda: sync_failed(cluster), "SyncFailed")
    with pytest.raises(ApiError) as refused:
        await cluster.client.evict("training", pod["metadata"]["name"])
    assert (refused.value.code, refused.value.headers.get("Retry-After")) == (429, "10")


async def sync_failed(cluster) -> bool:
    budget = await cluster.client.get(POD_DISRUPTION_BUDGETS, "llm", "training")
    found = condition(budget, "DisruptionAllowed")
    return found is not None and found["reason"] == "SyncFailed"
