"""One dry-run eviction per pod of a node, by the remediator's own plan of its drain.

Dry runs do not add up, so each pod answers for itself. Called by `plan`.
"""

from __future__ import annotations

from remediator.kubectl.command import PLANNER, CommandError
from remediator.kubectl.planning.surroundings import Surroundings
from rules.api.nodes import QuarantineView
from rules.api.pods import OwnerView, PodView
from rules.api.requests import request
from rules.catalog.reason import Severity
from rules.drain.budget import matching
from rules.drain.drain_input import DrainInput
from rules.drain.eviction import EvictionKind, classify
from rules.drain.memory import DrainMemory, answered
from rules.drain.plan import DrainPlan, plan_drain
from rules.drain.room import asks_for_room, free_gpus, without_room
from rules.session.causes import causes_in_effect, worst
from rules.session.snapshot import FleetSnapshot


async def probe(
    around: Surroundings,
    snapshot: FleetSnapshot,
    session: QuarantineView,
    pods: tuple[PodView, ...],
) -> DrainPlan:
    """What the drain would come to now, with the API server's answer for each pod."""
    pdbs = await around.pdbs()
    look = DrainInput(
        node=session.spec.node_name,
        session=session.name,
        pods=pods,
        pdbs=pdbs,
        owners={
            ds.metadata.uid: OwnerView(
                api_version="apps/v1", kind="DaemonSet", metadata=ds.metadata
            )
            for ds in await around.daemon_sets()
        },
        no_room=await _no_room(around, snapshot, session, pods),
        severity=worst(causes_in_effect(session, snapshot)),
        dry_run=True,
    )
    memory = DrainMemory()
    first = plan_drain(look, snapshot.policy, memory, snapshot.now)
    by_uid = {pod.metadata.uid: pod for pod in pods}
    for eviction in first.evict:
        pod = by_uid[eviction.uid]
        answer = await around.cluster.send(request(eviction))
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
    around: Surroundings,
    snapshot: FleetSnapshot,
    session: QuarantineView,
    pods: tuple[PodView, ...],
) -> frozenset[str]:
    """UIDs of a Degraded node's GPU pods that would be kept, because they fit nowhere else."""
    if worst(causes_in_effect(session, snapshot)) == Severity.FATAL or not any(
        map(asks_for_room, pods)
    ):
        return frozenset()
    free = free_gpus(snapshot.nodes.values(), await around.gpus_requested())
    return without_room(pods, session.spec.node_name, free)
