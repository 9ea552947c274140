"""Deleting objects over HTTP: preconditions, finalizers, grace, collections, namespaces."""

from __future__ import annotations

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


async def test_finalizers_hold_an_object_until_the_last_is_removed():
    async with serving() as api:
        await api.post(NODES, node(finalizers=["a.io/x", "a.io/y"]))
        left = await api.delete(f"{NODES}/n1")
        assert left["metadata"]["deletionTimestamp"]
        await api.patch(f"{NODES}/n1", {"metadata": {"finalizers": ["a.io/x"]}})
        assert (await api("GET", f"{NODES}/n1")).code == 200
        await api.patch(f"{NODES}/n1", {"metadata": {"finalizers": None}})
        assert (await api("GET", f"{NODES}/n1")).code == 404


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
