"""The out-of-service taint of a fenced node as writes: set for a step, and taken off again."""

from __future__ import annotations

from rules.api.nodes import NodeView
from rules.api.quarantine import RepairAttempt
from rules.api.repair.out_of_service import out_of_service_for, taint_patch, untaint_patch
from rules.api.repair.writes import WriteRepairObject
from rules.session.repair.node_patch import node_patch


def out_of_service(node: NodeView, session: str, attempt: RepairAttempt) -> WriteRepairObject:
    """The write that lets Kubernetes end the pods of a node whose power is off."""
    patch = taint_patch(node, attempt.object)
    return node_patch(node, session, patch, step=attempt.step, asks=True, ends_pods=True)


def back_in_service(node: NodeView, session: str) -> tuple[WriteRepairObject, ...]:
    """What takes the taint off where it is ours; () where it is not."""
    if not out_of_service_for(node):
        return ()
    return (node_patch(node, session, untaint_patch(node)),)
