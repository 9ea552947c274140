"""Each write as the exact request that is sent."""

import copy
from typing import Any

import pytest

from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.quarantine import (
    Cause,
    DrainStatus,
    IsolatedDevice,
    QuarantineSpec,
    QuarantineStatus,
)
from rules.api.requests import Request, merged, request

POD: dict[str, Any] = {"node": "n0", "namespace": "team-a", "name": "web", "uid": "u1"}
CAUSE = Cause(source="Detector", incident="i1", reason="Xid79", severity="Fatal")

WRITES: list[Any] = [
    pytest.param(
        d.CreateSession(name="s1", spec=QuarantineSpec(node_name="n0", causes=(CAUSE,))),
        "POST /apis/gpuward.io/v1alpha1/gpuquarantines",
        {
            "apiVersion": "gpuward.io/v1alpha1",
            "kind": "GPUQuarantine",
            "metadata": {"name": "s1"},
            "spec": {
                "nodeName": "n0",
                "causes": [
                    {
                        "source": "Detector",
                        "incident": "i1",
                        "reason": "Xid79",
                        "severity": "Fatal",
                    }
                ],
                "level": "Drain",
                "hold": False,
            },
        },
        id="create",
    ),
    pytest.param(
        d.PatchSessionSpec(name="s1", node="n0", resource_version="5", node_uid="u", boot_id="b"),
        "PATCH /apis/gpuward.io/v1alpha1/gpuquarantines/s1",
        {"metadata": {"resourceVersion": "5"}, "spec": {"nodeUID": "u", "bootID": "b"}},
        id="fill-in",
    ),
    pytest.param(
        d.DeleteObject(plural="gpuquarantines", name="s1", uid="u9"),
        "DELETE /apis/gpuward.io/v1alpha1/gpuquarantines/s1",
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u9"}},
        id="delete-session",
    ),
    pytest.param(
        d.DeleteObject(plural="gpuevidences", name="s1", uid="u9"),
        "DELETE /apis/gpuward.io/v1alpha1/gpuevidences/s1",
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u9"}},
        id="delete-evidence",
    ),
    pytest.param(
        TaintDevice(
            node="n0",
            node_uid="u",
            session="s1",
            session_uid="su",
            api_version="resource.k8s.io/v1beta2",
            device=IsolatedDevice(
                uuid="GPU-1", driver="gpu.nvidia.com", pool="n0", device="gpu-1", rule="gpuward-1"
            ),
            reason="Xid79",
            effect="NoSchedule",
        ),
        "POST /apis/resource.k8s.io/v1beta2/devicetaintrules",
        {
            "apiVersion": "resource.k8s.io/v1beta2",
            "kind": "DeviceTaintRule",
            "metadata": {
                "name": "gpuward-1",
                "labels": {"app.kubernetes.io/name": "gpuward", "gpuward.io/session-uid": "su"},
                "ownerReferences": [
                    {
                        "apiVersion": "gpuward.io/v1alpha1",
                        "kind": "GPUQuarantine",
                        "name": "s1",
                        "uid": "su",
                    }
                ],
            },
            "spec": {
                "deviceSelector": {"driver": "gpu.nvidia.com", "pool": "n0", "device": "gpu-1"},
                "taint": {
                    "key": "gpuward.io/quarantine",
                    "value": "Xid79",
                    "effect": "NoSchedule",
                },
            },
        },
        id="taint-device",
    ),
    pytest.param(
        UntaintDevice(
            node="n0",
            session="s1",
            api_version="resource.k8s.io/v1",
            name="gpuward-1",
            uid="u9",
            resource_version="7",
        ),
        "DELETE /apis/resource.k8s.io/v1/devicetaintrules/gpuward-1",
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u9", "resourceVersion": "7"},
        },
        id="untaint-device",
    ),
    pytest.param(
        d.TaintAndCordon(
            node="n0", node_uid="u", session="s1", patch={"spec": {"unschedulable": True}}
        ),
        "PATCH /api/v1/nodes/n0?fieldManager=gpuward-remediator",
        {"spec": {"unschedulable": True}},
        id="mark",
    ),
    pytest.param(
        d.EvictPod(**POD, session="s1", pdb="team-a/keep"),
        "POST /api/v1/namespaces/team-a/pods/web/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "web", "namespace": "team-a"},
            "deleteOptions": {"preconditions": {"uid": "u1"}},
        },
        id="evict",
    ),
    pytest.param(
        d.EvictPod(**POD, dry_run=True),
        "POST /api/v1/namespaces/team-a/pods/web/eviction?dryRun=All",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "web", "namespace": "team-a"},
            "deleteOptions": {"preconditions": {"uid": "u1"}, "dryRun": ["All"]},
        },
        id="dry-run-in-query-and-body",
    ),
    pytest.param(
        d.SetDisruptionTarget(**POD, at=0.0, message="why"),
        "PATCH /api/v1/namespaces/team-a/pods/web/status",
        {
            "metadata": {"uid": "u1"},
            "status": {
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "GPUNodeQuarantine",
                        "message": "why",
                        "lastTransitionTime": "1970-01-01T00:00:00Z",
                    }
                ]
            },
        },
        id="disruption-target",
    ),
    pytest.param(
        d.NotifyPod(**POD, at=0.0, drain_at=60.0, message="why"),
        "PATCH /api/v1/namespaces/team-a/pods/web/status",
        {
            "metadata": {
                "uid": "u1",
                "annotations": {"gpuward.io/drain-at": "1970-01-01T00:01:00Z"},
            },
            "status": {
                "conditions": [
                    {
                        "type": "gpuward.io/DrainPlanned",
                        "status": "True",
                        "reason": "GPUNodeQuarantine",
                        "message": "why",
                        "lastTransitionTime": "1970-01-01T00:00:00Z",
                    }
                ]
            },
        },
        id="notice",
    ),
    pytest.param(
        d.SetDrainConditions(
            node="n0",
            node_uid="u0",
            session="s1",
            at=0.0,
            message="why",
            states=(("Drained", True), ("DrainInProgress", False)),
        ),
        "PATCH /api/v1/nodes/n0/status",
        {
            "metadata": {"uid": "u0"},
            "status": {
                "conditions": [
                    {
                        "type": kind,
                        "status": status,
                        "reason": reason,
                        "message": "why",
                        "lastTransitionTime": "1970-01-01T00:00:00Z",
                        "lastHeartbeatTime": "1970-01-01T00:00:00Z",
                    }
                    for kind, status, reason in (
                        ("Drained", "True", "GPUNodeQuarantine"),
                        ("DrainInProgress", "False", "GPUNodeQuarantineOver"),
                    )
                ]
            },
        },
        id="drain-conditions",
    ),
    pytest.param(
        d.DeletePod(**POD, grace_s=1, by_policy="drain.onTimeout: Force"),
        "DELETE /api/v1/namespaces/team-a/pods/web",
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u1"},
            "gracePeriodSeconds": 1,
        },
        id="force",
    ),
    pytest.param(
        d.SetNodeUnknown(node="n0", node_uid="u", resource_version="5", at=0.0, message="silent"),
        "PATCH /api/v1/nodes/n0/status",
        {
            "metadata": {
                "resourceVersion": "5",
                "uid": "u",
                "labels": {"gpuward.io/health": "unknown"},
            },
            "status": {
                "conditions": [
                    {
                        "type": "GPUHealthy",
                        "status": "Unknown",
                        "reason": "AgentStale",
                        "message": "silent",
                        "lastHeartbeatTime": "1970-01-01T00:00:00Z",
                        "lastTransitionTime": "1970-01-01T00:00:00Z",
                    }
                ]
            },
        },
        id="unknown",
    ),
    pytest.param(
        d.SetHealthSilent(node="n0", resource_version="5", since=""),
        "PATCH /apis/gpuward.io/v1alpha1/gpunodehealths/n0/status",
        {"metadata": {"resourceVersion": "5"}, "status": {"silentSince": None}},
        id="heard again",
    ),
]


@pytest.mark.parametrize(("write", "line", "body"), WRITES)
def test_requests(write: d.Write, line: str, body: dict[str, Any]) -> None:
    wire = request(write)
    assert f"{wire.method} {wire.path}" == line
    assert wire.body == body
    # Built-in objects are patched in the language that knows their lists.
    kind = "strategic-merge-patch+json" if "/api/v1/" in wire.path else "merge-patch+json"
    assert wire.content_type == f"application/{kind if wire.method == 'PATCH' else 'json'}"


def test_a_status_patch_removes_what_became_empty() -> None:
    status = QuarantineStatus(phase="Draining", drain=DrainStatus(evicted=1, started_at="t"))
    write = d.WriteSessionStatus(name="s1", node="n0", resource_version="5", status=status)
    body = request(write).body
    assert body is not None
    assert body["metadata"] == {"resourceVersion": "5"}
    assert body["status"]["message"] is None
    assert body["status"]["conditions"] is None
    assert body["status"]["drain"]["waiting"] == {"named": None, "more": None}
    assert body["status"]["drain"]["evicted"] == 1


def test_names_are_escaped_in_paths() -> None:
    wire = request(d.DeleteObject(plural="gpuquarantines", name="../nodes/n0?x", uid="u"))
    assert wire.path.endswith("/gpuquarantines/..%2Fnodes%2Fn0%3Fx")


def event(**parts: Any) -> Request:
    given = {
        "node": "n0",
        "node_uid": "u",
        "kind": "Normal",
        "reason": "QuarantineMarked",
        "message": "m",
        "at": 1.5,
        "key": "k",
    }
    return request(d.EmitEvent(**{**given, **parts}))


def test_an_event_is_about_the_nodes_real_uid_and_is_sent_once() -> None:
    body = event().body
    assert body is not None
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "u"}
    assert event().path == "/api/v1/namespaces/default/events"
    assert event().body == event(at=1.5).body
    assert event(key="other").body["metadata"]["name"] != body["metadata"]["name"]  # type: ignore[index]
    assert event(at=99.0).body["metadata"]["name"] == body["metadata"]["name"]  # type: ignore[index]


def test_a_fleet_finding_is_about_the_deployment_in_its_namespace() -> None:
    wire = event(node="", node_uid="", namespace="gpuward")
    assert wire.path == "/api/v1/namespaces/gpuward/events"
    assert wire.body is not None
    assert wire.body["involvedObject"]["kind"] == "Deployment"
    assert wire.body["involvedObject"]["namespace"] == "gpuward"


def test_force_leaves_at_least_a_second() -> None:
    with pytest.raises(ValueError, match="one second"):
        d.DeletePod(**POD, grace_s=0, by_policy="x")


def test_disruptive_writes() -> None:
    disruptive = [param.id for param in WRITES if param.values[0].disruptive]
    assert disruptive == ["taint-device", "mark", "evict", "disruption-target", "notice", "force"]


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": "b"}, {"a": {"c": None, "d": 1}}, {"a": {"d": 1}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc(
    target: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = copy.deepcopy((target, patch))
    assert merged(target, patch) == expected
    assert (target, patch) == before
