"""What runs on the fleet: training jobs over whole nodes, and services with a replica per node.

The simulation's words; as the API server would show them, `rules.simulate.cluster.objects` builds
pods and budgets of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

GPUS_PER_NODE: Final = 8
CHECKPOINT_S: Final = 3600.0
"""A job saves its state each hour (assumed); what came after is lost with it."""
RESTART_S: Final = 600.0
"""From placement to work: images, collectives, loading the checkpoint. Source: 5 to 20 min
(arXiv:2410.21680)."""
GRACE_S: Final = 30.0
"""What a pod takes to end after its eviction (Kubernetes' default)."""


class Guard(StrEnum):
    """The budget that protects a workload."""

    NONE = "None"
    ONE_AT_A_TIME = "OneAtATime"
    """maxUnavailable 1."""
    ALL = "All"
    """minAvailable as many as there are: nobody may ever be evicted."""


@dataclass(slots=True, eq=False)
class Workload:
    """A job or a service. A job that runs has a node for each of its pods, or waits."""

    name: str
    size: int
    service: bool
    guard: Guard = Guard.NONE
    work_s: float = 0.0
    """Of a job: how much is left to do."""
    nodes: list[str] = field(default_factory=list)
    before: tuple[str, ...] = ()
    """Where it ran last: it goes there again if it can."""
    attempt: int = 0
    works_from: float = 0.0
    """When this attempt begins to make progress."""
    speed: float = 1.0
    done_s: float = 0.0
    """Progress of this attempt until `since`."""
    since: float = 0.0

    def progress(self, now: float) -> float:
        """Seconds of work done in this attempt."""
        return self.done_s + max(0.0, now - max(self.since, self.works_from)) * self.speed

    def change_speed(self, speed: float, now: float) -> None:
        """From now on it goes at another pace."""
        self.done_s = self.progress(now)
        self.since = now
        self.speed = speed


@dataclass(slots=True, eq=False)
class Pod:
    """One pod, alone on its node."""

    name: str
    uid: str
    node: str
    owner: Workload
    started_at: float
    deleted_at: float | None = None
    """When its grace ends."""

    @property
    def terminating(self) -> bool:
        """Whether it was told to go."""
        return self.deleted_at is not None
