"""The admission policy on GPUEvidence as a table: an agent writes that of its own node, once."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("celpy", reason="cel-python is not installed")

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


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(written(), id="as it is sent"),
        pytest.param(written({"spec__nodeName": "gpu-9"}, user="ada", extra=None), id="a person"),
    ],
)
def test_what_passes(write: Write) -> None:
    assert refusals(write) == []


OWN, NAME, OWNER, ONCE = (
    "only about the node",
    "named as the session",
    "no owner",
    "writes evidence once",
)


@pytest.mark.parametrize(
    ("write", "why"),
    [
        pytest.param(written({"spec__nodeName": "gpu-2"}), OWN, id="of another node"),
        pytest.param(written(extra={}), OWN, id="unbound token"),
        pytest.param(written(extra={NODE_CLAIM: ["gpu-1", "gpu-2"]}), OWN, id="two claims"),
        pytest.param(written({"spec__session": "gpu-2-0a1b2c3d"}), NAME, id="of another session"),
        pytest.param(
            written({"metadata__ownerReferences": [{"kind": "Node", "name": "gpu-1"}]}), OWNER,
            id="owned",
        ),
        pytest.param(written({"metadata__finalizers": ["x.example/y"]}), OWNER, id="finalizer"),
        pytest.param(written(operation="UPDATE", old=EVIDENCE), ONCE, id="changed afterwards"),
    ],
)  # fmt: skip
def test_what_is_refused(write: Write, why: str) -> None:
    (said,) = refusals(write)
    assert why in said
