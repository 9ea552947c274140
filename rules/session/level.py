"""What a session may do now, asked of the whole snapshot: for fleet rules and the last look.

The level in a session's spec was right when it was written; the policy, a person and the verdict
have changed since. `rules.session.case` asks the same for one decision.
"""

from __future__ import annotations

from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Cause
from rules.catalog.reason import Level
from rules.session.causes import level_in_effect, open_causes
from rules.session.observation import staleness
from rules.session.snapshot import FleetSnapshot


def _causes(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> tuple[Cause, ...]:
    health = snapshot.healths.get(node.name)
    stale = staleness(health, node, snapshot.agents, snapshot.now)
    return open_causes(session, health, stale, snapshot.policy)


def holds_now(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> bool:
    """Whether a cause of the session still holds and asks for more than a report."""
    return not session.spec.causes or bool(_causes(session, node, snapshot))


def drains_now(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> bool:
    """Whether the session's causes ask for an empty node, as level and policy are now."""
    if not holds_now(session, node, snapshot):
        return False
    causes = _causes(session, node, snapshot)
    return level_in_effect(session, causes, snapshot.policy) == Level.DRAIN
