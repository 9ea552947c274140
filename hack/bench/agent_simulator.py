"""What of the NVML child's CPU is the simulated driver's own: it answers in Python, inside the
child.

    python -m hack.bench.agent_simulator FILE

Runs the agent's NVML child on a node description, as `agent.nvml.child` does, with a clock around
every call into the simulated library; ends when standard input closes, and says on standard error
how much CPU the process used and how much of it was spent in there. `hack.bench.agent` calls it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from hack.bench.agent_processes import ROOT

POLL_S = 15.0
SETTLE_S = 10.0
"""The first reading of everything is not counted: it is made once in a life."""
_CLOCK_SAMPLES = 10_000


def simulator_share(description: Path, seconds: float) -> float:
    """The simulated driver's share of one core over so many seconds of a child's life."""
    child = subprocess.Popen(
        [sys.executable, "-m", "hack.bench.agent_simulator", str(description)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(SETTLE_S + seconds)
    _, said = child.communicate(timeout=60)
    found = json.loads(said.splitlines()[-1])
    return float(found["simulator_s"] / found["lived_s"])


def _clocked() -> list[int]:
    """Put a clock around every call; the list holds the nanoseconds and the calls so far."""
    from hack.sim.driver.library import SimulatedLibrary

    spent = [0, 0]
    look_up = SimulatedLibrary.__getattr__
    clock = time.thread_time_ns

    def __getattr__(library: SimulatedLibrary, name: str) -> Any:  # noqa: N807 - replaces it
        entry = look_up(library, name)

        def timed(*arguments: Any) -> int:
            began = clock()
            try:
                return entry(*arguments)
            finally:
                spent[0] += clock() - began
                spent[1] += 1

        return timed

    SimulatedLibrary.__getattr__ = __getattr__  # type: ignore[method-assign]  # measured
    return spent


def _clock_ns() -> float:
    """What one look at the clock costs."""
    clock = time.thread_time_ns
    began = clock()
    for _ in range(_CLOCK_SAMPLES):
        clock()
    return (clock() - began) / _CLOCK_SAMPLES


def main() -> int:
    """Live as the child until standard input closes."""
    from agent.nvml import child

    spent, since = _clocked(), [0.0, 0]

    def begin() -> None:
        since[:] = time.monotonic(), time.process_time_ns()
        spent[:] = 0, 0

    threading.Timer(SETTLE_S, begin).start()
    status = child.main(f"sim:{sys.argv[1]}", POLL_S)
    began_s, began_ns = since
    print(
        json.dumps(
            {
                "lived_s": time.monotonic() - began_s,
                "cpu_s": (time.process_time_ns() - began_ns) / 1e9,
                "simulator_s": max(0.0, spent[0] - spent[1] * _clock_ns()) / 1e9,
                "calls": spent[1],
            }
        ),
        file=sys.stderr,
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
