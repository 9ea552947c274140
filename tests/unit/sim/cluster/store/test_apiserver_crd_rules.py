"""Which CustomResourceDefinitions are refused, and why; when a changed one takes effect."""

from __future__ import annotations

import pytest
import yaml

from tests.support.cluster.apiserver_support import CRDS, serving
from tests.support.cluster.widget_definition import MANIFESTS, WIDGETS, definition, widget


def altered(change):
    body = definition()
    change(body["spec"], body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])
    return body


def rule(schema, text="self.size() < 3"):
    schema["x-kubernetes-validations"] = [{"rule": text, "message": "no"}]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param(lambda s, p: s.update(group="other.io"), "metadata.name", id="name"),
        pytest.param(lambda s, p: s.update(scope="Galaxy"), "spec.scope", id="scope"),
        pytest.param(
            lambda s, p: s["versions"][0].pop("schema"), "openAPIV3Schema", id="no-schema"
        ),
        pytest.param(
            lambda s, p: s["versions"][0].update(storage=False), "spec.versions", id="storage"
        ),
        pytest.param(lambda s, p: p["spec"].pop("type"), "properties[spec].type", id="no-type"),
        pytest.param(
            lambda s, p: p["spec"]["properties"]["tags"].pop("items"),
            "[tags].items",
            id="no-items",
        ),
        pytest.param(
            lambda s, p: p["spec"].update(additionalProperties={"type": "string"}),
            "properties[spec].additionalProperties",
            id="both-properties",
        ),
        pytest.param(
            lambda s, p: p["spec"]["properties"]["color"].update(default="green"),
            "properties[color].default",
            id="bad-default",
        ),
        pytest.param(
            lambda s, p: p["spec"]["properties"]["label"].update(pattern="["),
            "pattern",
            id="pattern",
        ),
        pytest.param(
            lambda s, p: p["spec"]["properties"]["parts"]["items"].pop("required"),
            "items.properties[name].default",
            id="map-key-not-required",
        ),
        pytest.param(
            lambda s, p: p["spec"].update(anyOf=[{"type": "object"}]),
            "anyOf[0].type",
            id="logical",
        ),
        pytest.param(
            lambda s, p: s["versions"][0].update(selectableFields=[{"jsonPath": ".spec.tags"}]),
            "selectableFields[0].jsonPath",
            id="selectable-list",
        ),
        pytest.param(
            lambda s, p: s["versions"][0].update(
                additionalPrinterColumns=[{"name": "A", "type": "time", "jsonPath": ".a"}]
            ),
            "additionalPrinterColumns[0].type",
            id="column-type",
        ),
        pytest.param(
            lambda s, p: rule(p["spec"]["properties"]["parts"]["items"]),
            "items.x-kubernetes-validations[0].rule",
            id="rule-in-unbounded-list",
        ),
        pytest.param(
            lambda s, p: rule(p["spec"], "self.parts.all(x, x.name != '')"),
            "properties[spec].x-kubernetes-validations[0].rule",
            id="rule-over-unbounded-list",
        ),
    ],
)
async def test_bad_definitions_are_refused(change, field):
    async with serving() as api:
        answer = await api("POST", CRDS, altered(change))
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert any(field in one["field"] for one in answer.causes), answer.causes


async def test_the_budget_of_rules_is_named_in_the_refusal():
    async with serving() as api:
        body = altered(lambda s, p: rule(p["spec"]["properties"]["parts"]["items"]))
        answer = await api("POST", CRDS, body)
        assert "estimated rule cost exceeds budget" in answer.message


async def test_bounded_rules_are_stored_but_not_evaluated():
    def change(spec, properties):
        properties["spec"]["properties"]["parts"]["maxItems"] = 4
        rule(properties["spec"]["properties"]["parts"]["items"], "false")

    async with serving() as api:
        await api.post(CRDS, altered(change))
        await api.post(WIDGETS, widget(parts=[{"name": "a"}]))


async def test_a_changed_definition_takes_effect_at_once():
    async with serving() as api:
        await api.post(CRDS, definition())
        made = await api.get(f"{CRDS}/widgets.example.io")
        properties = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        del properties["spec"]["properties"]["label"]
        await api.put(f"{CRDS}/widgets.example.io", made)
        assert "label" not in (await api.post(WIDGETS, widget(label="abc")))["spec"]


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("gpu*.yaml")), ids=lambda path: path.stem)
async def test_the_projects_own_definitions_are_accepted_strictly(path):
    async with serving() as api:
        body = yaml.safe_load(path.read_text())
        await api.post(CRDS, body, fieldValidation="Strict")
        spec = body["spec"]
        group, version = spec["group"], spec["versions"][0]["name"]
        assert (await api.get(f"/apis/{group}/{version}/{spec['names']['plural']}"))["items"] == []
