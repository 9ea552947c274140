"""The admission policies on GPUEvidence and GPURecord as tables: an agent writes evidence of its
own node, once; the remediator makes empty records.
"""

from typing import Any

import pytest

pytest.importorskip("celpy", reason="cel-python is not installed")

import msgspec

from rules.api.nodes import NodeView
from rules.session.causes import manual_session_name, session_name
from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import AGENT, BOUND, NODE_CLAIM, edited

EVIDENCE = {
    "metadata": {"name": "gpu-1-0a1b2c3d"},
    "spec": {"session": "gpu-1-0a1b2c3d", "nodeName": "gpu-1"},
}


def written(changes: dict[str, Any] | None = None, **more: Any) -> Write:
    given = {"user": AGENT, "operation": "CREATE", "extra": BOUND, **more}
    return Write(
        group="gpuward.io", resource="gpuevidences", new=edited(EVIDENCE, changes or {}), **given
    )


def named(session: str, node: str = "gpu-1", extra: dict[str, Any] | None = None) -> Write:
    return written(
        {"metadata__name": session, "spec__session": session, "spec__nodeName": node},
        extra=extra or {NODE_CLAIM: [node]},
    )


LONG = ".".join(["n" * 50] * 4)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(written(), id="as it is sent"),
        pytest.param(named("rack-7-looks-odd"), id="of a session that an operator named"),
        pytest.param(named(f"{LONG[:200]}-0a1b2c3d", LONG), id="of a node with a long name"),
        pytest.param(
            written({"spec__nodeName": "gpu-9"}, user="ada", extra=None), id="an operator"
        ),
    ],
)
def test_a_write_is_allowed(write: Write) -> None:
    assert refusals(write) == []


OWN, NAME, OWNER, ONCE = (
    "only about the node",
    "the name of its session",
    "no owner",
    "writes evidence once",
)


@pytest.mark.parametrize(
    "session", ["gpu-2-0a1b2c3d", "gpu-1-b-0a1b2c3d", "gpu-0a1b2c3d", "gpu-2-by-hand-0a1b2c3d"]
)
def test_evidence_cannot_take_the_name_of_another_nodes_session(session: str) -> None:
    (denial,) = refusals(named(session))
    assert "another node's session" in denial


@pytest.mark.parametrize("node", ["gpu-1", "gpu-1.rack.example", LONG])
def test_names_of_sessions_are_allowed(node: str) -> None:
    made = msgspec.convert({"metadata": {"name": node, "uid": "u"}}, NodeView)
    assert refusals(named(session_name(made, "incident", ()), node)) == []
    assert refusals(named(manual_session_name(node, "0a1b2c3d"), node)) == []


@pytest.mark.parametrize(
    ("write", "why"),
    [
        pytest.param(named("gpu-2-0a1b2c3d", "gpu-2", BOUND), OWN, id="of another node"),
        pytest.param(written(extra={}), OWN, id="unbound token"),
        pytest.param(written(extra={NODE_CLAIM: ["gpu-1", "gpu-2"]}), OWN, id="two claims"),
        pytest.param(written({"spec__session": "gpu-1-9a1b2c3d"}), NAME, id="of another session"),
        pytest.param(
            written({"metadata__ownerReferences": [{"kind": "Node", "name": "gpu-1"}]}), OWNER,
            id="owned",
        ),
        pytest.param(written({"metadata__finalizers": ["x.example/y"]}), OWNER, id="finalizer"),
        pytest.param(written(operation="UPDATE", old=EVIDENCE), ONCE, id="changed afterwards"),
    ],
)  # fmt: skip
def test_a_write_is_denied(write: Write, why: str) -> None:
    (denial,) = refusals(write)
    assert why in denial


pytest.importorskip("celpy", reason="cel-python is not installed")


REMEDIATOR = "system:serviceaccount:gpuward:gpuward-remediator"
RECORD = {"metadata": {"name": "gpu-0badcafe"}}


def made(changes: dict[str, Any] | None = None, **more: Any) -> Write:
    given = {"user": REMEDIATOR, "operation": "CREATE", **more}
    new = edited(RECORD, changes or {})
    return Write(group="gpuward.io", resource="gpurecords", new=new, **given)


NOTED = {"metadata__annotations": {"example.com/ticket": "4711"}}


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(made(), id="of a GPU"),
        pytest.param(made({"metadata__name": "node-gpu-7"}), id="of a node"),
        pytest.param(made(NOTED, user="ada"), id="an operator"),
    ],
)
def test_a_record_is_allowed(write: Write) -> None:
    assert refusals(write) == []


@pytest.mark.parametrize(
    ("write", "why"),
    [
        pytest.param(made(NOTED), "no annotation", id="annotation"),
        pytest.param(made({"metadata__name": "kept"}), "after a GPU", id="another name"),
        pytest.param(made({"metadata__finalizers": ["x.example/y"]}), "no owner", id="finalizer"),
        pytest.param(
            made({"metadata__ownerReferences": [{"kind": "Node", "name": "n"}]}), "no owner",
            id="owned",
        ),
    ],
)  # fmt: skip
def test_a_record_is_denied(write: Write, why: str) -> None:
    (denial,) = refusals(write)
    assert why in denial
