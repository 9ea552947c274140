"""A decision where the objects at hand are all there is: forecast and simulation."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.writes import Decision
from rules.policy.policy import Policy
from rules.session.decide import decide
from rules.session.observation import NodeObservation


def decide_at_hand(
    session: QuarantineView | None,
    look: Callable[[FreshNode | None], NodeObservation],
    node: NodeView | None,
    now: float,
    policy: Policy,
) -> Decision:
    """What the remediator would do, which reads the node anew where a decision needs that: here
    `node` is what it would read, and a node that is not there leaves the decision as it is. `look`
    observes with what was read.
    """
    decision = decide(session, look(None), now, policy)
    if not decision.needs_fresh_node or node is None:
        return decision
    return decide(session, look(as_read(node)), now, policy)


def as_read(node: NodeView) -> FreshNode:
    """The node as a GET shows it."""
    return msgspec.convert(msgspec.to_builtins(node), FreshNode)
