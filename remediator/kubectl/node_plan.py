"""One node of a plan: what comes next for it, and what its pods answer to a dry-run eviction.

Dry runs do not add up, so each pod answers for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import PLANNER, CommandError
from remediator.view.people import part_of_people
from rules.api.names import API_VERSION
from rules.api.nodes import QuarantineView
from rules.api.pods import OwnerView, PodView
from rules.api.quarantine import Phase, gravest_reason
from rules.api.repair_writes import CreateTestJob, SetRepairCondition, WriteRepairObject
from rules.api.requests import request
from rules.api.writes import Evicting
from rules.catalog.reason import Severity
from rules.drain.drain_plan import DrainInput, DrainPlan
from rules.drain.eviction import EvictionKind, classify, matching
from rules.drain.memory import DrainMemory, answered
from rules.drain.node_room import asks_for_room, free_gpus, without_room
from rules.drain.plan import plan_drain
from rules.fleet.forecast import Foreseen
from rules.session.causes import (
    actionable,
    causes_in_effect,
    drains_now,
    open_causes,
    sight_of,
    worst,
)
from rules.session.external import external_of
from rules.session.observation import is_open
from rules.session.repair.ladder import NEXT, rungs
from rules.session.snapshot import FleetSnapshot

_MARKS: Final = {"CordonAndTaint": "cordon and taint", "Taint": "taint", "Cordon": "cordon"}
_UNDRAINED: Final = "level Cordon leaves its pods alone until the causes close"


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node: what would be done, why not more, what its pods answer; printed by `-o json`."""

    api_version: str = API_VERSION
    kind: str = "GPUNodePlan"
    metadata: dict[str, str]
    would: str
    then: str = ""
    """What comes after a wait; the answers of its pods are about that."""
    reason: str = ""
    because: str = ""
    blocked_by: str = ""
    """What holds it back, a reason of `rules.catalog.why_not`; "" where nothing does."""
    evictable: int = 0
    blocked: tuple[str, ...] = ()
    left: int = 0
    repair: str = ""
    """Where the repair ladder would begin after the drain."""
    people: tuple[str, ...] = ()
    """What people decided about the node: held, paused, opted out."""

    @property
    def node(self) -> str:
        """Its name."""
        return self.metadata["name"]


async def node_plan(
    cluster: Cluster,
    found: Foreseen,
    snapshot: FleetSnapshot,
    pods: Mapping[str, tuple[PodView, ...]],
) -> NodePlan | None:
    """Of one node, None where nothing is to be said; `snapshot` is the fleet as foreseen."""
    name, session = found.node, found.after
    node = snapshot.nodes.get(name)
    believed = node is not None and not sight_of(node, snapshot).stale
    health = snapshot.healths.get(name) if believed else None
    people = part_of_people(node, session, snapshot.pauses.values(), snapshot.now, health)
    step = replace(next_step(found, snapshot), people=people)
    if session is None:
        reason = _asking(snapshot, name)
        if not reason and not found.unmarked:
            return None
        because = f"{step.because}: kubectl gpuward why {name}"
        return replace(step, reason=reason, because=because)
    made = replace(step, reason=gravest_reason(session.spec.causes))
    if "drain" not in {made.would, made.then} or node is None:
        return made
    result = await _probe(cluster, snapshot, session, pods.get(name, ()))
    outcomes = result.memory.outcomes.values()
    return replace(
        made,
        repair=_repair(snapshot, session),
        evictable=sum(outcome.kind is EvictionKind.ACCEPTED for outcome in outcomes),
        blocked=tuple(
            f"{b.pdb or ', '.join(b.pods.names)}: {b.why}; {b.remedy}" for b in result.blocked
        ),
        left=len(result.left_by_policy),
    )


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
    found = rungs(session, others, causes, health, snapshot.policy, snapshot.now)
    first = next((rung for rung in found if rung.state == NEXT), None)
    if first is None:
        return "repair: no step of the ladder is left for it" if found else ""
    how = "asked" if snapshot.policy.repair.mode == "Auto" else "proposed to you, then asked"
    return f"repair: {first.step} would be {how} of {first.adapter} once it is drained"


def next_step(found: Foreseen, snapshot: FleetSnapshot) -> NodePlan:
    """What is done, what after a wait, and why not more; `snapshot` is the fleet as foreseen."""
    session, decision = found.after, found.decision
    mark = _MARKS[snapshot.policy.mark]
    why, code = decision.because, decision.blocked_by or ""

    def step(would: str, because: str, blocked_by: str = "", then: str = "") -> NodePlan:
        return NodePlan(
            metadata={"name": found.node}, would=would, then=then, because=because,
            blocked_by=blocked_by,
        )  # fmt: skip

    match found.asks:
        case SetRepairCondition() | WriteRepairObject() as asks:
            return step(f"ask for {asks.step}", decision.message)
        case CreateTestJob():
            return step("test under load", decision.message)
    if session is None:
        return step("take the mark off" if found.unmarked else "nothing", why, code)
    phase = session.status.phase or Phase.PENDING
    if not is_open(session):
        return step("release" if phase == Phase.RELEASED else f"end, {phase}", why)
    if phase == Phase.PENDING:
        return step("wait", why, code)
    node = snapshot.nodes.get(found.node)
    drains = node is not None and drains_now(session, node, snapshot)
    if phase in {Phase.MARKED, Phase.DRAINING} and drains:
        if decision.evicting is Evicting.GO:
            return step("drain", "")
        return step(f"{mark}, wait" if found.marked else "wait", why, code, then="drain")
    if found.marked:
        # What is foreseen of a session that is marked only then says that it is marked already.
        return step(mark, _UNDRAINED if phase == Phase.MARKED else decision.message)
    before = found.before.status.phase if found.before is not None else ""
    would = f"stay {phase}" if phase == before else f"go on to {phase}"
    return step(would, decision.message, code)


async def _probe(
    cluster: Cluster,
    snapshot: FleetSnapshot,
    session: QuarantineView,
    pods: tuple[PodView, ...],
) -> DrainPlan:
    """What the drain would come to now, with the API server's answer for each pod."""
    pdbs = await cluster.once("PDBs", cluster.pdbs)
    look = DrainInput(
        node=session.spec.node_name,
        session=session.name,
        pods=pods,
        pdbs=pdbs,
        owners={
            ds.metadata.uid: OwnerView(
                api_version="apps/v1", kind="DaemonSet", metadata=ds.metadata
            )
            for ds in await cluster.once("DaemonSets", cluster.daemon_sets)
        },
        no_room=await _no_room(cluster, snapshot, session, pods),
        severity=worst(causes_in_effect(session, snapshot)),
        dry_run=True,
    )
    memory = DrainMemory()
    first = plan_drain(look, snapshot.policy, memory, snapshot.now)
    by_uid = {pod.metadata.uid: pod for pod in pods}
    for eviction in first.evict:
        pod = by_uid[eviction.uid]
        answer = await cluster.send(request(eviction))
        outcome = classify(answer.code, {}, answer.body, pod, matching(pod, pdbs), snapshot.now)
        if outcome.kind is EvictionKind.MISSING_PERMISSION:
            raise CommandError(
                f"not allowed: {outcome.message}, which a dry run needs too; "
                f"ask for the ClusterRole {PLANNER}",
                forbidden=True,
            )
        memory = answered(memory, eviction, outcome)
    return plan_drain(look, snapshot.policy, memory, snapshot.now)


async def _no_room(
    cluster: Cluster,
    snapshot: FleetSnapshot,
    session: QuarantineView,
    pods: tuple[PodView, ...],
) -> frozenset[str]:
    """UIDs of a Degraded node's GPU pods that would be kept, because they fit nowhere else."""
    if worst(causes_in_effect(session, snapshot)) == Severity.FATAL or not any(
        map(asks_for_room, pods)
    ):
        return frozenset()
    free = free_gpus(
        snapshot.nodes.values(), await cluster.once("requested", cluster.gpus_requested)
    )
    return without_room(pods, session.spec.node_name, free)
