"""What other operators say about nodes: maintenance leases, and nodes that Kueue replaces."""

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES, Resource
from remediator.controller.drain_reads import MaintenanceLeases
from remediator.controller.gangs import KueueWorkloads
from remediator.kube.other_apis import ApiGroups
from rules.drain.gangs import Gang
from rules.session.exclusions import MAINTENANCE_NAMESPACE as NAMESPACE
from tests.support.cluster.made import made
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import some_edge

WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads", True, "Workload")
LLM = Gang(kind="JobSet", namespace="team-a", name="llm", topology_aware=True)


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        yield found


async def define(cluster, group, version, kind, plural):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    approved = {"api-approved.kubernetes.io": "https://example.invalid"}
    await made(
        cluster.client, CUSTOM_RESOURCE_DEFINITIONS, f"{plural}.{group}",
        meta={"annotations": approved},
        spec={"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    )  # fmt: skip


class TestMaintenance:
    @pytest.fixture
    async def leased(self, cluster):
        await define(
            cluster, "nodemaintenance.medik8s.io", "v1beta1", "NodeMaintenance", "nodemaintenances"
        )
        await made(cluster.client, NAMESPACES, NAMESPACE)
        spec = {
            "holderIdentity": "node-maintenance", "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }  # fmt: skip
        for name in ("node-n1", "something-else"):
            await made(cluster.client, LEASES, name, NAMESPACE, spec=spec)
        return cluster

    def keeper(self, cluster, wakeups):
        class World:
            maintenance_leases = {}  # noqa: RUF012 - one world per test

        world = World()
        groups = ApiGroups(cluster.api, cluster.clock)
        edge = some_edge(cluster.clock, api=cluster.api, world=world)
        return world, MaintenanceLeases(edge, groups, changed=wakeups.append)

    async def test_a_lease_is_known_by_its_node_and_forgotten_when_it_goes(self, leased):
        wakeups: list[str] = []
        world, keeper = self.keeper(leased, wakeups)
        await keeper.sweep()
        assert list(world.maintenance_leases) == ["n1"]
        assert world.maintenance_leases["n1"].spec.holder_identity == "node-maintenance"
        await keeper.sweep()
        assert wakeups == ["n1"], "the same lease is no news"
        await leased.client.delete(LEASES, "node-n1", NAMESPACE)
        await keeper.sweep()
        assert world.maintenance_leases == {}
        assert wakeups == ["n1", "n1"]

    async def test_a_lease_that_cannot_be_read_has_not_ended(self, leased):
        world, keeper = self.keeper(leased, [])
        await keeper.sweep()
        leased.server.faults.fail(ApiError(503, "ServiceUnavailable", "later"), path=".*leases")
        await keeper.sweep()
        assert list(world.maintenance_leases) == ["n1"]

    @pytest.mark.parametrize(
        ("path", "due_s"),
        [pytest.param(".*leases", 5, id="leases"), pytest.param("/apis$", 301, id="groups")],
    )
    async def test_unreadable_leases_stop_disruptions_after_a_while(self, leased, path, due_s):
        _, keeper = self.keeper(leased, [])
        assert "maintenance leases" in keeper.too_old(), "not read yet"
        await keeper.sweep()
        assert keeper.too_old() == ""
        leased.server.faults.fail(
            ApiError(503, "ServiceUnavailable", "later"), path=path, times=None
        )
        leased.clock.ahead_s += due_s
        await keeper.sweep()
        assert keeper.too_old() == "", "a moment without an answer is normal"
        leased.clock.ahead_s += 101
        await keeper.sweep()
        assert "maintenance leases" in keeper.too_old()
        leased.server.faults.clear()
        leased.clock.ahead_s += 16
        await keeper.sweep()
        assert keeper.too_old() == ""

    async def test_a_refusal_is_not_asked_again_at_once(self, leased):
        _, keeper = self.keeper(leased, [])
        leased.server.faults.fail(ApiError(403, "Forbidden", "no"), path=".*leases")
        assert await keeper.sweep() >= 60
        leased.server.faults.clear()
        leased.server.faults.fail(ApiError(401, "Unauthorized", "no"), path=".*leases", times=2)
        assert await keeper.sweep() < 60, "an expired token is no missing right"

    async def test_without_those_operators_nothing_of_theirs_is_read(self, cluster):
        _, keeper = self.keeper(cluster, [])
        for _ in range(3):
            await keeper.sweep()
        assert cluster.server.requests.count(resource="leases") == 0


class TestKueue:
    @pytest.fixture
    async def queued(self, cluster):
        await define(cluster, "kueue.x-k8s.io", "v1beta1", "Workload", "workloads")
        await made(cluster.client, NAMESPACES, "team-a")
        for name, owner, nodes in (
            ("jobset-llm-1", "llm", ["n7", "n3"]),
            ("jobset-other-2", "other", ["n9"]),
            ("job-quiet-3", "quiet", []),
        ):
            reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
            meta = {"ownerReferences": [{**reference, "name": owner, "uid": f"uid-{owner}"}]}
            status = {"unhealthyNodes": [{"name": node} for node in nodes]}
            await made(cluster.client, WORKLOADS, name, "team-a", meta=meta, status=status)
        return cluster

    def reader(self, cluster):
        return KueueWorkloads(cluster.api, ApiGroups(cluster.api, cluster.clock))

    async def test_the_nodes_that_kueue_replaces_are_named_by_gang(self, queued):
        assert await self.reader(queued).unhealthy([LLM]) == {"JobSet team-a/llm": ("n3", "n7")}

    async def test_the_workload_of_a_pod_group_is_called_like_the_group(self, queued):
        workloads, _ = await queued.client.list(WORKLOADS)
        name = next(w["metadata"]["name"] for w in workloads if w["status"]["unhealthyNodes"])
        group = Gang(kind="PodGroup", namespace="team-a", name=name, topology_aware=True)
        other = Gang(kind="PodGroup", namespace="team-a", name="llm", topology_aware=True)
        found = await self.reader(queued).unhealthy([group, other])
        assert set(found) == {group.key}

    async def test_gangs_that_restart_completely_are_not_read(self, queued):
        plain = Gang(kind="JobSet", namespace="team-a", name="llm")
        assert await self.reader(queued).unhealthy([plain]) == {}
        assert queued.server.requests.count(resource="workloads") == 0

    async def test_without_kueue_nothing_is_asked(self, cluster):
        assert await self.reader(cluster).unhealthy([LLM]) == {}
        assert cluster.server.requests.count(resource="workloads") == 0

    async def test_a_refusal_blocks_nothing(self, queued):
        queued.server.faults.fail(ApiError(403, "Forbidden", "no"), path=".*workloads")
        assert await self.reader(queued).unhealthy([LLM]) == {}

    @pytest.mark.parametrize(
        ("code", "reason"), [(503, "ServiceUnavailable"), (401, "Unauthorized")]
    )
    async def test_an_outage_is_not_health(self, queued, code, reason):
        queued.server.faults.fail(ApiError(code, reason, "x"), path=".*workloads", times=2)
        with pytest.raises(Exception, match=str(code)):
            await self.reader(queued).unhealthy([LLM])
