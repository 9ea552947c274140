"""CustomResourceDefinitions over HTTP: posting one creates an API with all its rules."""

from __future__ import annotations

import pytest

from hack.sim.cluster.clients.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.support.cluster.apiserver_support import CRDS, serving
from tests.support.cluster.widget_definition import TABLE, WIDGETS, definition, widget


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


@pytest.mark.parametrize(
    ("validation", "code", "warned"),
    [("Strict", 400, False), ("Warn", 201, True), ("Ignore", 201, False)],
)
async def test_unknown_fields_of_custom_objects(validation, code, warned):
    async with serving() as api:
        await api.post(CRDS, definition())
        answer = await api("POST", WIDGETS, widget(what=1), fieldValidation=validation)
        assert answer.code == code
        assert ("Warning" in answer.headers) is warned
        if code == 400:
            assert 'strict decoding error: unknown field "spec.what"' in answer.message


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        pytest.param({"size": "3"}, "spec.size", "must be of type integer", id="type"),
        pytest.param({"size": 0}, "spec.size", "greater than or equal to 1", id="minimum"),
        pytest.param({"size": 10}, "spec.size", "less than or equal to 9", id="maximum"),
        pytest.param(
            {"color": "green"}, "spec.color", 'supported values: "red", "blue"', id="enum"
        ),
        pytest.param({"label": "A1"}, "spec.label", "should match '^[a-z]+$'", id="pattern"),
        pytest.param({"label": "abcdef"}, "spec.label", "Too long", id="max-length"),
        pytest.param({"label": "a"}, "spec.label", "at least 2 chars", id="min-length"),
        pytest.param({"tags": ["a", "b", "c"]}, "spec.tags", "Too many: 3", id="max-items"),
        pytest.param({"tags": [1]}, "spec.tags[0]", "must be of type string", id="item-type"),
        pytest.param({"share": 1.5}, "spec.share", "integer,string", id="int-or-string"),
        pytest.param(
            {"notes": {"a": 1}}, "spec.notes.a", "must be of type string", id="map-value"
        ),
        pytest.param({"since": "yesterday"}, "spec.since", "date-time", id="date-time"),
        pytest.param(
            {"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]", "Duplicate", id="map-key"
        ),
        pytest.param({"parts": [{}]}, "spec.parts[0].name", "Required value", id="required"),
    ],
)
async def test_the_schema_is_enforced(spec, field, text):
    async with serving() as api:
        await api.post(CRDS, definition())
        answer = await api("POST", WIDGETS, widget(**spec))
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.message.startswith('Widget.example.io "w1" is invalid: ')
        cause = next(one for one in answer.causes if one["field"] == field)
        assert text in cause["message"]


async def test_a_null_counts_as_absent_where_none_is_allowed():
    async with serving() as api:
        await api.post(CRDS, definition())
        made = await api.post(WIDGETS, widget(color=None, label=None, maybe=None))
        assert made["spec"]["maybe"] is None, "nullable"
        assert made["spec"]["color"] == "red", "its default"
        assert "label" not in made["spec"]


@pytest.mark.parametrize(
    "spec", [{"share": 5}, {"share": "5%"}, {"maybe": None}, {"since": "2026-01-01T00:00:00Z"}]
)
async def test_what_the_schema_allows_is_stored(spec):
    async with serving() as api:
        await api.post(CRDS, definition())
        made = await api.post(WIDGETS, widget(**spec))
        assert made["spec"].items() >= spec.items()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param({**widget(), "kind": ""}, 400, id="no-kind"),
        pytest.param({**widget(), "apiVersion": "example.io/v2"}, 400, id="other-version"),
        pytest.param({k: v for k, v in widget().items() if k != "spec"}, 422, id="no-spec"),
    ],
)
async def test_custom_objects_need_their_type_and_required_fields(body, code):
    async with serving() as api:
        await api.post(CRDS, definition())
        assert (await api("POST", WIDGETS, body)).code == code


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


async def test_custom_objects_take_no_strategic_patch_and_no_put_without_a_version():
    async with serving() as api:
        await api.post(CRDS, definition())
        made = await api.post(WIDGETS, widget())
        path = f"{WIDGETS}/w1"
        answer = await api("PATCH", path, {}, content_type=STRATEGIC_MERGE_PATCH)
        assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
        del made["metadata"]["resourceVersion"]
        assert (await api("PUT", path, made)).code == 422
        assert (await api("PUT", f"{path}/status", made)).code == 422


async def test_invalid_status_is_refused():
    async with serving() as api:
        await api.post(CRDS, definition())
        await api.post(WIDGETS, widget())
        patch = {"status": {"seen": "x"}}
        answer = await api("PATCH", f"{WIDGETS}/w1/status", patch, content_type=MERGE_PATCH)
        assert answer.causes[0]["field"] == "status.seen"


async def test_printer_columns_and_selectable_fields():
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.color"}],
    }
    now = [1_700_000_000.0]
    async with serving(clock=lambda: now[0]) as api:
        await api.post(CRDS, definition(**version))
        await api.post(WIDGETS, widget("w1"))
        await api.post(WIDGETS, widget("w2", color="blue"))
        now[0] += 200
        table = (await api("GET", WIDGETS, accept=TABLE)).body
        assert [(one["name"], one["priority"]) for one in table["columnDefinitions"]] == [
            ("Name", 0),
            ("Size", 0),
            ("Phase", 1),
            ("Age", 0),
        ]
        assert table["rows"][0]["cells"] == ["w1", 3, None, "3m"]
        blue = await api.get(WIDGETS, fieldSelector="spec.color=blue")
        assert [one["metadata"]["name"] for one in blue["items"]] == ["w2"]
        assert (await api("GET", WIDGETS, fieldSelector="spec.size=3")).code == 400
        async with api.watch(WIDGETS, fieldSelector="spec.color=red") as watch:
            assert (await watch.next())[1]["metadata"]["name"] == "w1"
            await api.patch(f"{WIDGETS}/w1", {"spec": {"color": "blue"}})
            assert (await watch.next())[0] == "DELETED"


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
