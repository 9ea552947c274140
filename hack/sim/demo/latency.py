"""How long a fault took to reach its node, and how much of that went to waiting for a core.

The promise is about the programs: where all of them wait for two busy cores, it is the machine
that is late. Linux counts for each thread how long it could have run and did not; where it does
not, nothing is taken off.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from hack.sim.demo.ledger import until
from hack.sim.demo.outcome import PATIENCE_S, Latency
from hack.sim.demo.stage import Stage


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
        if not await until(lambda: self.node in at, within_s=PATIENCE_S):
            return None
        waited = waited_s(_pids(self.stage, self.node)) - self.waited_s
        return Latency(whole_s=at[self.node] - self.began, waited_s=waited)


def _pids(stage: Stage, node: str) -> list[int]:
    """Whom a fault passes: its node's agent, the server (here), the remediator."""
    programs = (stage.agents[node].program.pid, stage.remediator.pid)
    return [os.getpid(), *(pid for pid in programs if pid is not None)]


def waited_s(pids: list[int]) -> float:
    """Seconds for which threads of these processes could have run and had no core, so far."""
    waited_ns = 0
    for pid in pids:
        for told in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            # A thread may end meanwhile.
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited_ns += int(told.read_text(encoding="ascii").split()[1])
    return waited_ns / 1e9
