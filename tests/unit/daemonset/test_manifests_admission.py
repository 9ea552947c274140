"""The admission policies as tables: an agent's allowed and denied writes to Nodes and Events."""

from typing import Any

import pytest

from agent.publish.objects import Metadata, NodeObject, event_body
from rules.api import names
from rules.judge.messages import NodeEvent

pytest.importorskip("celpy", reason="cel-python is not installed")

from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import (
    AGENT,
    BOUND,
    HEALTHY,
    NODE_CLAIM,
    READY,
    bare,
    edited,
    gpu_false,
    node,
)


def agent_write(new: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Write:
    given = {"user": AGENT, "resource": "nodes/status", "extra": BOUND, **more}
    return Write(new=new, old=node() if old is None else old, **given)


LABELS = {**node()["metadata"]["labels"], **dict.fromkeys(names.AGENT_LABELS, "8")}


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(agent_write(node()), id="nothing changed"),
        pytest.param(agent_write(node(status__conditions=gpu_false())), id="a health status"),
        pytest.param(agent_write(node(metadata__labels=LABELS)), id="every label of gpuward"),
        pytest.param(
            agent_write(node(metadata__labels={"kubernetes.io/hostname": "gpu-1"})),
            id="a label of gpuward taken back",
        ),
        pytest.param(
            agent_write(node(status__conditions=[*gpu_false()[1:], READY])), id="another order"
        ),
        pytest.param(
            agent_write(
                edited(bare(), {"status__conditions": gpu_false()[1:],
                                "metadata__labels": {names.LABEL_HEALTH: "healthy"}}),
                bare(),
            ),
            id="a node without conditions, labels or annotations",
        ),
        pytest.param(
            agent_write(
                edited(bare(), {"status__conditions": gpu_false()[1:]}),
                {"metadata": {"name": "gpu-1"}},
            ),
            id="a node without status",
        ),
        pytest.param(
            agent_write(
                node(status__conditions=gpu_false()), user=AGENT.replace("gpuward:", "x:")
            ),
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
def test_the_agent_is_denied(write: Write, why: str) -> None:
    denials = refusals(write)
    assert len(denials) == 1
    assert why in denials[0]
    assert denials[0].startswith("gpuward-agent may")


@pytest.mark.parametrize("resource", ["gpunodehealths", "gpunodehealths/status"])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("name", "allowed"), [("gpu-1", True), ("gpu-2", False)])
def test_the_agent_publishes_its_own_gpunodehealth_only(
    resource: str, operation: str, name: str, allowed: bool
) -> None:
    old = {"metadata": {"name": name}} if operation == "UPDATE" else None
    given: dict[str, Any] = {"resource": resource, "group": names.GROUP, "operation": operation}
    for extra in (BOUND, {}):
        denials = refusals(
            Write(user=AGENT, extra=extra, new={"metadata": {"name": name}}, old=old, **given)
        )
        assert (denials == []) is (allowed and bool(extra))


def an_event(**changes: Any) -> dict[str, Any]:
    """Return the agent's request as admission gets it."""
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
        pytest.param(event_write(an_event(involvedObject=HEALTH_OBJECT)), id="its health status"),
        pytest.param(event_write(an_event(involvedObject__apiVersion=None)), id="no version"),
        pytest.param(event_write(an_event(), user="system:node:gpu-9", extra=None),
                     id="somebody else"),
    ],
)  # fmt: skip
def test_the_agent_may_write_events_about_its_node(write: Write) -> None:
    assert refusals(write) == []


OWN_EVENTS, KINDS, PLACE, NAME = (
    "only about the node that its token", "only about a Node or", "in namespace default",
    "own name"
)  # fmt: skip


@pytest.mark.parametrize(
    ("write", "why"),
    [
        pytest.param(event_write(an_event(involvedObject__name="gpu-2")), [OWN_EVENTS],
                     id="another node"),
        pytest.param(event_write(an_event(involvedObject={**HEALTH_OBJECT, "name": "gpu-2"})),
                     [OWN_EVENTS], id="the health status of another"),
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
def test_the_agent_may_not_write_other_events(write: Write, why: list[str]) -> None:
    denials = refusals(write)
    assert len(denials) == len(why)
    for message, expected in zip(denials, why, strict=True):
        assert expected in message
        assert message.startswith("gpuward-agent may write Events only")
