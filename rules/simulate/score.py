"""What a policy did to a fleet, counted: who was found and when, what was lost and to what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from rules.simulate.truth.kinds import EFFECTS, Kind


class Loss(StrEnum):
    """What GPU-hours are lost to."""

    FAULT = "fault"
    """Work that a fault destroyed, time on GPUs that do not work, jobs slowed by one of them."""
    DRAIN = "drain"
    """Work that an eviction destroyed, and nodes that are out without anybody repairing them."""
    REPAIR = "repair"
    """Nodes in the hands of people."""
    RESTART = "restart"
    """Jobs that start anew, whoever ended them."""


class Ended(StrEnum):
    """What ended an attempt of a job, or a replica."""

    FAULT = "fault"
    """The first that a fault hit: nothing but foresight avoids it."""
    FAULT_AGAIN = "the same fault again"
    """It was put on a node that was bad already."""
    DRAIN = "drain of a bad node"
    DRAIN_HEALTHY = "drain of a healthy node"
    PEOPLE = "people"


AVOIDABLE = frozenset({Ended.FAULT_AGAIN, Ended.DRAIN_HEALTHY})


@dataclass(slots=True)
class Score:
    """The counts of one run. GPU-hours in hours, delays in seconds."""

    nodes: int
    days: float
    faults: Counter[Kind] = field(default_factory=Counter)
    found: Counter[Kind] = field(default_factory=Counter)
    delays: dict[Kind, list[float]] = field(default_factory=dict)
    taken: int = 0
    """How often the policy took a node."""
    wrong: int = 0
    """So often nothing was wrong with it."""
    wrong_drains: int = 0
    """So often pods of such a node were told to go, or would have been."""
    needless: int = 0
    """So often work could have gone on: the fault was no terminal one."""
    lost: dict[Loss, float] = field(default_factory=lambda: dict.fromkeys(Loss, 0.0))
    ended: Counter[Ended] = field(default_factory=Counter)
    evictions: int = 0
    refused: int = 0
    """Evictions that a budget refused."""
    bypassed: int = 0
    """Pods that were deleted past a budget that would have refused."""
    most_out: int = 0
    """Nodes that the policy had taken at once, at the most."""
    budget_h: float = 0.0
    """Hours that nodes waited because of the budget or a rate."""
    breaker_h: float = 0.0
    """Hours that the breaker was open while somebody waited."""
    correlated: int = 0
    """Sessions that waited because several nodes showed the same at once."""
    by_people: int = 0
    """Nodes that people had to take because the policy did not."""
    records: int = 0
    """GPURecords at once, at the most."""
    record_writes: int = 0
    record_bytes: int = 0
    """Of the largest record."""

    @property
    def terminal(self) -> tuple[int, int]:
        """(terminal faults, those of them that the policy took the node for)."""
        kinds = [kind for kind in self.faults if EFFECTS[kind].terminal]
        return sum(self.faults[k] for k in kinds), sum(self.found[k] for k in kinds)

    @property
    def interruptions(self) -> int:
        """Attempts of jobs, and replicas, that were ended."""
        return sum(self.ended.values())

    @property
    def avoidable(self) -> int:
        """Those of them that a perfect policy would have avoided."""
        return sum(self.ended[how] for how in AVOIDABLE)
