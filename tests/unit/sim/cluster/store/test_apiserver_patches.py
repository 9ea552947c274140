"""Patches, updates and who owns which field, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hack.sim.cluster.clients.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from hack.sim.cluster.store.patching import merge_patch, strategic_merge
from tests.support.cluster.apiserver_support import (
    BUDGETS,
    NODES,
    PODS,
    budget,
    node,
    running_pod,
    serving,
)

OURS = {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"}
FOREIGN = {"key": "other.io/x", "effect": "NoSchedule"}
MODIFIED = (
    'Operation cannot be fulfilled on nodes "n1": the object has been modified; please apply your '
    "changes to the latest version and try again"
)


def version(obj):
    return int(obj["metadata"]["resourceVersion"])


async def test_one_merge_patch_marks_a_node_all_or_nothing():
    async with serving() as api:
        made = await api.post(NODES, node())
        mark = {
            "metadata": {
                "resourceVersion": made["metadata"]["resourceVersion"],
                "labels": {"gpuward.io/quarantine": "marked"},
            },
            "spec": {"unschedulable": True, "taints": [OURS]},
        }
        marked = await api.patch(f"{NODES}/n1", mark)
        assert marked["spec"] == {"unschedulable": True, "taints": [OURS]}
        again = await api("PATCH", f"{NODES}/n1", mark, content_type=MERGE_PATCH)
        assert (again.code, again.reason, again.message) == (409, "Conflict", MODIFIED)
        assert again.details == {"name": "n1", "kind": "nodes"}


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_MERGE_PATCH])
async def test_the_taint_list_is_atomic(content_type):
    async with serving() as api:
        await api.post(NODES, {**node(), "spec": {"taints": [FOREIGN]}})
        patched = await api.patch(f"{NODES}/n1", {"spec": {"taints": [OURS]}}, content_type)
        assert patched["spec"]["taints"] == [OURS]


async def test_an_identical_patch_stores_nothing():
    async with serving() as api:
        await api.post(NODES, node())
        patch: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}}
        first = await api.patch(f"{NODES}/n1", patch, fieldManager="one")
        second = await api.patch(f"{NODES}/n1", patch, fieldManager="two")
        assert first == second


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"unschedulable": False}}, id="false-is-the-zero-value"),
        pytest.param({"spec": {"taints": []}}, id="an-empty-list"),
        pytest.param({"metadata": {"labels": {"absent": None}}}, id="removing-what-is-not-there"),
        pytest.param({"metadata": {"annotations": {}}}, id="an-empty-map"),
    ],
)
async def test_zero_values_of_optional_fields_leave_no_trace(patch):
    async with serving() as api:
        made = await api.post(NODES, node())
        assert await api.patch(f"{NODES}/n1", patch) == made


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        pytest.param("application/apply-patch+yaml", {}, 415, id="server-side-apply"),
        pytest.param("text/plain", {}, 415, id="plain-text"),
        pytest.param(MERGE_PATCH, b"{", 400, id="broken-json"),
        pytest.param(MERGE_PATCH, [], 400, id="a-list"),
        pytest.param("application/json-patch+json", [], 415, id="json-patch"),
        pytest.param(MERGE_PATCH, {"metadata": {"name": "n2"}}, 400, id="renaming"),
        pytest.param(MERGE_PATCH, {"metadata": {"uid": "x"}}, 422, id="another-uid"),
    ],
)
async def test_bad_patches_are_refused(content_type, body, code):
    async with serving() as api:
        await api.post(NODES, node())
        answer = await api("PATCH", f"{NODES}/n1", body, content_type=content_type)
        assert answer.code == code
        assert answer.body["kind"] == "Status"


async def test_a_patch_of_nothing_answers_404():
    async with serving() as api:
        answer = await api("PATCH", f"{NODES}/n1", {}, content_type=MERGE_PATCH)
        assert (answer.code, answer.message) == (404, 'nodes "n1" not found')


async def test_conditions_merge_by_type_in_a_strategic_patch_and_not_in_a_merge_patch():
    async with serving() as api:
        await api.post(NODES, node())
        status = {"status": {"conditions": [{"type": "GPUHealthy", "status": "False"}]}}
        merged = await api.patch(f"{NODES}/n1/status", status, STRATEGIC_MERGE_PATCH)
        assert [one["type"] for one in merged["status"]["conditions"]] == ["Ready", "GPUHealthy"]
        replaced = await api.patch(f"{NODES}/n1/status", status, MERGE_PATCH)
        assert [one["type"] for one in replaced["status"]["conditions"]] == ["GPUHealthy"]


async def test_a_patch_of_node_status_changes_metadata_but_never_the_spec():
    async with serving() as api:
        await api.post(NODES, node())
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "dead"}
        patch: dict[str, Any] = {
            "metadata": {
                "labels": {"a": "b"},
                "annotations": {"c": "d"},
                "finalizers": ["x.io/y"],
                "ownerReferences": [owner],
            },
            "spec": {"unschedulable": True},
            "status": {"capacity": {"nvidia.com/gpu": "8"}},
        }
        patched = await api.patch(f"{NODES}/n1/status", patch)
        for field, value in patch["metadata"].items():
            assert patched["metadata"][field] == value
        assert patched["status"]["capacity"] == {"nvidia.com/gpu": "8"}
        assert patched["spec"] == {}


async def test_an_ordinary_patch_never_changes_status():
    async with serving() as api:
        await api.post(NODES, node())
        patch = {"status": {"conditions": []}, "metadata": {"labels": {"a": "b"}}}
        patched = await api.patch(f"{NODES}/n1", patch)
        assert patched["metadata"]["labels"] == {"a": "b"}
        assert patched["status"] == node()["status"]


async def test_pod_status_never_changes_owners():
    async with serving() as api:
        await running_pod(api)
        owner = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u"}
        patch = {"metadata": {"ownerReferences": [owner], "labels": {"x": "y"}}}
        patched = await api.patch(f"{PODS}/p1/status", patch)
        assert "ownerReferences" not in patched["metadata"]
        assert patched["metadata"]["labels"] == {"app": "web", "x": "y"}


async def test_generation_counts_changes_of_the_desired_state_only():
    async with serving() as api:
        made = await budget(api)
        assert made["metadata"]["generation"] == 1
        labelled = await api.patch(f"{BUDGETS}/b1", {"metadata": {"labels": {"a": "b"}}})
        assert labelled["metadata"]["generation"] == 1
        changed = await api.patch(f"{BUDGETS}/b1", {"spec": {"minAvailable": 2}})
        assert changed["metadata"]["generation"] == 2


async def test_a_dry_run_patch_shows_the_result_and_stores_nothing():
    async with serving() as api:
        made = await api.post(NODES, node())
        shown = await api.patch(f"{NODES}/n1", {"spec": {"unschedulable": True}}, dryRun="All")
        assert shown["spec"]["unschedulable"] is True
        assert await api.get(f"{NODES}/n1") == made


def owners(obj, *path):
    found = []
    for entry in obj["metadata"].get("managedFields", []):
        fields = entry["fieldsV1"]
        for step in path:
            fields = fields.get(step) if fields is not None else None
        if fields is not None:
            found.append(entry["manager"])
    return found


async def test_managed_fields_say_who_cordoned_a_node():
    async with serving() as api:
        await api.post(NODES, node(), fieldManager="kubelet")
        cordon = {"spec": {"unschedulable": True}}
        by_us = await api.patch(f"{NODES}/n1", cordon, fieldManager="gpuward")
        assert owners(by_us, "f:spec", "f:unschedulable") == ["gpuward"]
        same = await api.patch(f"{NODES}/n1", cordon, fieldManager="kubectl-cordon")
        assert owners(same, "f:spec", "f:unschedulable") == ["gpuward"]
        opened = await api.patch(
            f"{NODES}/n1", {"spec": {"unschedulable": None}}, fieldManager="x"
        )
        assert owners(opened, "f:spec", "f:unschedulable") == []
        by_them = await api.patch(f"{NODES}/n1", cordon, fieldManager="kubectl-cordon")
        assert owners(by_them, "f:spec", "f:unschedulable") == ["kubectl-cordon"]


async def test_managed_fields_move_to_whoever_changes_a_value():
    async with serving() as api:
        await api.post(NODES, node(labels={"a": "1", "b": "1"}), fieldManager="one")
        patch = {"metadata": {"labels": {"a": "2"}}}
        patched = await api.patch(f"{NODES}/n1", patch, fieldManager="two")
        assert owners(patched, "f:metadata", "f:labels", "f:a") == ["two"]
        assert owners(patched, "f:metadata", "f:labels", "f:b") == ["one"]


async def test_managed_fields_name_subresource_list_keys_and_default_manager():
    async with serving() as api:
        await api.post(NODES, node(), fieldManager="kubelet")
        conditions = [{"type": "GPUHealthy", "status": "True"}]
        answer = await api(
            "PATCH",
            f"{NODES}/n1/status",
            {"status": {"conditions": conditions}},
            content_type=STRATEGIC_MERGE_PATCH,
            headers={"User-Agent": "gpuward-agent/0.1 (linux)"},
        )
        entry = answer.body["metadata"]["managedFields"][-1]
        assert (entry["manager"], entry["subresource"]) == ("gpuward-agent", "status")
        assert 'k:{"type":"GPUHealthy"}' in entry["fieldsV1"]["f:status"]["f:conditions"]


async def test_a_put_needs_the_current_version_and_the_same_object():
    async with serving() as api:
        made = await api.post(NODES, node())
        await api.patch(f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}})
        stale = await api("PUT", f"{NODES}/n1", made)
        assert (stale.code, stale.message) == (409, MODIFIED)
        fresh = await api.get(f"{NODES}/n1")
        fresh["metadata"]["uid"] = "another"
        other = await api("PUT", f"{NODES}/n1", fresh)
        assert other.code == 409
        assert "Precondition failed: UID in precondition: another" in other.message
        renamed = {**made, "metadata": {**made["metadata"], "name": "n2"}}
        assert (await api("PUT", f"{NODES}/n1", renamed)).code == 400
        del made["metadata"]["resourceVersion"]
        assert "labels" not in (await api.put(f"{NODES}/n1", made))["metadata"]


async def test_some_kinds_take_no_put_without_a_version():
    async with serving() as api:
        made = await budget(api)
        del made["metadata"]["resourceVersion"]
        answer = await api("PUT", f"{BUDGETS}/b1", made)
        assert answer.code == 422
        assert "metadata.resourceVersion" in answer.message


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "a", "image": "2"}]},
            {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]},
            id="merge-by-name",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
            id="delete-an-item",
        ),
        pytest.param(
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "b"}, {"$patch": "replace"}]},
            {"containers": [{"name": "b"}]},
            id="replace-a-list",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
            {"finalizers": ["b", "c"]},
            id="finalizers-are-a-set",
        ),
        pytest.param(
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="retain-keys",
        ),
        pytest.param(
            {"labels": {"a": "1"}},
            {"labels": {"$patch": "replace", "b": "2"}},
            {"labels": {"b": "2"}},
            id="replace-a-map",
        ),
        pytest.param(
            {"labels": {"a": "1", "b": "2"}},
            {"labels": {"a": None}},
            {"labels": {"b": "2"}},
            id="null",
        ),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
            id="atomic",
        ),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "B", "value": "2"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            id="append",
        ),
    ],
)
def test_strategic_merge(before, patch, after):
    kept = json.dumps(before)
    assert strategic_merge(before, patch) == after
    assert json.dumps(before) == kept


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="remove"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="list-to-text"),
        pytest.param(
            {"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="nested"
        ),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="null-in-new-object"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="null-kept-in-target"),
    ],
)
def test_merge_patch_examples_of_rfc_7396(before, patch, after):
    assert merge_patch(before, patch) == after
