"""What an act of the demo is and what it comes to, and what several acts ask of the stage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hack.sim.demo.stage import Stage

PATIENCE_S = 25.0
STEP_S = 1.5
"""Between two steps of what grows worse over time."""
DWELL_S = 6.0
"""How long something must stay untouched before "untouched" is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a fault. `latency_s` is kernel line to unschedulable where that is the
    promise.
    """

    true: bool
    text: str
    path: str
    latency_s: float | None = None


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
