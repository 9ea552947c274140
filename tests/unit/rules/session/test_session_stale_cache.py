"""A cache that lags behind our own mark must never look like a person's uncordon."""

from __future__ import annotations

import msgspec
import pytest

from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from rules.session.decide import decide
from rules.session.observation import NodeObservation

NOW = 1_760_000_000.0
POLICY = Policy(mode=Mode.ENFORCE)
BARE_NODE = {"metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": "7"}}


def marked_session() -> QuarantineView:
    return msgspec.convert(
        {
            "metadata": {"name": "gpu-1-1", "uid": "s1", "resourceVersion": "3"},
            "spec": {
                "nodeName": "gpu-1",
                "nodeUID": "n1",
                "causes": [{"source": "Human", "message": "drill"}],
            },
            "status": {"mode": "Enforce", "phase": "Marked"},
        },
        QuarantineView,
    )


@pytest.mark.parametrize(
    ("kind", "step"), [(NodeView, "ReadNode"), (FreshNode, "Cancelled")], ids=["cache", "fresh"]
)
def test_s44_an_undone_mark_is_believed_from_a_fresh_read_only(kind: type, step: str) -> None:
    """The watch may not have brought our own patch yet; the API server has it."""
    seen = NodeObservation(name="gpu-1", node=msgspec.convert(BARE_NODE, kind))

    assert decide(marked_session(), seen, NOW, POLICY).step == step
