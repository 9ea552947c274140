"""The admission policies as tables: who may change what of a Node, and what is refused by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from agent.events import event_body
from agent.kube_objects import Metadata, NodeObject
from hack.sim.manifests import read_manifests
from rules import mark, names
from rules.decision import SetNodeUnknown
from rules.decision_request import request
from rules.publication_events import NodeEvent
from rules.snapshot import NodeView

pytest.importorskip("celpy", reason="cel-python is not installed")

from admission_cel import BASE, Write, policies, refusals

NODE_CLAIM = "authentication.kubernetes.io/node-name"
AGENT = "system:serviceaccount:gpuward:gpuward-agent"
REMEDIATOR = "system:serviceaccount:gpuward:gpuward-remediator"
BOUND = {NODE_CLAIM: ["gpu-1"]}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
HEALTHY = {"type": "GPUHealthy", "status": "True", "reason": "AllChecksPassing"}
FOREIGN_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OUR_TAINT = {"key": names.TAINT_QUARANTINE, "value": "Xid79", "effect": "NoSchedule"}


def node(**changes: Any) -> dict[str, Any]:
    """A node as the server stores it."""
    full: dict[str, Any] = {
        "metadata": {
            "name": "gpu-1",
            "uid": "u-1",
            "labels": {"kubernetes.io/hostname": "gpu-1", names.LABEL_HEALTH: "healthy"},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            "finalizers": ["example.com/keep"],
            "ownerReferences": [{"kind": "Machine", "name": "m", "uid": "m-1"}],
        },
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [FOREIGN_TAINT]},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "conditions": [READY, HEALTHY],
            "nodeInfo": {"bootID": "b"},
        },
    }
    return edited(full, changes)


def bare() -> dict[str, Any]:
    """A node just registered, with nothing that can be absent."""
    return {"metadata": {"name": "gpu-1", "uid": "u-1"}, "spec": {}, "status": {}}


def edited(original: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with values at dotted paths (`__` for a dot); None removes."""
    result = copy.deepcopy(original)
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = result
        for parent in parents:
            at = at.setdefault(parent, {})
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value
    return result


def agent_write(new: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Write:
    given = {"user": AGENT, "resource": "nodes/status", "extra": BOUND, **more}
    return Write(new=new, old=node() if old is None else old, **given)


def verdict(condition: str = "False") -> list[dict[str, str]]:
    return [READY, {**HEALTHY, "status": condition}, {"type": "GPUDegraded", "status": "False"}]


LABELS = {**node()["metadata"]["labels"], **dict.fromkeys(names.AGENT_LABELS, "8")}


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(agent_write(node()), id="nothing changed"),
        pytest.param(agent_write(node(status__conditions=verdict())), id="a verdict"),
        pytest.param(agent_write(node(metadata__labels=LABELS)), id="every label of ours"),
        pytest.param(
            agent_write(node(metadata__labels={"kubernetes.io/hostname": "gpu-1"})),
            id="a label of ours taken back",
        ),
        pytest.param(
            agent_write(node(status__conditions=[*verdict()[1:], READY])), id="another order"
        ),
        pytest.param(
            agent_write(
                edited(bare(), {"status__conditions": verdict()[1:],
                                "metadata__labels": {names.LABEL_HEALTH: "healthy"}}),
                bare(),
            ),
            id="a node without conditions, labels or annotations",
        ),
        pytest.param(
            agent_write(
                edited(bare(), {"status__conditions": verdict()[1:]}),
                {"metadata": {"name": "gpu-1"}},
            ),
            id="a node without status",
        ),
        pytest.param(
            agent_write(node(status__conditions=verdict()), user=AGENT.replace("gpuward:", "x:")),
            id="in another namespace",
        ),
    ],
)  # fmt: skip
def test_the_agent_may_publish(write: Write) -> None:
    assert refusals(write) == []


ONLY_OWN_NODE = "may write only about the node"


@pytest.mark.parametrize(
    ("write", "why"),
    [
        pytest.param(agent_write(node(metadata__name="gpu-2")), ONLY_OWN_NODE, id="another node"),
        pytest.param(agent_write(node(), extra={}), ONLY_OWN_NODE, id="unbound token"),
        pytest.param(agent_write(node(), extra=None), ONLY_OWN_NODE, id="no claims at all"),
        pytest.param(
            agent_write(node(), extra={NODE_CLAIM: ["gpu-1", "gpu-2"]}), ONLY_OWN_NODE,
            id="two nodes claimed",
        ),
        pytest.param(agent_write(node(), extra={NODE_CLAIM: []}), ONLY_OWN_NODE, id="empty claim"),
        pytest.param(
            agent_write(node(metadata__name="gpu-2"), user=AGENT.replace("gpuward:", "x:")),
            ONLY_OWN_NODE, id="another node, in another namespace",
        ),
        pytest.param(
            agent_write(node(metadata__labels={**LABELS, "pool": "x"})), "only the labels",
            id="a foreign label added",
        ),
        pytest.param(
            agent_write(node(metadata__labels={"kubernetes.io/hostname": "other"})),
            "only the labels", id="a foreign label changed",
        ),
        pytest.param(
            agent_write(node(metadata__labels=None)), "only the labels", id="all labels removed"
        ),
        pytest.param(
            agent_write(node(metadata__labels={**LABELS, names.LABEL_QUARANTINE: "released"})),
            "only the labels", id="the remediator's label",
        ),
        pytest.param(
            agent_write(node(metadata__labels={**LABELS, names.LABEL_OPT_OUT: "true"})),
            "only the labels", id="the opt-out of people",
        ),
        pytest.param(
            agent_write(node(metadata__annotations={"a": "b"})), "annotations", id="an annotation"
        ),
        pytest.param(
            agent_write(node(metadata__annotations=None)), "annotations", id="no annotations"
        ),
        pytest.param(
            agent_write(node(metadata__finalizers=[])), "finalizers", id="a finalizer removed"
        ),
        pytest.param(
            agent_write(edited(bare(), {"metadata__finalizers": ["x/y"]}), bare()), "finalizers",
            id="a finalizer on a bare node",
        ),
        pytest.param(
            agent_write(node(metadata__ownerReferences=[{"kind": "Pod", "uid": "dead"}])),
            "ownerReferences", id="an owner that does not exist",
        ),
        pytest.param(
            agent_write(node(status__conditions=[{**READY, "status": "False"}, HEALTHY])),
            "only the conditions", id="Ready changed",
        ),
        pytest.param(
            agent_write(node(status__conditions=[HEALTHY])), "only the conditions",
            id="Ready removed",
        ),
        pytest.param(
            agent_write(node(status__conditions=None)), "only the conditions",
            id="all conditions removed",
        ),
        pytest.param(
            agent_write(node(status__conditions=[READY, {"type": "DiskPressure"}])),
            "only the conditions", id="a foreign condition added",
        ),
        pytest.param(
            agent_write(
                node(status__conditions=[READY, READY]),
                node(status__conditions=[READY, {"type": "DiskPressure"}]),
            ),
            "only the conditions", id="one foreign condition written over another",
        ),
        pytest.param(
            agent_write(node(status__capacity={"nvidia.com/gpu": "80"})), "no other field",
            id="capacity",
        ),
        pytest.param(
            agent_write(node(status__allocatable={})), "no other field", id="a field added"
        ),
        pytest.param(
            agent_write(node(status__nodeInfo=None)), "no other field", id="a field removed"
        ),
        pytest.param(
            agent_write(node(status__invented={"a": 1})), "no other field",
            id="a field of a later Kubernetes",
        ),
    ],
)  # fmt: skip
def test_the_agent_is_refused(write: Write, why: str) -> None:
    said = refusals(write)
    assert len(said) == 1
    assert why in said[0]
    assert said[0].startswith("gpuward-agent may")


@pytest.mark.parametrize("resource", ["gpunodehealths", "gpunodehealths/status"])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("name", "allowed"), [("gpu-1", True), ("gpu-2", False)])
def test_the_agent_publishes_its_own_gpunodehealth_only(
    resource: str, operation: str, name: str, allowed: bool
) -> None:
    old = {"metadata": {"name": name}} if operation == "UPDATE" else None
    given = {"resource": resource, "group": names.GROUP, "operation": operation}
    for extra in (BOUND, {}):
        said = refusals(
            Write(user=AGENT, extra=extra, new={"metadata": {"name": name}}, old=old, **given)
        )
        assert (said == []) is (allowed and bool(extra))


def an_event(**changes: Any) -> dict[str, Any]:
    """What the agent sends, as the server hands it to admission."""
    kept = NodeObject(metadata=Metadata(name="gpu-1", uid="u-1"))
    event = NodeEvent("Warning", "Xid79GPUFallenOffBus", "GPU 3 fell off the bus")
    return edited(event_body(kept, event, 1.0), changes)


HEALTH_OBJECT = {"kind": "GPUNodeHealth", "apiVersion": names.API_VERSION, "name": "gpu-1"}


def event_write(new: dict[str, Any], **more: Any) -> Write:
    given = {"user": AGENT, "resource": "events", "operation": "CREATE", "extra": BOUND, **more}
    return Write(new=new, **given)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(event_write(an_event()), id="as it is sent"),
        pytest.param(event_write(an_event(), user=AGENT.replace("gpuward:", "x:")),
                     id="in another namespace"),
        pytest.param(event_write(an_event(involvedObject=HEALTH_OBJECT)), id="its verdict"),
        pytest.param(event_write(an_event(involvedObject__apiVersion=None)), id="no version"),
        pytest.param(event_write(an_event(), user="system:node:gpu-9", extra=None),
                     id="somebody else"),
    ],
)  # fmt: skip
def test_the_agent_may_tell_about_its_node(write: Write) -> None:
    assert refusals(write) == []


OWN_EVENTS, KINDS, PLACE, NAME = (
    "only about the node that its token", "only about a Node or", "in namespace default", "own name"
)  # fmt: skip


@pytest.mark.parametrize(
    ("write", "why"),
    [
        pytest.param(event_write(an_event(involvedObject__name="gpu-2")), [OWN_EVENTS],
                     id="another node"),
        pytest.param(event_write(an_event(involvedObject={**HEALTH_OBJECT, "name": "gpu-2"})),
                     [OWN_EVENTS], id="the verdict of another"),
        pytest.param(event_write(an_event(), extra={}), [OWN_EVENTS], id="unbound token"),
        pytest.param(event_write(an_event(), extra=None), [OWN_EVENTS], id="no claims at all"),
        pytest.param(event_write(an_event(), extra={NODE_CLAIM: []}), [OWN_EVENTS],
                     id="empty claim"),
        pytest.param(event_write(an_event(), extra={NODE_CLAIM: ["gpu-1", "gpu-2"]}), [OWN_EVENTS],
                     id="two claims"),
        pytest.param(event_write(an_event(involvedObject__name=None)), [OWN_EVENTS],
                     id="about no name"),
        pytest.param(
            event_write(an_event(involvedObject__name=None), extra={NODE_CLAIM: [""]}),
            [OWN_EVENTS], id="no name, and a claim of none",
        ),
        pytest.param(event_write(an_event(involvedObject=None)), [OWN_EVENTS, KINDS],
                     id="about nothing"),
        pytest.param(event_write(an_event(involvedObject__kind="Pod")), [KINDS], id="a Pod"),
        pytest.param(event_write(an_event(involvedObject__apiVersion="evil.example/v1")), [KINDS],
                     id="another group's Node"),
        pytest.param(
            event_write(an_event(involvedObject={**HEALTH_OBJECT, "apiVersion": "v1"})), [KINDS],
            id="another group's GPUNodeHealth",
        ),
        pytest.param(event_write(an_event(related={"kind": "Pod", "name": "x"})), [KINDS],
                     id="a second object"),
        pytest.param(event_write(an_event(metadata__namespace="team-a")), [PLACE],
                     id="another namespace"),
        pytest.param(event_write(an_event(metadata__namespace=None)), [PLACE], id="no namespace"),
        pytest.param(event_write(an_event(source__component="kubelet")), [NAME], id="as kubelet"),
        pytest.param(event_write(an_event(source=None)), [NAME], id="as nobody"),
        pytest.param(event_write(an_event(reportingComponent="kubelet")), [NAME],
                     id="reported by kubelet"),
        pytest.param(event_write(an_event(involvedObject__name="gpu-2"), operation="UPDATE",
                                 old=an_event()), [OWN_EVENTS], id="changed afterwards"),
    ],
)  # fmt: skip
def test_the_agent_may_tell_about_nothing_else(write: Write, why: list[str]) -> None:
    said = refusals(write)
    assert len(said) == len(why)
    for message, expected in zip(said, why, strict=True):
        assert expected in message
        assert message.startswith("gpuward-agent may write Events only")


def marked_by_us(original: dict[str, Any]) -> dict[str, Any]:
    """What the mark makes of a node, from the very patch the remediator sends."""
    view = as_view(original)
    patch = mark.mark_patch(
        view, session="s", reason="Xid79", phase="Marked", mark="CordonAndTaint", now=0.0
    )
    return merged(original, patch)


def as_view(original: dict[str, Any]) -> NodeView:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(original), type=NodeView)


def merged(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7386, without what the server takes out."""
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
def test_the_mark_goes_on_and_off(original: dict[str, Any]) -> None:
    on = marked_by_us(original)
    assert on["spec"]["unschedulable"] is True
    assert refusals(remediator_write(on, original)) == []
    relabelled = merged(on, mark.relabel_patch(as_view(on), "Draining"))
    assert refusals(remediator_write(relabelled, on)) == []
    off = merged(on, mark.unmark_patch(as_view(on)))
    assert refusals(remediator_write(off, on)) == []


@pytest.mark.parametrize("original", [node(), bare()], ids=["a full node", "a bare node"])
def test_the_remediator_may_say_unknown(original: dict[str, Any]) -> None:
    sent = request(
        SetNodeUnknown(node="gpu-1", node_uid="u-1", resource_version="1", at=0.0, message="m")
    )
    assert sent.body is not None
    (condition,) = sent.body["status"]["conditions"]
    others = [c for c in original["status"].get("conditions", ()) if c["type"] != "GPUHealthy"]
    new = merged(original, {"metadata": {"labels": sent.body["metadata"]["labels"]}})
    new["status"]["conditions"] = [*others, condition]
    assert refusals(remediator_write(new, original, "nodes/status")) == []


OUR_LABEL = {**node()["metadata"]["labels"], names.LABEL_QUARANTINE: "marked"}


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
                     id="a verdict of its own, as a label"),
        pytest.param("nodes/status", node(metadata__labels=None), "no label here but",
                     id="labels removed"),
        pytest.param("nodes/status", node(metadata__annotations={"a": "b"}), "annotations",
                     id="annotation through the status"),
        pytest.param("nodes/status", node(metadata__finalizers=[]), "finalizers",
                     id="finalizers through the status"),
        pytest.param("nodes/status", node(metadata__ownerReferences=[]), "ownerReferences",
                     id="owners through the status"),
        pytest.param("nodes/status", node(status__conditions=verdict()[:2]), "no condition but",
                     id="a verdict of its own"),
        pytest.param("nodes/status", node(status__conditions=[READY]), "no condition but",
                     id="the agent's condition removed"),
        pytest.param("nodes/status", node(status__conditions=[HEALTHY]), "no condition but",
                     id="Ready removed"),
        pytest.param("nodes/status", node(status__conditions=verdict("Unknown")),
                     "no condition but", id="GPUDegraded"),
        pytest.param("nodes/status", node(status__capacity={}), "no other field", id="capacity"),
    ],
)  # fmt: skip
def test_the_remediator_is_refused(resource: str, new: dict[str, Any], why: str) -> None:
    said = refusals(remediator_write(new, node(), resource))
    assert len(said) == 1
    assert why in said[0]
    assert said[0].startswith("gpuward-remediator may")


@pytest.mark.parametrize(
    "user",
    [
        "system:node:gpu-1",
        "admin",
        "",
        "gpuward-agent",
        "system:serviceaccount:x:my-gpuward-agent",
    ],
)
def test_nobody_else_is_concerned(user: str) -> None:
    for resource in ("nodes", "nodes/status"):
        assert refusals(Write(user=user, resource=resource, new=bare(), old=node())) == []


def listed(policy: str, variable: str) -> set[str]:
    spec = next(p["spec"] for p in policies() if p["metadata"]["name"] == policy)
    text = next(v["expression"] for v in spec["variables"] if v["name"] == variable)
    return set(text.strip("[]").replace("'", "").replace("\n", " ").replace(" ", "").split(","))


def test_the_names_in_the_policies_are_those_of_the_code() -> None:
    assert listed("gpuward-agent-node-fields", "ours") == set(names.AGENT_LABELS)
    ours = {names.ANNOTATION_SESSION, *mark.AUTOSCALER_ANNOTATIONS}
    assert listed("gpuward-remediator-mark", "ourNotes") == ours


def test_every_policy_fails_closed_is_bound_and_answers_forbidden() -> None:
    shipped = [o for o in read_manifests(BASE) if o["kind"] == "ValidatingAdmissionPolicy"]
    assert [p["metadata"]["name"] for p in shipped] == [p["metadata"]["name"] for p in policies()]
    for policy in shipped:
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert {rule["reason"] for rule in policy["spec"]["validations"]} == {"Forbidden"}
