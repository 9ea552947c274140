"""The admission policy for taint and cordon as tables: the remediator's allowed writes, and common
properties of all policies.
"""

import copy
from typing import Any

import msgspec
import pytest

from hack.sim.manifests import read_manifests
from rules.api import names, quarantine_taint
from rules.api.nodes import NodeView
from rules.api.requests import request
from rules.api.writes import SetNodeUnknown

pytest.importorskip("celpy", reason="cel-python is not installed")

from tests.support.cluster.admission_cel import BASE, Write, policies, refusals
from tests.support.cluster.admission_nodes import (
    FOREIGN_TAINT,
    HEALTHY,
    OUR_TAINT,
    READY,
    REMEDIATOR,
    bare,
    gpu_false,
    node,
)


def tainted_by_us(original: dict[str, Any]) -> dict[str, Any]:
    """Return the node after the remediator's quarantine patch."""
    view = as_view(original)
    patch = quarantine_taint.quarantine_patch(
        view, session="s", reason="Xid79", parts="CordonAndTaint", now=0.0
    )
    return merged(original, patch)


def as_view(original: dict[str, Any]) -> NodeView:
    return msgspec.json.decode(msgspec.json.encode(original), type=NodeView)


def merged(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Apply a merge patch (RFC 7386)."""
    result = copy.deepcopy(original)
    for key, value in patch.items():
        if key == "resourceVersion":
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def remediator_write(new: dict[str, Any], old: dict[str, Any], resource: str = "nodes") -> Write:
    return Write(user=REMEDIATOR, resource=resource, new=new, old=old)


@pytest.mark.parametrize("original", [node(), bare()], ids=["a full node", "a bare node"])
def test_taint_and_cordon_can_be_added_and_removed(original: dict[str, Any]) -> None:
    on = tainted_by_us(original)
    assert on["spec"]["unschedulable"] is True
    assert refusals(remediator_write(on, original)) == []
    relabelled = merged(on, quarantine_taint.relabel_patch(as_view(on)))
    assert refusals(remediator_write(relabelled, on)) == []
    off = merged(on, quarantine_taint.release_patch(as_view(on)))
    assert refusals(remediator_write(off, on)) == []


@pytest.mark.parametrize("original", [node(), bare()], ids=["a full node", "a bare node"])
def test_the_remediator_may_set_unknown(original: dict[str, Any]) -> None:
    sent = request(
        SetNodeUnknown(node="gpu-1", node_uid="u-1", resource_version="1", at=0.0, message="m")
    )
    assert sent.body is not None
    (condition,) = sent.body["status"]["conditions"]
    others = [c for c in original["status"].get("conditions", ()) if c["type"] != "GPUHealthy"]
    new = merged(original, {"metadata": {"labels": sent.body["metadata"]["labels"]}})
    new["status"]["conditions"] = [*others, condition]
    assert refusals(remediator_write(new, original, "nodes/status")) == []


OUR_LABEL = {**node()["metadata"]["labels"], names.LABEL_QUARANTINE: "true"}


@pytest.mark.parametrize(
    ("resource", "new", "why"),
    [
        pytest.param("nodes", node(metadata__labels={**OUR_LABEL, "pool": "x"}), "only the label",
                     id="a foreign label"),
        pytest.param("nodes", node(metadata__labels={**OUR_LABEL, names.LABEL_HEALTH: "unknown"}),
                     "only the label", id="the agent's label through the node itself"),
        pytest.param("nodes", node(metadata__annotations={"a": "b"}), "only the annotations",
                     id="a foreign annotation"),
        pytest.param("nodes", node(metadata__annotations={names.ANNOTATION_HOLD: "x",
                     **node()["metadata"]["annotations"]}), "only the annotations",
                     id="the hold of people"),
        pytest.param("nodes", node(metadata__finalizers=None), "finalizers", id="finalizers"),
        pytest.param("nodes", node(metadata__ownerReferences=[]), "ownerReferences", id="owners"),
        pytest.param("nodes", node(spec__taints=[]), "no taint but its own",
                     id="a foreign taint removed"),
        pytest.param("nodes", node(spec__taints=[FOREIGN_TAINT, {"key": "x", "effect":
                     "NoExecute"}]), "no taint but its own", id="a foreign taint added"),
        pytest.param("nodes", node(spec__taints=[FOREIGN_TAINT, {**OUR_TAINT, "effect":
                     "NoExecute"}]), "no taint but its own", id="our taint, but evicting"),
        pytest.param("nodes", node(spec__providerID="x"), "no field of a node's spec",
                     id="another field of spec"),
        pytest.param("nodes", node(spec__podCIDR=None), "no field of a node's spec",
                     id="a field of spec removed"),
        pytest.param("nodes/status", node(metadata__labels={**OUR_LABEL}), "no label here but",
                     id="our label through the status"),
        pytest.param("nodes/status", node(metadata__labels={**node()["metadata"]["labels"],
                     names.LABEL_HEALTH: "unhealthy"}), "no label here but",
                     id="a health status of its own, as a label"),
        pytest.param("nodes/status", node(metadata__labels=None), "no label here but",
                     id="labels removed"),
        pytest.param("nodes/status", node(metadata__annotations={"a": "b"}), "annotations",
                     id="annotation through the status"),
        pytest.param("nodes/status", node(metadata__finalizers=[]), "finalizers",
                     id="finalizers through the status"),
        pytest.param("nodes/status", node(metadata__ownerReferences=[]), "ownerReferences",
                     id="owners through the status"),
        pytest.param("nodes/status", node(status__conditions=gpu_false()[:2]), "no condition but",
                     id="a health status of its own"),
        pytest.param("nodes/status", node(status__conditions=[READY]), "no condition but",
                     id="the agent's condition removed"),
        pytest.param("nodes/status", node(status__conditions=[HEALTHY]), "no condition but",
                     id="Ready removed"),
        pytest.param("nodes/status", node(status__conditions=gpu_false("Unknown")),
                     "no condition but", id="GPUDegraded"),
        pytest.param("nodes/status", node(status__capacity={}), "no other field", id="capacity"),
    ],
)  # fmt: skip
def test_the_remediator_is_denied(resource: str, new: dict[str, Any], why: str) -> None:
    denials = refusals(remediator_write(new, node(), resource))
    assert len(denials) == 1
    assert why in denials[0]
    assert denials[0].startswith("gpuward-remediator may")


@pytest.mark.parametrize(
    "user",
    [
        "admin",
        "",
        "gpuward-agent",
        "system:serviceaccount:x:my-gpuward-agent",
    ],
)
def test_other_users_are_not_affected(user: str) -> None:
    for resource in ("nodes", "nodes/status"):
        assert refusals(Write(user=user, resource=resource, new=bare(), old=node())) == []


def listed(policy: str, variable: str) -> set[str]:
    spec = next(p["spec"] for p in policies() if p["metadata"]["name"] == policy)
    text = next(v["expression"] for v in spec["variables"] if v["name"] == variable)
    return set(text.strip("[]").replace("'", "").replace("\n", " ").replace(" ", "").split(","))


def test_the_names_in_the_policies_are_those_of_the_code() -> None:
    assert listed("gpuward-agent-node-fields", "ours") == set(names.AGENT_LABELS)
    ours = {
        names.ANNOTATION_SESSION,
        *quarantine_taint.AUTOSCALER_ANNOTATIONS,
    }
    assert listed("gpuward-remediator-mark", "ourNotes") == ours


def test_every_policy_fails_closed_is_bound_and_answers_forbidden() -> None:
    shipped = [o for o in read_manifests(BASE) if o["kind"] == "ValidatingAdmissionPolicy"]
    assert [p["metadata"]["name"] for p in shipped] == [p["metadata"]["name"] for p in policies()]
    for policy in shipped:
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert {rule["reason"] for rule in policy["spec"]["validations"]} == {"Forbidden"}
