"""Report the drain of a node as Node lifecycle conditions (policy `drain.nodeConditions`).

Kubernetes 1.37 defines the types (KEP-5683, alpha) and no owner. A condition that another writer
set to True stays as it is. gpuward withdraws only conditions with its reason, by status False.
"""

from typing import Final

from rules.api import names
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.writes import SetDrainConditions
from rules.drain import drain_plan
from rules.session import causes
from rules.session.observation import FleetSnapshot

_STEPS: Final = frozenset({Phase.MARKED, Phase.DRAINING, Phase.QUARANTINED})


def observed(
    session: QuarantineView, node: NodeView, snapshot: FleetSnapshot, last_active_at: float | None
) -> frozenset[str]:
    """Return the types of the conditions that are True in this open session."""
    status, chosen = session.status, snapshot.policy_of(node)
    if not chosen.drain.node_conditions or Mode.SHADOW in {chosen.mode, status.mode}:
        return frozenset()
    match status.phase:
        case Phase.MARKED if causes.drains_now(session, node, snapshot):
            return frozenset({names.CONDITION_MAINTENANCE_PLANNED})
        case Phase.DRAINING:
            drain = status.drain
            starts_at = (
                drain_plan.evicts_from(drain, snapshot.now, last_active_at) if drain else None
            )
            drains = starts_at is not None and snapshot.now >= starts_at
            found = {names.CONDITION_DRAIN_IN_PROGRESS} if drains else set()
            return frozenset({names.CONDITION_MAINTENANCE_PLANNED, *found})
        case Phase.QUARANTINED | Phase.REPAIRING:
            return frozenset({names.CONDITION_MAINTENANCE_PLANNED, names.CONDITION_DRAINED})
        case Phase.VALIDATING if _was_drained(session):
            return frozenset({names.CONDITION_DRAINED})
        case _:
            return frozenset()


def _was_drained(session: QuarantineView) -> bool:
    """Return whether the session's last step before the repair was a drained node."""
    steps = (e.step for e in reversed(session.status.timeline) if e.step in _STEPS)
    return next(steps, "") == Phase.QUARANTINED


def ours(node: NodeView) -> tuple[str, ...]:
    """Return the types of the conditions that gpuward set to True on the node."""
    found = (c for c in node.status.conditions if c.status == "True" and c.is_drain_report)
    return tuple(c.type for c in found)


def change(
    node: NodeView, session: QuarantineView | None, wanted: frozenset[str], now: float
) -> SetDrainConditions | None:
    """Return the write after which the `wanted` conditions are True and no other ones of gpuward;
    None if that is so.
    """
    states = []
    for kind in names.DRAIN_CONDITIONS:
        found = node.condition(kind)
        if kind in wanted and (found is None or found.status != "True"):
            states.append((kind, True))
        elif kind not in wanted and kind in ours(node):
            states.append((kind, False))
    if not states:
        return None
    name = session.name if session is not None else ""
    return SetDrainConditions(
        node=node.name,
        node_uid=node.uid,
        session=name,
        states=tuple(states),
        at=now,
        message=f"Session {name} of gpuward." if name else "No session of gpuward.",
    )
