"""The out-of-service taint on a node whose power is off: set with a note of ours, and taken off.

Kubernetes ends the pods of a node that carries it without asking their kubelet, and detaches their
volumes. So only a taint beside our note is ever ours, and a note is ours only if a session has the
decision on record or the remediator wrote it: a kubelet can write annotations of its own node.
Both go on and off in one patch that carries `metadata.resourceVersion`, because a list of taints
is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from rules.api.names import ANNOTATION_OUT_OF_SERVICE, TAINT_OUT_OF_SERVICE
from rules.api.node_managers import annotated_by_us
from rules.api.nodes import NodeView, QuarantineView, Taint

OUT_OF_SERVICE: Final = Taint(key=TAINT_OUT_OF_SERVICE, effect="NoExecute", value="nodeshutdown")
"""As the documentation of Kubernetes writes it for a node that is shut down."""


def may_be_ours(node: NodeView) -> bool:
    """Whether a note is there, whoever wrote it."""
    return bool(node.annotations.get(ANNOTATION_OUT_OF_SERVICE))


def is_ours(node: NodeView, known: Iterable[QuarantineView]) -> bool:
    """Whether we set the taint, or were about to.

    One of the `known` sessions has the decision on record for the request that the note names, or
    the managers of a `FreshNode` show that the remediator wrote the note.
    """
    note = node.annotations.get(ANNOTATION_OUT_OF_SERVICE)
    return bool(note) and (
        any(
            attempt.object == note and attempt.fence is not None and attempt.fence.taint_at
            for session in known
            for attempt in session.status.repair
        )
        or annotated_by_us(node, ANNOTATION_OUT_OF_SERVICE)
    )


def is_out_of_service(node: NodeView) -> bool:
    """Whether the taint is on the node, whoever set it."""
    return any(_is_the_taint(taint) for taint in node.spec.taints)


def taint_patch(node: NodeView, request: str) -> dict[str, Any]:
    """The merge patch that sets the taint and notes for which request."""
    return _patch(node, request, [*_others(node), msgspec.to_builtins(OUT_OF_SERVICE)])


def untaint_patch(node: NodeView) -> dict[str, Any]:
    """The merge patch that takes our taint off, and the note; only for a node with the note."""
    return _patch(node, None, _others(node) or None)


def in_service(node: NodeView) -> NodeView:
    """The node without the taint, as other patches of its taints have to see it."""
    taints = tuple(taint for taint in node.spec.taints if not _is_the_taint(taint))
    spec = msgspec.structs.replace(node.spec, taints=taints)
    return msgspec.structs.replace(node, spec=spec)


def _patch(node: NodeView, note: str | None, taints: list[Any] | None) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": node.uid,
            "resourceVersion": node.metadata.resource_version,
            "annotations": {ANNOTATION_OUT_OF_SERVICE: note},
        },
        "spec": {"taints": taints},
    }


def _others(node: NodeView) -> list[Any]:
    return [msgspec.to_builtins(taint) for taint in node.spec.taints if not _is_the_taint(taint)]


def _is_the_taint(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (OUT_OF_SERVICE.key, OUT_OF_SERVICE.effect)
