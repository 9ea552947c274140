"""The granted verbs are exactly those that the code uses.

tests/e2e/install/test_install_rbac.py compares the requests of a live session. This file also has
rare requests, taken from the code.
"""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from hack.sim.manifests import read_manifests
from remediator.controller import drain_reads as drain_look
from remediator.kube.caches import Caches, Listeners
from remediator.kube.elector import LEASE_NAME
from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.quarantine import IsolatedDevice, QuarantineSpec, QuarantineStatus
from rules.api.repair_writes import (
    CreateTestJob,
    DeleteTestJob,
    ObjectAddress,
    SetRepairCondition,
    SetValidated,
    Verb,
    WriteRepairObject,
)
from rules.api.requests import request
from rules.drain import gangs as gang
from tests.support.remediator.virtual_clock import VirtualClock

DAEMONSET = Path(__file__).parents[3] / "daemonset"
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/[^/]+)?"
    r"/(?P<resource>[^/?]+)(?:/[^/?]+(?:/(?P<sub>[^/?]+))?)?"
)
ORDINARY: list[d.Write] = [
    d.TaintAndCordon(node="n", node_uid="u", session="s", patch={}),
    d.RemoveTaint(node="n", node_uid="u", session="s", patch={}),
    d.RelabelNode(node="n", node_uid="u", session="s", patch={}),
    d.SetNodeUnknown(node="n", node_uid="u", resource_version="1", at=0.0, message="m"),
    d.SetHealthSilent(node="n", resource_version="1", since=""),
    d.SetDrainConditions(
        node="n", node_uid="u", session="s", states=(("Drained", True),), at=0.0, message="m"
    ),
    SetRepairCondition(
        node="n",
        node_uid="u",
        session="s",
        step="RestartNode",
        kind="GPUNeedsRestart",
        asks=True,
        message="m",
        at=0.0,
    ),
    d.EmitEvent(node="n", node_uid="u", kind="Normal", reason="r", message="m", at=0.0, key="k"),
    d.CreateSession(name="s", spec=QuarantineSpec(node_name="n")),
    d.PatchSessionSpec(node="n", name="s", resource_version="1"),
    d.WriteSessionStatus(node="n", name="s", resource_version="1", status=QuarantineStatus()),
    d.DeleteObject(plural="gpuquarantines", name="s", uid="u"),
    d.CreateRecord(node="n", name="r"),
    d.WriteRecord(node="n", name="r", resource_version="1", status={}),
    d.DeleteObject(plural="gpurecords", name="r", uid="u"),
    d.DeleteObject(plural="gpuevidences", name="s", uid="u"),
    d.EvictPod(node="n", namespace="x", name="p", uid="u"),
    WriteRepairObject(
        node="n",
        node_uid="u",
        session="s",
        step="RestartNode",
        verb=Verb.PATCH,
        address=ObjectAddress(api_version="v1", resource="nodes", name="n"),
        body={},
        asks=True,
    ),
]
FORCED: list[d.Write] = [
    d.SetDisruptionTarget(node="n", namespace="x", name="p", uid="u", at=0.0, message="m"),
    d.DeletePod(node="n", namespace="x", name="p", uid="u", grace_s=1, by_policy="drain"),
]
NOTIFIED: list[d.Write] = [
    d.NotifyPod(node="n", namespace="x", name="p", uid="u", at=0.0, drain_at=1.0, message="m"),
]
TESTED: list[d.Write] = [
    CreateTestJob(node="n", node_uid="u", session="s", namespace="x", name="j", body={}),
    DeleteTestJob(node="n", namespace="x", name="j", uid="u"),
    SetValidated(node="n", node_uid="u", passed=True, message="m", at=0.0),
]
ISOLATED: list[d.Write] = [
    TaintDevice(
        node="n",
        node_uid="u",
        session="s",
        session_uid="su",
        api_version="resource.k8s.io/v1",
        device=IsolatedDevice(uuid="GPU-1", rule="r"),
        reason="Xid79",
        effect="NoSchedule",
    ),
    UntaintDevice(
        node="n",
        session="s",
        api_version="resource.k8s.io/v1",
        name="r",
        uid="u",
        resource_version="1",
    ),
]
# Reads of single objects and uncached lists, and the code that makes them.
READS = {
    ("get", "nodes"): "gateway.fresh_node",
    ("get", "gpuward.io/gpunodehealths"): "node_cycle and housekeeping",
    ("get", "gpuward.io/gpuquarantines"): "node_cycle after a conflict",
    ("get", "gpuward.io/gpurecords"): "records after a conflict",
    ("get", "gpuward.io/gpuevidences"): "node_cycle, for a digest on record",
    ("list", "pods"): "drain_look.pods_on",
    ("watch", "pods"): "pod_watch: the pods of a draining node",
    ("get", "pods"): "evictions: a last check if the watch is silent",
    ("get", "persistentvolumeclaims"): "drain_look: volumes of evicted pods",
    (
        "get",
        "resource.k8s.io/resourceclaims",
    ): "device_claims: GPUs of a pod, where it names claims",
    ("list", "resource.k8s.io/resourceslices"): "device_slices: GPUs of a node, by device name",
    ("watch", "resource.k8s.io/resourceslices"): "device_taint_watch, where a trigger names one",
    ("get", "scheduling.k8s.io/podgroups"): "pod_groups, where a pod names one",
    ("get", "scheduling.k8s.io/workloads"): "pod_groups, in Kubernetes 1.35",
    ("list", "kueue.x-k8s.io/workloads"): "kueue, where it is installed",
    ("list", "coordination.k8s.io/leases"): "maintenance, where medik8s is installed",
}
LEASE = {("get", "coordination.k8s.io/leases"), ("create", "coordination.k8s.io/leases")} | {
    ("update", "coordination.k8s.io/leases")
}


def of_path(path: str) -> str:
    """Return group/resource/subresource of an API path."""
    found = PATH.match(path)
    assert found is not None, path
    return "/".join(filter(None, (found["group"], found["resource"], found["sub"])))


def needed(writes: list[d.Write]) -> set[tuple[str, str]]:
    return {(VERBS[r.method], of_path(r.path)) for r in map(request, writes)}


def watched() -> dict[str, str]:
    """Return the API path of each resource that the remediator caches."""
    nobody: Any = None
    listeners = Listeners(
        node=nobody,
        quarantined=nobody,
        health=nobody,
        session=nobody,
        pause=nobody,
        pdb=nobody,
        agent=nobody,
        evidence=nobody,
    )
    caches = Caches(nobody, VirtualClock(), node_selector="", namespace="gpuward", to=listeners)
    return {of_path(cache.resource.path): cache.resource.path for cache in caches.followed}


def owner_reads() -> set[tuple[str, str]]:
    builtin = {
        f"{version.partition('/')[0]}/{plural}" if "/" in version else plural
        for (version, _), plural in drain_look._PLURALS.items()
    }
    gangs = {f"{group}/{kind.lower()}s" for group, kind in gang._GANG_KINDS if group != "batch"}
    return {("get", what) for what in builtin | gangs}


def rules_of(name: str, kind: str) -> list[dict[str, Any]]:
    objects = read_manifests(DAEMONSET / "base")
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found["rules"]


def granted(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {
        (verb, f"{group}/{resource}".lstrip("/"))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_all_writes_of_the_remediator_are_in_this_table() -> None:
    tables = (*ORDINARY, *FORCED, *NOTIFIED, *TESTED, *ISOLATED)
    assert {type(write) for write in tables} == set(get_args(d.Write))


def test_the_remediator_has_exactly_the_rights_it_uses() -> None:
    namespaced = {what for what, path in watched().items() if "/namespaces/" in path}
    everywhere = needed(ORDINARY) | READS.keys() | owner_reads()
    everywhere |= {("list", of_path(drain_look._ATTACHMENTS))}
    everywhere |= {(v, what) for what in watched().keys() - namespaced for v in ("list", "watch")}
    assert granted(rules_of("gpuward-remediator", "ClusterRole")) == everywhere
    own = granted(rules_of("gpuward-remediator", "Role"))
    # Following the agents' pods is covered by the right to list and watch pods anywhere.
    assert own == LEASE


def test_only_the_lease_of_the_remediator_may_be_written() -> None:
    rules = rules_of("gpuward-remediator", "Role")
    (named,) = [rule for rule in rules if "update" in rule["verbs"]]
    assert named["resourceNames"] == [LEASE_NAME]


@pytest.mark.parametrize(("name", "writes"), [("force", FORCED), ("notice", NOTIFIED)])
def test_a_component_grants_exactly_the_rights_of_its_writes(
    name: str, writes: list[d.Write]
) -> None:
    component = DAEMONSET / "components" / name / "kustomization.yaml"
    (patch,) = yaml.safe_load(component.read_text())["patches"]
    added = granted([operation["value"] for operation in yaml.safe_load(patch["patch"])])
    assert added == needed(writes)
    assert not added & granted(rules_of("gpuward-remediator", "ClusterRole"))


def test_component_validate_grants_only_tests_in_its_namespace() -> None:
    objects = read_manifests(DAEMONSET / "components" / "validate" / "rbac.yaml")
    (role,) = [o for o in objects if o["kind"] == "Role"]
    # The Job and its pods are read by what base grants.
    everywhere = granted(rules_of("gpuward-remediator", "ClusterRole"))
    its = {("get", "podtemplates"), ("list", "batch/jobs")}
    assert granted(role["rules"]) == needed(TESTED) - everywhere | its
    assert {("get", "batch/jobs"), ("patch", "nodes/status")} <= everywhere
    (account,) = [o for o in objects if o["kind"] == "ServiceAccount"]
    bound = [s["name"] for o in objects if o["kind"] == "RoleBinding" for s in o["subjects"]]
    assert account["metadata"]["name"] not in bound
    assert account["automountServiceAccountToken"] is False


def test_the_agent_writes_status_health_events_and_evidence_only() -> None:
    writes = {
        each
        for each in granted(rules_of("gpuward-agent", "ClusterRole"))
        if each[0] not in {"get", "list", "watch"}
    }
    assert writes == {
        ("patch", "nodes/status"),
        ("create", "gpuward.io/gpunodehealths"),
        ("patch", "gpuward.io/gpunodehealths"),
        ("update", "gpuward.io/gpunodehealths/status"),
        ("create", "gpuward.io/gpuevidences"),
        ("create", "events"),
    }
