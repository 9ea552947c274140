"""What an act of the demo is and what it comes to, and what several acts ask of the stage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hack.sim.demo.stage import Stage

LATENCY_TARGET_S = 1.0
"""From a kernel line to a node that takes no more pods."""
PATIENCE_S = 60.0
"""Ten programs share what cores there are: on a busy machine a session takes half a minute."""
STEP_S = 1.5
"""Between two steps of what grows worse over time."""
DWELL_S = 6.0
"""How long something must stay untouched before "untouched" is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Kernel line to unschedulable, and how much of it the programs waited for a core."""

    whole_s: float
    waited_s: float

    @property
    def quick(self) -> bool:
        """The programs kept the promise, whatever else this machine does."""
        return self.whole_s - self.waited_s < LATENCY_TARGET_S

    def __str__(self) -> str:
        """`716 ms`, with what the machine made of it where that matters."""
        whole = f"{self.whole_s * 1000:.0f} ms"
        if self.whole_s < LATENCY_TARGET_S:
            return whole
        return f"{whole}, {min(self.waited_s, self.whole_s) * 1000:.0f} of them for a core"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a fault, and how soon where that is the promise."""

    true: bool
    text: str
    path: str
    latency: Latency | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One fault: when it arrives, what is expected, and the play itself."""

    name: str
    title: str
    expected: str
    at_s: float
    play: Callable[[Stage], Awaitable[Outcome]]


def phase(stage: Stage, node: str) -> str:
    """Where the node's session stands."""
    return str(stage.ledger.status(node).get("phase") or "no session")


def active(stage: Stage, node: str, reason: str) -> bool:
    """Whether the node says so now."""
    return any(i["reason"] == reason and i.get("active") for i in stage.ledger.incidents(node))


def reasons(stage: Stage, node: str) -> str:
    """Everything the node says now."""
    found = {i["reason"] for i in stage.ledger.incidents(node) if i.get("active")}
    return ", ".join(sorted(found)) or "nothing"
