"""The out-of-service taint of a fenced node as writes: set for a step, and taken off again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.api.nodes import NodeView
from rules.api.quarantine import RepairAttempt
from rules.api.repair.out_of_service import out_of_service_for, taint_patch, untaint_patch
from rules.api.repair.writes import ObjectAddress, Verb, WriteRepairObject


def out_of_service(node: NodeView, session: str, attempt: RepairAttempt) -> WriteRepairObject:
    """The write that lets Kubernetes end the pods of a node whose power is off."""
    patch = taint_patch(node, attempt.object)
    return _on_the_node(node, session, attempt.step, patch, ends_pods=True)


def back_in_service(node: NodeView, session: str) -> tuple[WriteRepairObject, ...]:
    """What takes the taint off where it is ours; () where it is not."""
    if not out_of_service_for(node):
        return ()
    return (_on_the_node(node, session, "", untaint_patch(node), ends_pods=False),)


def _on_the_node(
    node: NodeView, session: str, step: str, patch: Mapping[str, Any], *, ends_pods: bool
) -> WriteRepairObject:
    return WriteRepairObject(
        node=node.name,
        node_uid=node.uid,
        session=session,
        step=step,
        verb=Verb.PATCH,
        address=ObjectAddress(api_version="v1", resource="nodes", name=node.name),
        body=patch,
        asks=ends_pods,
        ends_pods=ends_pods,
    )
