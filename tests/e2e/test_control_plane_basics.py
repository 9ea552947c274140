"""What every test here rests on, on both kinds of cluster: workloads run, budgets hold, drains
end.
"""

from __future__ import annotations

import pytest

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.controllers.pods import condition, node_of
from hack.sim.cluster.fleet.fleet import DCGM_EXPORTER, Budget, Gang, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS, XID_79
from hack.sim.cluster.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    POD_DISRUPTION_BUDGETS,
)

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
    """The budget meets the pods at its first look, so that no look ever succeeds."""
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


async def test_scripted_health_is_published_as_an_agent_would(cluster) -> None:
    await cluster.add_nodes("gpu-a", "gpu-b")
    await cluster.health.all_healthy(["gpu-a", "gpu-b"])
    await cluster.health.fail("gpu-a", XID_79)

    sick, _ = await cluster.client.list(GPU_NODE_HEALTHS, field_selector="status.health=Unhealthy")
    assert [obj["metadata"]["name"] for obj in sick] == ["gpu-a"]
    (incident,) = sick[0]["status"]["incidents"]
    assert (incident["reason"], incident["active"]) == ("Xid79GPUFallenOffBus", True)
    node = await cluster.node("gpu-a")
    assert node["metadata"]["labels"]["gpuward.io/health"] == "unhealthy"
    assert (condition(node, "GPUHealthy") or {})["status"] == "False"
    assert (condition(node, "Ready") or {})["status"] == "True"

    await cluster.health.healthy("gpu-a")
    node = await cluster.node("gpu-a")
    assert (condition(node, "GPUHealthy") or {})["status"] == "True"


async def test_a_service_account_can_do_only_what_it_was_given(secure_cluster) -> None:
    cluster = secure_cluster
    await cluster.add_nodes("gpu-a")
    kubeconfig = await cluster.plane.service_account_kubeconfig("gpuward-system", "agent")
    assert kubeconfig.stat().st_mode & 0o077 == 0
    get_nodes = (f"--kubeconfig={kubeconfig}", "get", "nodes", "-o", "name")

    status, _, err = await cluster.kubectl(*get_nodes)
    assert status != 0
    assert "Forbidden" in err
    assert "system:serviceaccount:gpuward-system:agent" in err

    await cluster.client.create(
        CLUSTER_ROLES,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "reads-nodes"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}],
        },
    )
    await cluster.client.create(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "agent-reads-nodes"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "reads-nodes",
            },
            "subjects": [
                {"kind": "ServiceAccount", "namespace": "gpuward-system", "name": "agent"}
            ],
        },
    )

    async def may() -> str:
        status, out, _ = await cluster.kubectl(*get_nodes)
        return out if status == 0 else ""

    assert await cluster.until(may, "the binding to take effect") == "node/gpu-a\n"
