"""A merge patch of the Node that a repair concerns, as the write that sends it.

Called by the other modules of this room only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.api.nodes import NodeView
from rules.api.repair.writes import ObjectAddress, Verb, WriteRepairObject


def node_patch(
    node: NodeView,
    session: str,
    body: Mapping[str, Any],
    *,
    step: str = "",
    asks: bool = False,
) -> WriteRepairObject:
    """The write of `body` for `step`; without a step it takes back what one had asked for."""
    return WriteRepairObject(
        node=node.name,
        node_uid=node.uid,
        session=session,
        step=step,
        verb=Verb.PATCH,
        address=ObjectAddress(api_version="v1", resource="nodes", name=node.name),
        body=body,
        asks=asks,
    )
