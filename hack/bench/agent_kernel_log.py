"""How many kernel log records the agent's reader takes per CPU second.

    python -m hack.bench.agent_kernel_log [--rounds 300] [--json]

Reads this machine's own ring through /dev/kmsg again and again, with the daemon's reader, one read
per record: what the ring holds decides how many records are worth parsing, and is printed. Nothing
is written. Needs the right to read /dev/kmsg.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

from agent.kernel_log.device import KmsgDevice
from agent.kernel_log.record import RecordCounts, Sieve
from rules.judge.observation import KernelRead

DEVICE = Path("/dev/kmsg")


def read_again(rounds: int) -> tuple[RecordCounts, float]:
    """Counts and CPU seconds of reading the whole ring this often."""
    left = rounds
    done = threading.Event()

    def read(fd: int, size: int) -> bytes:
        nonlocal left
        try:
            return os.read(fd, size)
        except BlockingIOError:
            left -= 1
            if left <= 0:
                raise
            os.lseek(fd, 0, os.SEEK_SET)
            return os.read(fd, size)

    def sink(fact: object) -> None:
        if isinstance(fact, KernelRead):
            done.set()

    counts = RecordCounts()
    sieve = Sieve(
        boot_id="bench",
        accept_user=False,
        counts=counts,
    )
    before = time.process_time()
    reader = KmsgDevice(str(DEVICE), sieve, sink, read=read)
    reader.start()
    done.wait()
    spent = time.process_time() - before
    reader.close()
    return counts, spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=300, help="how often the ring is read")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    if not os.access(DEVICE, os.R_OK):
        sys.exit(f"{DEVICE} cannot be read here: run as root on a machine that has it.")
    counts, spent = read_again(arguments.rounds)
    rate = counts.read / spent
    worth = counts.recognised + counts.refused
    if arguments.json:
        print(json.dumps({"records_per_cpu_second": rate, "records": counts.read, "worth": worth}))
    else:
        print(f"{rate:,.0f} records per CPU second (target 400,000)")
        print(f"{counts.read:,} records read, {worth:,} of them lines of interest")


if __name__ == "__main__":
    main()
