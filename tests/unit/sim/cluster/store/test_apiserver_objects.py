"""Creating and deleting objects over HTTP, those of custom kinds too."""

from __future__ import annotations

import pytest

from hack.sim.cluster.store.tables import epoch
from tests.support.cluster.apiserver_support import (
    CRDS,
    NAMESPACES,
    NODES,
    PODS,
    node,
    pod,
    running_pod,
    serving,
)
from tests.support.cluster.widget_definition import WIDGETS, definition, widget


async def test_a_new_object_gets_identity_and_time():
    async with serving(clock=lambda: 1_700_000_000.9) as api:
        made = (await api.post(NODES, node()))["metadata"]
        assert made["creationTimestamp"] == "2023-11-14T22:13:20Z"
        assert len(made["uid"]) == 36
        assert made["resourceVersion"].isdigit()
        assert "generation" not in made
        assert (await api.post(PODS, pod()))["metadata"]["generation"] == 1


async def test_a_taken_name_answers_409_already_exists():
    async with serving() as api:
        await api.post(NODES, node())
        answer = await api("POST", NODES, node())
        assert (answer.code, answer.reason) == (409, "AlreadyExists")
        assert answer.message == 'nodes "n1" already exists'
        assert answer.details == {"name": "n1", "kind": "nodes"}


@pytest.mark.parametrize(
    ("name", "priority"), [("system-node-critical", 2_000_001_000), ("mine", 7)]
)
async def test_priority_classes_are_resolved(name, priority):
    async with serving() as api:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await api.post(path, {"metadata": {"name": "mine"}, "value": 7})
        body = pod()
        body["spec"]["priorityClassName"] = name
        assert (await api.post(PODS, body))["spec"]["priority"] == priority


async def test_a_dry_run_create_stores_nothing():
    async with serving() as api:
        assert (await api("POST", NODES, node(), dryRun="All")).code == 201
        assert (await api("GET", f"{NODES}/n1")).code == 404


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


async def test_posting_a_definition_creates_an_api():
    async with serving() as api:
        assert (await api("GET", WIDGETS)).code == 404
        await api.post(CRDS, definition())
        made = await api.get(f"{CRDS}/widgets.example.io")
        conditions = {one["type"]: one["status"] for one in made["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert made["status"]["storedVersions"] == ["v1"]
        groups = await api.get("/apis")
        assert "example.io" in [one["name"] for one in groups["groups"]]
        resources = (await api.get("/apis/example.io/v1"))["resources"]
        assert [one["name"] for one in resources] == ["widgets", "widgets/status"]
        assert resources[0]["shortNames"] == ["wd"]
        listed = await api.get(WIDGETS)
        assert (listed["kind"], listed["items"]) == ("WidgetList", [])


async def test_defaults_are_applied_and_unknown_fields_pruned():
    async with serving() as api:
        await api.post(CRDS, definition())
        spec = {"what": 1, "free": {"any": {"thing": 1}}, "notes": {"a": "b"}, "nested": {"x": 1}}
        made = await api.post(WIDGETS, widget(**spec))
        assert made["spec"] == {
            "size": 3,
            "color": "red",
            "free": {"any": {"thing": 1}},
            "notes": {"a": "b"},
            "nested": {"depth": 3},
        }
        listed = await api.get(WIDGETS)
        assert listed["items"][0]["kind"] == "Widget"


async def test_status_is_isolated_both_ways():
    async with serving() as api:
        await api.post(CRDS, definition())
        made = await api.post(WIDGETS, {**widget(), "status": {"phase": "Lost"}})
        assert "status" not in made
        patch = {
            "status": {"phase": "Ready"},
            "spec": {"size": 5},
            "metadata": {"labels": {"a": "b"}},
        }
        by_status = await api.patch(f"{WIDGETS}/w1/status", patch)
        assert (by_status["status"], by_status["spec"]["size"]) == ({"phase": "Ready"}, 3)
        assert "labels" not in by_status["metadata"]
        assert by_status["metadata"]["generation"] == 1
        by_spec = await api.patch(f"{WIDGETS}/w1", {**patch, "status": {"phase": "Gone"}})
        assert (by_spec["status"], by_spec["spec"]["size"]) == ({"phase": "Ready"}, 5)
        assert by_spec["metadata"]["generation"] == 2
        labelled = await api.patch(f"{WIDGETS}/w1", {"metadata": {"labels": {"c": "d"}}})
        assert labelled["metadata"]["generation"] == 2


async def test_deleting_a_definition_deletes_its_objects_and_ends_their_watches():
    async with serving() as api:
        await api.post(CRDS, definition())
        await api.post(WIDGETS, widget())
        async with api.watch(WIDGETS) as watch:
            await watch.next()
            await api.delete(f"{CRDS}/widgets.example.io")
            assert (await watch.next())[0] == "DELETED"
            assert await watch.ended()
        assert (await api("GET", WIDGETS)).code == 404
        assert (await api("GET", f"{CRDS}/widgets.example.io")).code == 404
        groups = await api.get("/apis")
        assert "example.io" not in [one["name"] for one in groups["groups"]]
