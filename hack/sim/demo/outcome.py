"""What an act of the demo is and what it comes to, and what several acts ask of the stage.

The promised second is about the programs: where they wait for busy cores, it is the machine that
is late. Linux counts for each thread how long it could have run and did not; elsewhere nothing is
taken off.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from hack.sim.demo.ledger import until
from hack.sim.demo.stage import Stage

LATENCY_TARGET_S = 1.0
"""From a kernel line to a node that takes no more pods."""
TIMEOUT_S = 60.0
"""Ten programs share what cores there are: on a busy machine a session takes half a minute."""
STEP_S = 1.5
"""Between two steps of what grows worse over time."""
DWELL_S = 6.0
"""How long something must stay untouched before "untouched" is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Kernel line to unschedulable, and how much of it the programs waited for a core."""

    total_s: float
    waited_s: float

    @property
    def quick(self) -> bool:
        """The programs kept the promise, whatever else this machine does."""
        return self.total_s - self.waited_s < LATENCY_TARGET_S

    def __str__(self) -> str:
        """`716 ms`, with what the machine made of it where that matters."""
        total = f"{self.total_s * 1000:.0f} ms"
        if self.total_s < LATENCY_TARGET_S:
            return total
        return f"{total}, {min(self.waited_s, self.total_s) * 1000:.0f} of them for a core"


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
    """Whether the node reports it now."""
    return any(i["reason"] == reason and i.get("active") for i in stage.ledger.incidents(node))


def reasons(stage: Stage, node: str) -> str:
    """The node's current state."""
    found = {i["reason"] for i in stage.ledger.incidents(node) if i.get("active")}
    return ", ".join(sorted(found)) or "nothing"


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Started when a fault arrives at a node with an agent."""

    stage: Stage
    node: str
    began: float
    waited_s: float

    @classmethod
    def start(cls, stage: Stage, node: str) -> Stopwatch:
        """From now on."""
        return cls(stage, node, time.monotonic(), waited_s(_pids(stage, node)))

    async def unschedulable(self) -> Latency | None:
        """Wait until the node is; None when nobody made it so."""
        at = self.stage.ledger.unschedulable_at
        if not await until(lambda: self.node in at, within_s=TIMEOUT_S):
            return None
        waited = waited_s(_pids(self.stage, self.node)) - self.waited_s
        return Latency(total_s=at[self.node] - self.began, waited_s=waited)


def _pids(stage: Stage, node: str) -> list[int]:
    """Whom a fault passes: its node's agent, the server (here), the remediator."""
    programs = (stage.agents[node].program.pid, stage.remediator.pid)
    return [os.getpid(), *(pid for pid in programs if pid is not None)]


def waited_s(pids: list[int]) -> float:
    """Seconds for which threads of these processes could have run and had no core, so far."""
    waited_ns = 0
    for pid in pids:
        for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            # A thread may end meanwhile.
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited_ns += int(schedstat.read_text(encoding="ascii").split()[1])
    return waited_ns / 1e9
