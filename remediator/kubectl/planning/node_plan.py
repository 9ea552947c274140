"""One node of a plan: what comes next for it, and what its pods answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from remediator.kubectl.planning.next_step import next_step
from remediator.kubectl.planning.probe import probe
from remediator.kubectl.planning.surroundings import Surroundings
from remediator.view.people import part_of_people
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import Mode, gravest_reason
from rules.drain.daemon_sets import untolerating
from rules.drain.eviction import EvictionKind
from rules.fleet.forecast import Foreseen
from rules.session.causes import actionable, open_causes, sight_of
from rules.session.external import external_of
from rules.session.observation import is_open
from rules.session.repair.rungs import NEXT, rungs
from rules.session.snapshot import FleetSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node: what would be done, why not more, and what its pods answer."""

    node: str
    would: str
    reason: str
    then: str = ""
    """What comes after a wait; the answers of its pods are about that."""
    because: str = ""
    blocked_by: str = ""
    """What holds it back, a reason of `rules.catalog.why_not`; "" where nothing does."""
    evictable: int = 0
    blocked: tuple[str, ...] = ()
    left: int = 0
    untolerating: tuple[str, ...] = ()
    over_budget: str = ""
    """Which budget it exceeds; only what a person asked for does."""
    repair: str = ""
    """Where the repair ladder would begin after the drain."""
    people: tuple[str, ...] = ()
    """What people decided about the node: held, paused, opted out."""
    now: str = ""
    """In Shadow, where `would` is what Enforce would do: what is done now."""


async def node_plan(
    around: Surroundings,
    found: Foreseen,
    snapshot: FleetSnapshot,
    pods: Mapping[str, tuple[PodView, ...]],
) -> NodePlan | None:
    """Of one node, None where nothing is to be said; `snapshot` is the fleet as foreseen."""
    name, session = found.node, found.after
    node = snapshot.nodes.get(name)
    step = next_step(found, snapshot)
    believed = node is not None and not sight_of(node, snapshot).stale
    health = snapshot.healths.get(name) if believed else None
    people = part_of_people(node, session, snapshot.pauses.values(), snapshot.now, health)
    if session is None:
        reason = _asking(snapshot, name)
        if not reason and not found.unmarked:
            return None
        because = f"{step.because}: kubectl gpuward why {name}"
        return NodePlan(
            node=name, would=step.would, reason=reason, because=because, people=people,
            blocked_by=step.blocked_by,
        )  # fmt: skip
    made = NodePlan(
        node=name,
        would=step.would,
        then=step.then,
        reason=gravest_reason(session.spec.causes),
        because=step.because,
        blocked_by=step.blocked_by,
        people=people,
    )
    if not step.drains or node is None:
        return made
    result = await probe(around, snapshot, session, pods.get(name, ()))
    outcomes = result.memory.outcomes.values()
    return replace(
        made,
        repair=_repair(snapshot, session),
        evictable=sum(outcome.kind is EvictionKind.ACCEPTED for outcome in outcomes),
        blocked=tuple(
            f"{b.pdb or ', '.join(b.pods.names)}: {b.why}; {b.remedy}" for b in result.blocked
        ),
        left=len(result.left_by_policy),
        untolerating=untolerating(node, await around.daemon_sets()),
    )


def done_now(found: Foreseen, snapshot: FleetSnapshot) -> str:
    """What is done to the node in Shadow: a session in Shadow touches nothing."""
    real = found.before is not None and found.before.status.mode == Mode.ENFORCE
    step = next_step(found, snapshot)
    over = real and found.after is not None and not is_open(found.after)
    return step.would if over or found.unmarked else "nothing"


def _asking(snapshot: FleetSnapshot, name: str) -> str:
    """The reason of a fault that asks for a session, on a node without one."""
    node = snapshot.nodes.get(name)
    if node is None:
        return ""
    said = external_of(node, snapshot.policy, snapshot.now, {}).incidents
    asking = actionable(snapshot.healths.get(name), said, snapshot.policy)
    return asking[0].reason if asking else ""


def _repair(snapshot: FleetSnapshot, session: QuarantineView) -> str:
    """The step that would be asked for after the drain, as a sentence; "" where none would."""
    node = snapshot.nodes.get(session.spec.node_name)
    causes = open_causes(session, sight_of(node, snapshot)) if node is not None else ()
    if node is None or not any(cause.source != "Human" for cause in causes):
        return ""
    others = (
        other
        for other in snapshot.quarantines.values()
        if other.spec.node_name == node.name and other.name != session.name
    )
    health = snapshot.healths.get(node.name)
    found = rungs(session, others, causes, health, snapshot.policy, snapshot.now, snapshot.records)
    first = next((rung for rung in found if rung.state == NEXT), None)
    if first is None:
        return "repair: no step of the ladder is left for it" if found else ""
    how = "asked" if snapshot.policy.repair.mode == "Auto" else "proposed to you, then asked"
    return f"repair: {first.step} would be {how} of {first.adapter} once it is drained"
