"""Whether a node takes new work now, whoever keeps it from that."""

from __future__ import annotations

from typing import Final

from rules.api.mark import own_taint
from rules.api.nodes import NodeView
from rules.api.timestamps import parse_time

YOUNG_S: Final = 3600.0
"""A node this young that was never Ready is still being built: it is no capacity yet."""


_FIRST_REPORT_S: Final = 30.0
"""A Ready condition that last changed this close to the node's creation never was True since."""


def being_built(node: NodeView, now: float) -> bool:
    """Young and never yet Ready: neither numerator nor denominator."""
    if node.ready == "True" or now - node.metadata.created_at > YOUNG_S:
        return False
    condition = node.condition("Ready")
    if condition is None:
        return True
    changed = parse_time(condition.last_transition_time or "")
    return changed is None or changed - node.metadata.created_at <= _FIRST_REPORT_S


def is_unavailable(node: NodeView) -> bool:
    """Whether new work cannot land there now, whoever caused it."""
    closed = node.spec.unschedulable or own_taint(node) is not None
    return node.ready != "True" or closed or bool(node.doubt)
