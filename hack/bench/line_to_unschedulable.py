"""Kernel line to node unschedulable, end to end: `python -m hack.bench.line_to_unschedulable`.

Real agents and a real remediator on the demo's simulated cluster. Each sample is another fault on
another GPU: a line is written to the agent's kernel log, the clock stops when a watch shows the
node unschedulable, then a person's release gives the node back. What comes within a minute on one
GPU, or with the same Xid on half of a node's GPUs, is one fault and was released with its first
line, so the samples come in rounds with a pause of a minute between them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hack.sim.demo.ledger import GPU_QUARANTINES, until
from hack.sim.demo.stage import Stage
from rules.catalog.thresholds import DEFAULT_RULES

POLICY = Path(__file__).with_suffix(".yaml")
ADDRESSES = (
    "0000:1b:00", "0000:43:00", "0000:52:00", "0000:61:00",
    "0000:9d:00", "0000:c3:00", "0000:d1:00", "0000:df:00",
)  # fmt: skip
WORDS = {
    46: "GPU stopped processing",
    62: "Internal micro-controller halt",
    79: "GPU has fallen off the bus.",
    95: "Uncontained ECC error",
    140: "Unrecovered ECC error",
}
ALONE = 3
"""GPUs of a node that have the same Xid at a time: less than half of them (`CommonCause`)."""
PAUSE_S = 1.1 * DEFAULT_RULES["CommonCauseWindow"].value
PATIENCE_S = 20.0
LOOK_S = 0.002


async def sample(stage: Stage, node: str, pci: str, xid: int) -> float:
    """Seconds from the line to the cordon seen in a watch; the node is given back afterwards."""
    ledger = stage.ledger
    line = f"NVRM: Xid (PCI:{pci}): {xid}, pid=4711, name=python3, {WORDS[xid]}"
    began = time.monotonic()
    stage.agents[node].kernel_line(line)
    while not ledger.nodes[node]["spec"].get("unschedulable"):
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"{node} was not cordoned for Xid {xid} on {pci}")
        await asyncio.sleep(LOOK_S)
    took_s = time.monotonic() - began
    session = ledger.session(node)
    # One that a person ends before its mark is on record counts as one that did nothing.
    while session is None or session.get("status", {}).get("phase", "Pending") == "Pending":
        await asyncio.sleep(LOOK_S)
        session = ledger.session(node)
    release = {"spec": {"release": {"by": "benchmark", "reason": "next sample"}}}
    await stage.server.client.patch(GPU_QUARANTINES, session["metadata"]["name"], release)
    if not await until(lambda: ledger.clean(node), within_s=PATIENCE_S):
        raise TimeoutError(f"{node} was not given back")
    return took_s


def rounds(nodes: Sequence[str]) -> list[list[tuple[int, str, str]]]:
    """Faults (Xid, GPU, node) that the agents take for one each: what is in one round goes
    together on no node, and each GPU has another Xid in each round.
    """
    xids, groups = tuple(WORDS), range(0, len(ADDRESSES), ALONE)
    return [
        [
            (xids[(number + group) % len(xids)], pci, node)
            for group, begin in enumerate(groups)
            for pci in ADDRESSES[begin : begin + ALONE]
            for node in nodes
        ]
        for number in range(len(xids))
    ]


async def measure(samples: int) -> list[float]:
    """That many samples, one after another, over nodes, GPUs and Xids."""
    async with Stage(nodes=24, policy_file=POLICY) as stage:
        took: list[float] = []
        for faults in rounds(stage.cast.with_agents):
            if took:
                await asyncio.sleep(PAUSE_S)
            for xid, pci, node in faults[: samples - len(took)]:
                took.append(await sample(stage, node, pci, xid))
                print(f"\r{len(took)}/{samples} samples", end="", file=sys.stderr)
            if len(took) == samples:
                break
        print(file=sys.stderr)
        return took


def main() -> int:
    """Measure and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200, help="at most 200 (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    took = sorted(asyncio.run(measure(min(options.samples, 200))))
    result = {
        "samples": len(took),
        "median_s": round(statistics.median(took), 4),
        "p99_s": round(took[max(0, -(-len(took) * 99 // 100) - 1)], 4),
        "worst_s": round(took[-1], 4),
    }
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:10} {value}" for name, value in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
