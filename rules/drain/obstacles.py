"""What blocks a drain, named for people: PDB, pods, owner, why, whether waiting helps, remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rules.api.budgets import PdbView
from rules.api.gangs import Gang
from rules.api.pods import OwnerView, PodView
from rules.api.quarantine import BlockedBy
from rules.drain.budget import judge
from rules.drain.eviction import EvictionKind, EvictionOutcome

_POD_NAMES: Final = 3
_WAITING: Final = frozenset(
    {
        EvictionKind.BUDGET_FULL,
        EvictionKind.BUDGET_STALE,
        EvictionKind.REFUSED,
        EvictionKind.MISSING_PERMISSION,
        EvictionKind.NAMESPACE_ENDING,
        EvictionKind.IN_PROGRESS,
        EvictionKind.UNAUTHORIZED,
        EvictionKind.API_BUSY,
        EvictionKind.UNKNOWN,
    }
)
_GANG_REMEDY: Final = (
    "wait for the job to end (WaitCompleted), let its owner suspend it, or force it by policy"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why one pod does not go. `holds`: it is not even asked to while that lasts."""

    reason: str
    why: str
    permanent: bool
    remedy: str = ""
    pdb: str = ""
    holds: bool = False


def obstacle_of(
    pod: PodView,
    pdbs: tuple[PdbView, ...],
    outcome: EvictionOutcome | None,
    gang: Gang | None,
    now: float,
    asked: bool,
) -> Obstacle | None:
    """What the PDBs, or the last answer, say about `pod`; None when nothing is in its way.

    `asked`: the PDB refused another of its pods, so that this one waits as well.
    """
    key = pdbs[0].key if pdbs else ""
    block = judge(pod, pdbs, now)
    if block is not None and block.permanent:
        gang_budget = block.reason == "BudgetNeverAllows" and gang is not None
        if gang_budget and gang is not None:
            why = f"it protects the whole gang {gang.key}, {block.why}"
            return Obstacle(
                reason="GangBudget",
                why=why,
                permanent=True,
                remedy=_GANG_REMEDY,
                pdb=key,
                holds=True,
            )
        return Obstacle(
            reason=block.reason,
            why=block.why,
            permanent=True,
            remedy=block.remedy,
            pdb=key,
            holds=True,
        )
    if outcome is not None and outcome.kind is EvictionKind.PERMANENT and block is None:
        # The PDB object was changed since that answer: it is asked again.
        outcome = None
    if outcome is not None and outcome.kind in _WAITING:
        return _by_answer(outcome, block.why if block else "", block.remedy if block else "", key)
    if block is not None and (asked or outcome is not None):
        return Obstacle(
            reason=block.reason, why=block.why, permanent=False, remedy=block.remedy, pdb=key
        )
    return None


def _by_answer(outcome: EvictionOutcome, why: str, remedy: str, key: str) -> Obstacle:
    """The answer in words; the PDB object's numbers where there are some."""
    match outcome.kind:
        case EvictionKind.MISSING_PERMISSION:
            return Obstacle(
                reason="MissingPermission",
                why=outcome.message,
                permanent=True,
                remedy=outcome.remedy,
            )
        case EvictionKind.UNAUTHORIZED:
            return Obstacle(
                reason="MissingPermission",
                why="the API server does not know the remediator any more",
                permanent=False,
                remedy="check its service account and token",
            )
        case EvictionKind.API_BUSY:
            return Obstacle(
                reason="ApiBusy", why="the API server limits the remediator", permanent=False
            )
        case EvictionKind.UNKNOWN:
            return Obstacle(
                reason="NoAnswer",
                why="the API server gave no usable answer to the eviction",
                permanent=False,
            )
        case EvictionKind.REFUSED:
            return Obstacle(
                reason="EvictionRefused",
                why=f"the API server refused it: {outcome.message}",
                permanent=False,
                remedy="ask who runs the admission webhook",
            )
        case EvictionKind.NAMESPACE_ENDING:
            return Obstacle(
                reason="NamespaceEnding", why="its namespace is being deleted", permanent=False
            )
        case EvictionKind.IN_PROGRESS:
            return Obstacle(
                reason="EvictionInProgress",
                why=f"a webhook took it over: {outcome.message}",
                permanent=False,
            )
        case EvictionKind.BUDGET_STALE:
            return Obstacle(
                reason="BudgetStale",
                why="the PDB is new and was not computed yet",
                permanent=False,
                pdb=key,
            )
        case _:
            return Obstacle(
                reason="BudgetFull",
                why=why or "the PDB allows no eviction now",
                permanent=False,
                remedy=remedy,
                pdb=key,
            )


def grouped(
    obstacles: list[tuple[PodView, Obstacle]], owners: Mapping[str, OwnerView]
) -> tuple[BlockedBy, ...]:
    """One entry per PDB (or reason) and owner, permanent ones first, names bounded."""
    groups: dict[tuple[bool, str, str, str, str], list[str]] = {}
    for pod, obstacle in obstacles:
        owner = owner_name(pod, owners)
        key = (not obstacle.permanent, obstacle.pdb, owner, obstacle.why, obstacle.remedy)
        groups.setdefault(key, []).append(pod.key)
    entries = []
    for (for_now, pdb, owner, why, remedy), pods in sorted(groups.items()):
        names = tuple(sorted(pods))
        more = len(names) - _POD_NAMES
        entries.append(
            BlockedBy(
                pdb=pdb,
                pods=(*names[:_POD_NAMES], f"and {more} more") if more > 0 else names,
                owner=owner,
                why=why[:512],
                permanent=not for_now,
                remedy=remedy,
            )
        )
    return tuple(entries)


def owner_name(pod: PodView, owners: Mapping[str, OwnerView]) -> str:
    """The outermost known owner, as people call it: `Deployment team-a/trainer`."""
    controller = pod.metadata.controller
    if controller is None:
        return ""
    kind, name = controller.kind, controller.name
    for _ in range(5):
        view = owners.get(controller.uid)
        if view is None or view.metadata.controller is None:
            break
        controller = view.metadata.controller
        kind, name = controller.kind, controller.name
    return f"{kind} {pod.metadata.namespace}/{name}"


def worst_reason(obstacles: list[tuple[PodView, Obstacle]]) -> str:
    """The reason for the condition Blocked: a lasting one first, stable among equals."""
    if not obstacles:
        return ""
    chosen = min(obstacles, key=lambda entry: (not entry[1].permanent, entry[1].reason))
    return chosen[1].reason
