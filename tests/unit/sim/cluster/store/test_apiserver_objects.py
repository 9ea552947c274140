"""Creating and deleting objects over HTTP, those of custom kinds too."""

from tests.support.cluster.apiserver_support import (
    CRDS,
    NODES,
    node,
    serving,
)
from tests.support.cluster.widget_definition import WIDGETS, definition, widget


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
