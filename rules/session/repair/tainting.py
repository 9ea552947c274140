"""The out-of-service taint of a fenced node as writes: set for a step, and taken off again."""

from __future__ import annotations

from collections.abc import Iterable

from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import RepairAttempt
from rules.api.repair.out_of_service import is_ours, taint_patch, untaint_patch
from rules.api.repair.writes import WriteRepairObject
from rules.session.repair.node_patch import node_patch


def out_of_service(node: NodeView, session: str, attempt: RepairAttempt) -> WriteRepairObject:
    """The write that lets Kubernetes end the pods of a node whose power is off."""
    patch = taint_patch(node, attempt.object)
    return node_patch(node, session, patch, step=attempt.step, asks=True, ends_pods=True)


def back_in_service(
    node: NodeView, session: str, known: Iterable[QuarantineView]
) -> tuple[WriteRepairObject, ...]:
    """What takes the taint off where it is ours, as the `known` sessions or its managers show."""
    if not is_ours(node, known):
        return ()
    return (node_patch(node, session, untaint_patch(node)),)
