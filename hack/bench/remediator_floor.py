"""The floor under `hack.bench.remediator`: the same evictions sent raw, by a process that decides
nothing.

    python -m hack.bench.remediator_floor KUBECONFIG < "NAMESPACE POD BUDGET" a line

One eviction is in flight per budget. The bench runs it as a process of its own on the same API
server, right after the remediator, so that both columns are of one machine in one state.
"""

import asyncio
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

from hack.sim.cluster.client import Client, HttpClient
from hack.sim.cluster.errors import ApiError

_AGAIN_S = 0.05
"""Retry period of a refused eviction: the disruption controller needs a moment."""


async def evictions(client: Client, lines: list[str]) -> list[float]:
    """When each eviction was granted."""
    call_queues: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in lines:
        namespace, name, budget = line.split()
        call_queues[budget].append((namespace, name))
    granted: list[float] = []

    async def call_queue(pods: list[tuple[str, str]]) -> None:
        for namespace, name in pods:
            while True:
                try:
                    await client.evict(namespace, name)
                except ApiError as error:
                    if error.code != 429:
                        raise
                    await asyncio.sleep(_AGAIN_S)
                    continue
                break
            granted.append(time.time())

    await asyncio.gather(*map(call_queue, call_queues.values()))
    return granted


async def _run(kubeconfig: Path, lines: list[str]) -> list[float]:
    async with HttpClient.from_kubeconfig(kubeconfig) as client:
        return await evictions(client, lines)


async def floor_of(kubeconfig: Path, lines: list[str]) -> float:
    """Seconds from the first answer to the last, sent by a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hack.bench.remediator_floor", str(kubeconfig)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate("\n".join(lines).encode())
    if process.returncode != 0:
        raise RuntimeError(f"the floor of evictions ended with {process.returncode}")
    answered = sorted(json.loads(output))
    return max(0.001, float(answered[-1] - answered[0]))


def main() -> int:
    """Evict the pods that standard input names; print when each was granted, as JSON."""
    pods = sys.stdin.read().splitlines()
    print(json.dumps(asyncio.run(_run(Path(sys.argv[1]), pods))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
