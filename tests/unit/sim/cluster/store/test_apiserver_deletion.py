"""Deleting objects over HTTP: preconditions, finalizers, grace, collections, namespaces."""

from __future__ import annotations

import pytest

from hack.sim.cluster.store.tables import epoch
from tests.support.cluster.apiserver_support import (
    NAMESPACES,
    NODES,
    PODS,
    node,
    pod,
    running_pod,
    serving,
)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
FOREIGN = {"key": "other.io/x", "effect": "NoSchedule"}


async def test_deleting_checks_preconditions_first():
    async with serving() as api:
        made = (await api.post(NODES, node()))["metadata"]
        wrong = {"preconditions": {"uid": "other"}}
        answer = await api("DELETE", f"{NODES}/n1", wrong)
        assert (answer.code, answer.reason) == (409, "Conflict")
        stale = {"preconditions": {"resourceVersion": "1"}}
        assert (await api("DELETE", f"{NODES}/n1", stale)).code == 409
        gone = await api.delete(f"{NODES}/n1", {"preconditions": {"uid": made["uid"]}})
        assert (gone["status"], gone["details"]["uid"]) == ("Success", made["uid"])
        assert (await api("DELETE", f"{NODES}/n1")).code == 404


async def test_a_recreated_node_has_another_uid():
    async with serving() as api:
        first = await api.post(NODES, node())
        await api.delete(f"{NODES}/n1")
        second = await api.post(NODES, node())
        assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_finalizers_hold_an_object_until_the_last_is_removed():
    async with serving() as api:
        await api.post(NODES, node(finalizers=["a.io/x", "a.io/y"]))
        left = await api.delete(f"{NODES}/n1")
        assert left["metadata"]["deletionTimestamp"]
        await api.patch(f"{NODES}/n1", {"metadata": {"finalizers": ["a.io/x"]}})
        assert (await api("GET", f"{NODES}/n1")).code == 200
        await api.patch(f"{NODES}/n1", {"metadata": {"finalizers": None}})
        assert (await api("GET", f"{NODES}/n1")).code == 404


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
async def test_propagation_policies_leave_a_finalizer_for_the_collector(policy, finalizer):
    async with serving() as api:
        await api.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
        left = await api.delete(f"{CONFIG_MAPS}/c", {"propagationPolicy": policy})
        assert left["metadata"]["finalizers"] == [finalizer]


@pytest.mark.parametrize(("policy", "left"), [(None, ["orphan"]), ("Background", None)])
async def test_a_job_is_deleted_without_its_pods_unless_told_otherwise(policy, left):
    """As on the real API server: tests/e2e/admission/test_admission_jobs.py."""
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    async with serving() as api:
        await api.post(jobs, {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}})
        await api.delete(f"{jobs}/j", {"propagationPolicy": policy} if policy else {})
        if left is None:
            assert (await api("GET", f"{jobs}/j")).code == 404
        else:
            assert (await api.get(f"{jobs}/j"))["metadata"]["finalizers"] == left


async def test_a_running_pod_terminates_for_its_grace_period():
    async with serving(clock=lambda: 1_700_000_000.0) as api:
        await running_pod(api)
        left = (await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 600}))["metadata"]
        assert epoch(left["deletionTimestamp"]) == 1_700_000_600
        assert left["deletionGracePeriodSeconds"] == 600
        longer = (await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 900}))["metadata"]
        assert longer == left
        shorter = (await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 5}))["metadata"]
        assert epoch(shorter["deletionTimestamp"]) == 1_700_000_005
        await api.delete(f"{PODS}/p1", gracePeriodSeconds=0)
        assert (await api("GET", f"{PODS}/p1")).code == 404


@pytest.mark.parametrize(
    ("phase", "node_name"), [("Succeeded", "n1"), ("Failed", "n1"), ("Pending", None)]
)
async def test_finished_and_unbound_pods_go_at_once(phase, node_name):
    async with serving() as api:
        await running_pod(api, phase=phase, node_name=node_name)
        await api.delete(f"{PODS}/p1")
        assert (await api("GET", f"{PODS}/p1")).code == 404


async def test_a_collection_is_deleted_as_selected():
    async with serving() as api:
        for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
            await api.post(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"color": color}}})
        await api.delete(CONFIG_MAPS, labelSelector="color=red")
        left = await api.get(CONFIG_MAPS)
        assert [one["metadata"]["name"] for one in left["items"]] == ["c"]


async def test_a_namespace_terminates_until_it_is_finalized():
    async with serving() as api:
        made = await api.post(NAMESPACES, {"metadata": {"name": "team-a"}})
        assert made["spec"]["finalizers"] == ["kubernetes"]
        assert made["status"]["phase"] == "Active"
        left = await api.delete(f"{NAMESPACES}/team-a")
        assert left["status"]["phase"] == "Terminating"
        refused = await api("POST", "/api/v1/namespaces/team-a/pods", pod())
        assert (refused.code, refused.causes[0]["reason"]) == (403, "NamespaceTerminating")
        await api.patch(f"{NAMESPACES}/team-a", {"spec": {"finalizers": None}})
        left = await api.get(f"{NAMESPACES}/team-a")
        await api.put(f"{NAMESPACES}/team-a/finalize", {**left, "spec": {}})
        assert (await api("GET", f"{NAMESPACES}/team-a")).code == 404


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_namespaces_are_for_ever(name):
    async with serving() as api:
        answer = await api("DELETE", f"{NAMESPACES}/{name}")
        assert (answer.code, answer.reason) == (403, "Forbidden")
