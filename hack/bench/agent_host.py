"""What a look at a host with many processes costs the agent, beside the same look by psutil.

    python -m hack.bench.agent_host [--processes 5000] [--looks 5] [--json]

Starts so many sleeping processes, looks at them as the daemon does once a minute, and ends them.
It needs the host's process numbers: elsewhere a look ends at once. CPU time of the looking thread
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from agent.senses.host import host_processes
from hack.bench.agent_processes import BURST_WINDOW_S

LOOKS_PER_SECOND = 1 / 60


@contextmanager
def crowd(count: int) -> Iterator[None]:
    """So many processes that sleep."""
    command = ["sleep", "3600"]
    numbers = [os.posix_spawnp(command[0], command, os.environ) for _ in range(count)]
    try:
        yield
    finally:
        for number in numbers:
            os.kill(number, signal.SIGKILL)
        for number in numbers:
            os.waitpid(number, 0)


def spent_ms(look: Callable[[], object], looks: int) -> tuple[float, float]:
    """CPU of one look, the least of several, and the most within one burst window."""
    least, longest = float("inf"), 0.0
    for _ in range(looks):
        thread = threading.Thread(target=look)
        clock = time.process_time
        begin = before = clock()
        thread.start()
        while thread.is_alive():
            thread.join(BURST_WINDOW_S)
            longest, before = max(longest, clock() - before), clock()
        least = min(least, before - begin)
    return least * 1e3, longest * 1e3


def by_psutil() -> int:
    """The same two words of each process, the usual way."""
    return sum(bool(each.info["status"]) for each in psutil.process_iter(["name", "status"]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--processes", type=int, default=5000, help="how many sleep beside us")
    parser.add_argument("--looks", type=int, default=5, help="the cheapest of so many counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    if host_processes() is None:
        sys.exit("The host's processes are out of sight here: run outside of a container.")
    with crowd(arguments.processes):
        seen = len(psutil.pids())
        ours, burst = spent_ms(host_processes, arguments.looks)
        theirs, _ = spent_ms(by_psutil, arguments.looks)
    if arguments.json:
        print(
            json.dumps(
                {"processes": seen, "look_ms": ours, "burst_ms": burst, "psutil_ms": theirs}
            )
        )
        return
    share = ours / 1e3 * LOOKS_PER_SECOND
    print(f"{seen:,} processes: {ours:.1f} ms a look, once a minute {share:.3%} of a core")
    print(f"most CPU in 100 ms: {burst:.1f} ms; the same look by psutil: {theirs:.1f} ms")


if __name__ == "__main__":
    main()
