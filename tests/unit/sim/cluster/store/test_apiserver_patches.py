"""Patches, updates and who owns which field, over HTTP."""

from hack.sim.cluster.resource import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.support.cluster.apiserver_support import (
    NODES,
    node,
    serving,
)

OURS = {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"}
MODIFIED = (
    'Operation cannot be fulfilled on nodes "n1": the object has been modified; please apply your '
    "changes to the latest version and try again"
)


def version(obj):
    return int(obj["metadata"]["resourceVersion"])


async def test_one_merge_patch_quarantines_a_node_all_or_nothing():
    async with serving() as api:
        made = await api.post(NODES, node())
        patch = {
            "metadata": {
                "resourceVersion": made["metadata"]["resourceVersion"],
                "labels": {"gpuward.io/quarantine": "true"},
            },
            "spec": {"unschedulable": True, "taints": [OURS]},
        }
        quarantined = await api.patch(f"{NODES}/n1", patch)
        assert quarantined["spec"] == {"unschedulable": True, "taints": [OURS]}
        again = await api("PATCH", f"{NODES}/n1", patch, content_type=MERGE_PATCH)
        assert (again.code, again.reason, again.message) == (409, "Conflict", MODIFIED)
        assert again.details == {"name": "n1", "kind": "nodes"}


async def test_conditions_merge_by_type_in_a_strategic_patch_and_not_in_a_merge_patch():
    async with serving() as api:
        await api.post(NODES, node())
        status = {"status": {"conditions": [{"type": "GPUHealthy", "status": "False"}]}}
        merged = await api.patch(f"{NODES}/n1/status", status, STRATEGIC_MERGE_PATCH)
        assert [one["type"] for one in merged["status"]["conditions"]] == ["Ready", "GPUHealthy"]
        replaced = await api.patch(f"{NODES}/n1/status", status, MERGE_PATCH)
        assert [one["type"] for one in replaced["status"]["conditions"]] == ["GPUHealthy"]


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
