"""What a real remediator process says when the API server says no, or when others say: not now."""

from __future__ import annotations

import asyncio

import pytest

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Pool, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES
from tests.support.remediator.remediator_process import (
    QUARANTINES,
    UNMARKED,
    RemediatorProcess,
    condition_of,
    leads,
    marks_of,
    phase,
    prepare,
    running,
    sessions,
)

NODE = "gpu-0001"
RBAC = 'nodes "gpu-0001" is forbidden: User "x" cannot patch resource "nodes" in API group ""'
POLICY = "ValidatingAdmissionPolicy 'gpuward' denied request: not that taint"


@pytest.fixture
async def fleet(cluster):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=4))
    await cluster.health.all_healthy([f"gpu-000{n}" for n in range(4)])
    return cluster


async def said(cluster, node, kind, reason):
    async def there():
        found = await sessions(cluster, node)
        condition = condition_of(found[-1], kind) if found else {}
        current = condition.get("status") == "True" and condition.get("reason") == reason
        return found[-1] if current else None

    return await cluster.until(there, f"{kind}={reason} of {node}")


@pytest.mark.parametrize(
    ("message", "code", "reason", "remedy"),
    [
        pytest.param(RBAC, 403, "MissingPermission", "grant it patch on nodes", id="RBAC"),
        pytest.param(POLICY, 403, "MarkRefused", "admission policy or webhook", id="admission"),
        pytest.param("spec: Invalid", 422, "MarkRefused", "spec: Invalid", id="invalid"),
    ],
)
async def test_a_refused_mark_is_said_with_its_remedy_and_not_hammered(
    fleet, tmp_path, message, code, reason, remedy
):
    path = f"/api/v1/nodes/{NODE}"
    refused = fleet.plane.faults.fail(
        ApiError(code, "Forbidden", message), method="PATCH", path=path, times=None
    )
    with running(RemediatorProcess(tmp_path, fleet.plane.kubeconfig)):
        await leads(fleet, "one")
        await fleet.health.fail(NODE, XID_79)
        session = await said(fleet, NODE, "NeedsHuman", reason)
        assert session["status"]["phase"] == "Pending"
        assert condition_of(session, "Blocked")["reason"] == reason
        assert remedy in condition_of(session, "Blocked")["message"]
        await fleet.health.fail("gpu-0002", XID_79)
        await phase(fleet, "gpu-0002", "Quarantined")
        assert refused.hits <= 2, "a refused mark is not sent again and again"
    assert marks_of(await fleet.node(NODE)) == UNMARKED


@pytest.mark.parametrize("code", [404, 408, 409, 410, 500, 503])
async def test_a_write_that_a_webhook_denies_with_any_code_is_reported_in_its_words(
    fleet, tmp_path, code
):
    denied = ApiError(code, "Conflict", "admission webhook guard denied the request")
    path = f"/api/v1/nodes/{NODE}"
    refused = fleet.plane.faults.fail(denied, method="PATCH", path=path, times=None)
    with running(RemediatorProcess(tmp_path, fleet.plane.kubeconfig)):
        await leads(fleet, "one")
        await fleet.health.fail(NODE, XID_79)
        session = await said(fleet, NODE, "Blocked", "MarkRefused")
        assert session["status"]["phase"] == "Pending"
        assert f"{code} admission webhook guard denied" in session["status"]["message"]
        assert refused.hits <= 8, "ever rarer"
        fleet.plane.faults.clear()
        await phase(fleet, NODE, "Quarantined")


@pytest.mark.parametrize("code", [404, 409, 500])
async def test_an_eviction_that_a_webhook_denies_with_any_code_is_reported_in_its_words(
    fleet, tmp_path, code
):
    await fleet.add(Serving(name="web", replicas=2, pool="gpu", gpus=8))
    node = node_of((await fleet.ready_pods("web", 2))[0])
    denied = ApiError(code, "Conflict", "admission webhook guard denied the request")
    fleet.plane.faults.fail(denied, method="POST", path=".*/eviction", times=None)
    with running(RemediatorProcess(tmp_path, fleet.plane.kubeconfig)):
        await leads(fleet, "one")
        await fleet.health.fail(node, XID_79)

        async def blocked():
            found = await sessions(fleet, node)
            condition = condition_of(found[-1], "Blocked") if found else {}
            return condition.get("status") == "True" and found[-1]

        session = await fleet.until(blocked, "Blocked")
        assert "webhook guard denied the request" in condition_of(session, "Blocked")["message"]
        assert session["status"]["drain"]["evicted"] == 0
        fleet.plane.faults.clear()
        await phase(fleet, node, "Quarantined")


async def test_a_mark_that_cannot_come_off_is_said_until_it_does(fleet, tmp_path):
    path = f"/api/v1/nodes/{NODE}"
    with running(RemediatorProcess(tmp_path, fleet.plane.kubeconfig)):
        await leads(fleet, "one")
        await fleet.health.fail(NODE, XID_79)
        session = await phase(fleet, NODE, "Quarantined")
        fleet.plane.faults.fail(
            ApiError(403, "Forbidden", POLICY), method="PATCH", path=path, times=None
        )
        name = session["metadata"]["name"]
        patch = {"spec": {"release": {"by": "ada", "reason": "repaired by hand"}}}
        await fleet.client.patch(QUARANTINES, name, patch)
        session = await said(fleet, NODE, "NeedsHuman", "MarkRefused")
        assert session["status"]["phase"] == "Released"
        assert "take its mark off the node" in condition_of(session, "Blocked")["message"]
        assert "denied request: not that taint" in session["status"]["message"]
        assert marks_of(await fleet.node(NODE)) != UNMARKED
        fleet.plane.faults.clear()

        async def over():
            found = (await sessions(fleet, NODE))[-1]
            off = marks_of(await fleet.node(NODE)) == UNMARKED
            return off and condition_of(found, "Blocked").get("status") == "False"

        await fleet.until(over, "the mark off and nothing said any more")


async def test_s48_a_lost_permission_to_evict_is_said_and_the_process_lives(fleet, tmp_path):
    await fleet.add(Serving(name="web", replicas=2, pool="gpu", gpus=8))
    node = node_of((await fleet.ready_pods("web", 2))[0])
    lost = ApiError(403, "Forbidden", "pods is forbidden")
    fleet.plane.faults.fail(lost, method="POST", path=".*/eviction", times=None)
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig)
    with running(one):
        await leads(fleet, "one")
        await fleet.health.fail(node, XID_79)
        session = await said(fleet, node, "NeedsHuman", "MissingPermission")
        assert session["status"]["phase"] == "Draining"
        assert "create on pods/eviction" in session["status"]["message"]
        fleet.plane.faults.clear()
        await phase(fleet, node, "Quarantined")
        assert await asyncio.to_thread(one.stop) == 0


async def test_s48_a_token_that_expired_is_read_again_and_work_goes_on(fleet, tmp_path):
    unauthorized = ApiError(401, "Unauthorized", "Unauthorized")
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig)
    with running(one):
        await leads(fleet, "one")
        fleet.plane.faults.fail(unauthorized, agent="gpuward-remediator.*", times=30)
        fleet.plane.faults.drop_watches()
        await fleet.health.fail(NODE, XID_79)
        await phase(fleet, NODE, "Quarantined")
        assert await asyncio.to_thread(one.stop) == 0


async def test_s40_a_maintenance_lease_keeps_us_off_until_it_goes(fleet, tmp_path):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True}
    names = {"plural": "nodemaintenances", "singular": "nodemaintenance"}
    await fleet.client.create(
        CUSTOM_RESOURCE_DEFINITIONS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "nodemaintenances.nodemaintenance.medik8s.io"},
            "spec": {
                "group": "nodemaintenance.medik8s.io",
                "scope": "Cluster",
                "names": {**names, "kind": "NodeMaintenance"},
                "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
            },
        },
    )
    await fleet.client.create(
        NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}},
    )
    node_uid = (await fleet.node(NODE))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node_uid}
    await fleet.client.create(
        LEASES,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"node-{NODE}", "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": "node-maintenance",
                "leaseDurationSeconds": 3600,
                "renewTime": "2099-01-01T00:00:00.000000Z",
            },
        },
        "medik8s-leases",
    )
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig)
    with running(one):
        await leads(fleet, "one")

        async def asked():
            return any("medik8s-leases" in r.path for r in fleet.plane.requests.all)

        await fleet.until(asked, "the leases read")
        await fleet.health.fail(NODE, XID_79)
        session = await said(fleet, NODE, "Paused", "StandDown")
        assert "node-maintenance" in condition_of(session, "Paused")["message"]
        assert marks_of(await fleet.node(NODE)) == UNMARKED
        await fleet.client.delete(LEASES, f"node-{NODE}", "medik8s-leases")
        await phase(fleet, NODE, "Quarantined")
