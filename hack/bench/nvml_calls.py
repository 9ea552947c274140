"""How long each NVML call takes on this machine, as a markdown table.

    python -m hack.bench.nvml_calls [--nvml real|sim:FILE] [--hours 1] [--json]

It makes every call that the agent makes in so many hours of polling (240 fast, 60 medium and 1
slow polls of each GPU an hour), one after the other without the waits between them, through the
agent's own poller and `pynvml`. Nothing is written to a GPU. CPU is that of this process: with
`real` the driver's own time in the kernel is in it, with `sim:` the simulator's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pynvml

from agent.nvml.inventory import Caller, Failed, Gpu, enumerate_gpus
from agent.nvml.messages import Tier
from agent.nvml.poller import Poller
from agent.nvml.schedule import PERIODS_S
from hack.sim.driver import install
from hack.sim.record.reading import ReadError, initialised
from rules.catalog.signals import driver_branch

HOUR_S = 3600.0
WRONG_USE = 64


class TimedCaller(Caller):
    """The agent's way into the driver, with a clock beside it. `tier` is who asks now."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.tier = "start"
        self.seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.failed: dict[tuple[str, str], int] = defaultdict(int)

    def __call__(
        self, symbol: str, function: Callable[..., Any], *arguments: Any, gpu: str = ""
    ) -> Any:
        """The call, timed."""
        began = time.perf_counter()
        result = super().__call__(symbol, function, *arguments, gpu=gpu)
        key = (symbol, self.tier)
        self.seconds[key].append(time.perf_counter() - began)
        self.failed[key] += isinstance(result, Failed)
        return result


def measure(hours: float) -> tuple[TimedCaller, dict[str, Any]]:
    """Enumerate and poll; the timings, and what was measured."""
    call = TimedCaller()
    driver = pynvml.nvmlSystemGetDriverVersion()
    branch = driver_branch(driver) or 0
    gpus = [gpu for gpu in enumerate_gpus(call, []) if gpu.handle is not None]
    poller = Poller(call, branch)
    began_s, cpu_s = time.monotonic(), time.process_time()
    for step in range(max(1, round(hours * HOUR_S / PERIODS_S[Tier.FAST]))):
        at = step * PERIODS_S[Tier.FAST]
        for tier in Tier:
            if at % PERIODS_S[tier] == 0:
                _poll(call, poller, gpus, tier, at)
    facts = {
        "driver": driver,
        "gpus": [gpu.device.product for gpu in gpus],
        "hours": hours,
        "wall_s": round(time.monotonic() - began_s, 3),
        "cpu_s": round(time.process_time() - cpu_s, 3),
    }
    return call, facts


def _poll(call: TimedCaller, poller: Poller, gpus: list[Gpu], tier: Tier, at: float) -> None:
    call.tier = tier.name.lower()
    for gpu in gpus:
        poller.poll(gpu, tier, at)


def rows(call: TimedCaller) -> list[dict[str, Any]]:
    """One row for each call and tier, the most expensive in all first."""
    found = [
        {
            "call": symbol,
            "asked": tier,
            "count": len(seconds),
            "failed": call.failed[symbol, tier],
            "median_us": round(statistics.median(seconds) * 1e6, 1),
            "p99_us": round(_percentile(seconds, 0.99) * 1e6, 1),
            "worst_us": round(max(seconds) * 1e6, 1),
            "total_ms": round(sum(seconds) * 1e3, 2),
        }
        for (symbol, tier), seconds in call.seconds.items()
    ]
    return sorted(found, key=lambda row: -row["total_ms"])


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def table(facts: dict[str, Any], found: list[dict[str, Any]]) -> str:
    """The markdown table and a line of what it is about."""
    products = ", ".join(sorted(set(facts["gpus"]))) or "no GPU"
    share = facts["cpu_s"] / (facts["hours"] * HOUR_S)
    about = (
        f"{len(facts['gpus'])} x {products}, driver {facts['driver']}; {facts['hours']:g} hours "
        f"of polling in {facts['wall_s']:g} s, {facts['cpu_s']:g} s of CPU ({share:.3%} of a "
        "core)."
    )
    lines = [
        about,
        "",
        "| call | asked | count | failed | median us | p99 us | worst us | total ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(str(cell) for cell in row.values()) + " |" for row in found]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or one JSON object with `--json`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nvml", default="real", help="real or sim:FILE (real)")
    parser.add_argument("--hours", type=float, default=1.0, help="hours of polling (1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            if options.nvml != "real":
                stack.enter_context(install(options.nvml.removeprefix("sim:")))
            stack.enter_context(initialised())
            call, facts = measure(options.hours)
    except ReadError as error:
        print(f"nvml_calls: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"nvml_calls: {' '.join(str(error).split())[:300]}", file=sys.stderr)
        return WRONG_USE
    found = rows(call)
    print(json.dumps({**facts, "calls": found}) if options.json else table(facts, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
