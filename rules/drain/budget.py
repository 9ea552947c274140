"""What a PodDisruptionBudget will say to an eviction, judged from the object.

Permanence is judged here and never from the text of a 429: Job pods under `maxUnavailable` answer
"still being processed" for ever, and bare pods answer a plain refusal (both seen on a real 1.36
control plane). Called by `rules.drain.obstacles` before the first attempt and by
`rules.drain.eviction` after.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rules.api.pods import PodView
from rules.api.selectors import selects
from rules.api.workloads import PdbView
from rules.catalog.why_not import Refusal, WhyNot

_ALWAYS_ALLOW: Final = "unhealthyPodEvictionPolicy: AlwaysAllow"
STALE_S: Final = 60.0
"""A PDB younger than this may simply not have been looked at by the disruption controller."""


def matching(pod: PodView, pdbs: Iterable[PdbView]) -> tuple[PdbView, ...]:
    """The PDBs of the pod's namespace that select it, by name; unreadable selectors are ignored
    (as the Eviction API does).
    """
    found = []
    for pdb in pdbs:
        if pdb.metadata.namespace != pod.metadata.namespace:
            continue
        try:
            if selects(pdb.spec.selector, pod.metadata.labels):
                found.append(pdb)
        except ValueError:
            continue
    return tuple(sorted(found, key=lambda pdb: pdb.key))


def ignores_budget(pod: PodView) -> bool:
    """Whether the Eviction API does not ask a PDB: pending, finished and terminating pods."""
    return pod.finished or pod.terminating or pod.status.phase == "Pending"


def needs_turn(pod: PodView, pdbs: tuple[PdbView, ...]) -> bool:
    """Whether the pod's eviction spends a disruption of its PDB, so that it takes a turn there.

    What the Eviction API lets go without asking (`ignores_budget`, unready pods that the PDB
    does not hold) may even be what opens the budget for the others.
    """
    if not pdbs or ignores_budget(pod):
        return False
    return len(pdbs) > 1 or pod.ready or not _unready_may_go(pdbs[0])


def judge(pod: PodView, pdbs: tuple[PdbView, ...], now: float) -> Refusal | None:
    """What the pod's PDBs (`matching`) say now; None where an eviction may be tried."""
    if not pdbs or ignores_budget(pod):
        return None
    if len(pdbs) > 1:
        names = " and ".join(pdb.key for pdb in pdbs[:3])
        return Refusal(
            reason=WhyNot.MULTIPLE_BUDGETS,
            subject=pdbs[0].key,
            why=f"{names} select the same pod, which the Eviction API does not support",
            permanent=True,
            remedy="make one of them not select the pod",
        )
    pdb = pdbs[0]
    if not pod.ready and _unready_may_go(pdb):
        return None
    block = standing_refusal(pdb, now)
    if block is None:
        return _refusal_for_now(pod, pdb)
    if pod.ready or block.reason is not WhyNot.BUDGET_NEVER_ALLOWS:
        return block
    return replace(block, remedy=f"set {_ALWAYS_ALLOW} (the pod is not Ready), or {block.remedy}")


def _unready_may_go(pdb: PdbView) -> bool:
    if pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return pdb.status.current_healthy >= pdb.status.desired_healthy > 0


def sync_failure(pdb: PdbView) -> str:
    """The disruption controller's complaint, "" where it has none."""
    for condition in pdb.status.conditions:
        if condition.type == "DisruptionAllowed" and condition.reason == "SyncFailed":
            return condition.message[:200] or "SyncFailed"
    return ""


def is_stale(pdb: PdbView, now: float) -> bool:
    """Whether the controller has not looked at this version yet, and still may."""
    behind = pdb.status.observed_generation < pdb.metadata.generation
    return behind and not sync_failure(pdb) and now - pdb.metadata.created_at < STALE_S


def standing_refusal(pdb: PdbView, now: float) -> Refusal | None:
    """Why the PDB will go on refusing every ready pod until a person changes something."""
    status = pdb.status
    if failure := sync_failure(pdb):
        return Refusal(
            reason=WhyNot.BUDGET_SYNC_FAILED,
            subject=pdb.key,
            why=f"the PDB cannot be computed: {failure}",
            permanent=True,
            remedy="use an integer minAvailable or protect a workload that has a scale",
        )
    if is_stale(pdb, now) or status.disruptions_allowed > 0:
        return None
    if status.expected_pods == 0:
        return Refusal(
            reason=WhyNot.BUDGET_EXPECTS_NO_PODS,
            subject=pdb.key,
            why="the PDB expects 0 pods while it selects some (pods without a scalable owner)",
            permanent=True,
            remedy="use an integer minAvailable for pods without a controller",
        )
    if status.desired_healthy >= status.expected_pods:
        return Refusal(
            reason=WhyNot.BUDGET_NEVER_ALLOWS,
            subject=pdb.key,
            why=f"{_asked(pdb)} keeps {status.desired_healthy} of {status.expected_pods} expected",
            permanent=True,
            remedy="add a replica, relax the PDB, or let the owner stop the workload",
        )
    return None


def _asked(pdb: PdbView) -> str:
    if pdb.spec.min_available is not None:
        return f"minAvailable {pdb.spec.min_available}"
    return f"maxUnavailable {pdb.spec.max_unavailable}"


def _refusal_for_now(pod: PodView, pdb: PdbView) -> Refusal | None:
    status = pdb.status
    if status.disruptions_allowed > 0:
        return None
    if not pod.ready and status.current_healthy < status.desired_healthy:
        return Refusal(
            reason=WhyNot.WORKLOAD_UNHEALTHY,
            subject=pdb.key,
            why=f"the workload is unhealthy already ({status.current_healthy} of "
            f"{status.desired_healthy} needed)",
            remedy=f"heal the workload or set {_ALWAYS_ALLOW}",
        )
    return Refusal(
        reason=WhyNot.BUDGET_FULL,
        subject=pdb.key,
        why=f"0 disruptions allowed now ({status.current_healthy} healthy, "
        f"{status.desired_healthy} needed)",
        remedy="it opens when another pod becomes Ready",
    )
