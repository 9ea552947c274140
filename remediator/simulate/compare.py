"""`gpuward-remediator simulate --compare-trace FILE`: is the generated fleet like a real one?

Says how far the generator is from a recorded trace, number by number. It knows no more of the
trace than how many nodes and days it stands for.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from rules.simulate.truth.generator import node_names, outages
from rules.simulate.truth.measures import Distance, distances, measure
from rules.simulate.truth.trace import TraceError, read_trace
from rules.text.counted import count

TRACE_NODES = 200
"""How many servers a half of the public trace stands for, those that never failed included."""
SEEDS = 200
_MAX_BYTES = 64 * 1024 * 1024


def compare(path: Path, nodes: int, seeds: int, *, as_json: bool) -> str:
    """The distances as text; TraceError with a sentence where the file is of no use."""
    trace = read_trace(_bytes_of(path))
    failed = len({one.node for one in trace})
    if nodes < failed:
        raise TraceError(f"{path}: {failed} nodes failed in it; say --nodes {failed} or more")
    days = float(math.ceil(max(one.end for one in trace)))
    names = node_names(nodes)
    made = [
        measure(outages(random.Random(seed), names, days), nodes, days) for seed in range(seeds)
    ]
    found = distances(measure(trace, nodes, days), made, nodes, days)
    if as_json:
        return json.dumps([_as_json(one) for one in found], indent=2) + "\n"
    made_of = f"{count(len(trace), 'fault')} of {count(nodes, 'node')} in {days:.0f} days"
    head = f"{made_of}, against {count(seeds, 'seed')}\n\n"
    return head + _table(found)


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        why = f"{path}: cannot be read ({error.strerror}); name a readable file"
        raise TraceError(why) from None
    if len(data) > _MAX_BYTES:
        raise TraceError(f"{path}: is larger than 64 MiB; a trace of a year is below one")
    return data


def _as_json(one: Distance) -> dict[str, object]:
    return {
        "what": one.what,
        "trace": round(one.trace, 4),
        "generated": round(one.middle, 4),
        "lowest": round(one.lowest, 4),
        "highest": round(one.highest, 4),
        "apart": round(one.apart, 4),
        "allowed": one.allowed,
        "points": one.points,
        "within": one.within,
        "covered": one.covered,
        "traceFaults": one.faults,
    }


def _table(found: list[Distance]) -> str:
    lines = [
        f"{'':52}{'trace':>9}{'made':>9}{'of all seeds':>20}{'apart':>9}{'allowed':>9}",
    ]
    for one in found:
        span = f"{one.lowest:.2f} to {one.highest:.2f}"
        unit = " pt" if one.points else " %"
        said = "" if one.within else ("  too far, by chance" if one.covered else "  too far")
        few = f" ({one.faults})" if one.faults is not None else ""
        lines.append(
            f"{one.what + few:52}{one.trace:9.2f}{one.middle:9.2f}{span:>20}"
            f"{one.apart * 100:+7.0f}{unit:2}{one.allowed * 100:6.0f}{unit:2}{said}".rstrip()
        )
    held = sum(one.within for one in found)
    said = (
        f"{held} of {len(found)} are within what is allowed. `made` is the mean of the seeds for a"
        " rate, else their\nmedian; in brackets the faults that a rate rests on. By chance: single"
        " seeds lie on both sides of the trace."
    )
    return "\n".join([*lines, "", said]) + "\n"
