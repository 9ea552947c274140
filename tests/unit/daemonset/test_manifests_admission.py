"""The admission policies as tables: what of a Node an agent may change, and what is refused by
name.
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.api import names

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
    node,
    verdict,
)


def agent_write(new: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Write:
    given = {"user": AGENT, "resource": "nodes/status", "extra": BOUND, **more}
    return Write(new=new, old=node() if old is None else old, **given)


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
    given: dict[str, Any] = {"resource": resource, "group": names.GROUP, "operation": operation}
    for extra in (BOUND, {}):
        said = refusals(
            Write(user=AGENT, extra=extra, new={"metadata": {"name": name}}, old=old, **given)
        )
        assert (said == []) is (allowed and bool(extra))
