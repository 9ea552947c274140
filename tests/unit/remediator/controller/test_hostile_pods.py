"""Pods and owners that strangers wrote, and lists that fail: the drain reports it and hides
nothing.
"""

import json

import pytest

from hack.sim.cluster.resource import PODS, REPLICATION_CONTROLLERS
from hack.sim.proxy.faults import Fault
from remediator.controller import drain_reads
from remediator.controller.drain_reads import DrainReader
from rules.api.metadata import ObjectMeta, OwnerReference
from rules.api.pods import OwnerView, PodMeta, PodView
from rules.api.writes import Evicting
from tests.support.cluster.made import made, with_gpus
from tests.support.remediator.draining import draining
from tests.support.remediator.edge import edge
from tests.support.remediator.scripted_server import until


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        await found.add_node("n1")
        yield found


def served(cluster, *items):
    """The list of pods is answered with these."""
    body = json.dumps({"metadata": {}, "items": list(items)}).encode()
    return cluster.server.faults.add(
        Fault(method="GET", path="^/api/v1/pods$", times=None, status=200, body=body)
    )


def pod(name, **spec):
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"nodeName": "n1", **spec}}


async def test_a_pod_that_is_not_understood_hides_no_other(cluster):
    odd = {"name": "v", "emptyDir": {"mode": 448}}
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        served(cluster, pod("alpha", volumes=[odd]), pod("bad", priority="high"), {"metadata": 5})
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.drains.plan("n1") is not None)
        plan = setting.drains.plan("n1")
        assert [e.name for e in plan.evict] == ["alpha"], "a field nobody needs is no doubt"
        assert plan.blocked_reason == "PodUnreadable"
        assert any("default/bad" in block.pods.names for block in plan.blocked)
        assert not plan.drained


@pytest.mark.parametrize("steered", [Evicting.GO, Evicting.PROBE])
@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [(500, "PodsNotListed", "retried"), (403, "MissingPermission", "Grant")],
)
async def test_pods_that_cannot_be_listed_are_reported_and_their_deadline_runs(
    cluster, code, reason, expected, steered
):
    async with draining(cluster, failed_s=0.1) as setting:
        await setting.add_session("n1")
        body = json.dumps({"kind": "Status", "message": "no"}).encode()
        broken = cluster.server.faults.add(
            Fault(method="GET", path="^/api/v1/pods$", times=None, status=code, body=body)
        )
        setting.drains.steer("n1", steered)
        await until(lambda: broken.hits >= 1)
        cluster.clock.ahead_s += 60
        await until(lambda: setting.drains.plan("n1") is not None)
        plan = setting.drains.plan("n1")
        assert (plan.blocked_reason, plan.drained, plan.evict) == (reason, False, ())
        assert expected in plan.unlisted.why
        broken.times = broken.hits
        await until(lambda: not setting.drains.plan("n1").unlisted)


async def owned(cluster, name, uid, kind="ReplicationController", api_version="v1"):
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    meta = {"ownerReferences": [{**reference, "controller": True}]}
    await made(cluster.client, PODS, "p", "default", meta=meta, spec=with_gpus("n1", 1))


async def test_an_owner_with_an_odd_selector_ends_nothing(cluster):
    spec = {"replicas": 1, "selector": {"matchLabels": "x"}}
    owner = await made(cluster.client, REPLICATION_CONTROLLERS, "rc", "default", spec=spec)
    uid = owner["metadata"]["uid"]
    await owned(cluster, "rc", uid)
    async with draining(cluster) as setting:
        look = DrainReader(setting.cluster.api, setting.cluster.clock, setting.caches)
        pods = await look.cached_pods_on("n1")
        owners = await look.owners_of_gpu_pods(pods)
        assert [p.metadata.name for p in pods] == ["p"]
        assert owners[uid].metadata.name == "rc"


def test_a_drain_keeps_the_owners_of_its_own_pods_only():
    def owner(uid, parent):
        reference = OwnerReference(uid=parent, controller=True)
        return OwnerView(metadata=ObjectMeta(uid=uid, owner_references=(reference,)))

    known = {uid: owner(uid, parent) for uid, parent in ("ab", "bc", "cb", "xy")}
    reference = OwnerReference(uid="a", controller=True)
    pod = PodView(metadata=PodMeta(owner_references=(reference,)))
    assert drain_reads.owners_of([pod, pod], known).keys() == {*"abc"}, "also in a cycle"


@pytest.mark.parametrize(
    ("name", "kind", "api_version"),
    [
        ("../../../pods", "ReplicationController", "v1"),
        ("..", "ReplicationController", "v1"),
        ("x?limit=0", "ReplicationController", "v1"),
        ("x", "../../pods", "v1"),
        ("x", "Job", "../../api/v1"),
        ("%2e%2e/%2e%2e", "ReplicationController", "v1"),
    ],
)
async def test_an_owner_reference_chooses_no_path(cluster, name, kind, api_version):
    await owned(cluster, name, "some-uid", kind, api_version)
    async with draining(cluster) as setting:
        look = DrainReader(setting.cluster.api, setting.cluster.clock, setting.caches)
        before = len(list(cluster.server.requests.all))
        await look.owners_of_gpu_pods(await look.cached_pods_on("n1"))
        asked = [r.path for r in list(cluster.server.requests.all)[before:]]
        allowed = ("/api/v1/pods?", "/api/v1/namespaces/default/replicationcontrollers/")
        assert [
            path for path in asked if not path.startswith(allowed) and "watch" not in path
        ] == []
        names = [p.split("/")[-1] for p in asked if "/replicationcontrollers/" in p]
        assert not {"..", "pods"} & set(names)
