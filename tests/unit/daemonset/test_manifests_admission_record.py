"""The admission policy on GPURecord as a table: the remediator makes empty ones."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("celpy", reason="cel-python is not installed")

from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import edited

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
        pytest.param(made(NOTED, user="ada"), id="a person"),
    ],
)
def test_what_passes(write: Write) -> None:
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
def test_what_is_refused(write: Write, why: str) -> None:
    (said,) = refusals(write)
    assert why in said
