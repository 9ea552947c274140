"""What a simulated cluster is made of: a policy, a process's memory, and what was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remediator.kube.refusals import Refusals
from rules.api.repair.writes import ObjectQuery
from rules.drain import queue as pdb_queue
from rules.drain.memory import DrainMemory
from rules.drain.plan import DrainPlan
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.repair.judging import ObjectSeen


@dataclass(frozen=True, slots=True)
class Said:
    """One change of what a session says."""

    at: float
    node: str
    phase: str
    message: str


def policy_of(**sections: Any) -> Policy:
    """An Enforce policy with the given sections, through the strict reader."""
    loaded = load_policy({"mode": "Enforce", **sections})
    assert isinstance(loaded, Policy), loaded
    return loaded


ROOMY = {
    "maxUnavailable": {"percent": 100, "atMost": 1000},
    "maxNew": {"count": 1000, "window": "10m"},
    "perReason": {"count": 1000, "window": "24h"},
}
"""A budget that is in nobody's way, for scenarios about something else."""


@dataclass
class Controller:
    """What one process holds in memory; a crash or restart makes a new one."""

    refusals: Refusals
    queue: pdb_queue.PdbQueue = field(default_factory=pdb_queue.PdbQueue)
    memories: dict[str, DrainMemory] = field(default_factory=dict)
    plans: dict[str, DrainPlan] = field(default_factory=dict)
    listed: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """By session: whether its drained node is looked at closely, and when it is listed again."""
    active_at: dict[str, float] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    external_seen: dict[str, Mapping[str, float]] = field(default_factory=dict)
    objects: dict[ObjectQuery, ObjectSeen] = field(default_factory=dict)
    """What was read of repair providers' objects."""

    def read(self, query: ObjectQuery, seen: ObjectSeen) -> None:
        """Keep it as the edge does: since when reading fails is known here only."""
        before = self.objects.get(query)
        if seen.failing_since is not None and before is not None and before.failing_since:
            seen = replace(seen, failing_since=before.failing_since)
        self.objects[query] = seen
