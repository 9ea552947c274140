"""Check that a description replays: read it through the simulated driver and correct differences.

Called by the recorder. If the simulator would answer a call that failed on the real GPU, the real
code is added to the description. Remaining differences are reported.
"""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agent.nvml.inventory import Absent, Value
from agent.nvml.poller import CALLS, FIELDS, applies
from hack.sim.driver import install
from hack.sim.record.reading import GpuRead, NodeRead, initialised, read_node
from rules.catalog.signals import Signal

BATCH = "nvmlDeviceGetFieldValues"


class Difference(NamedTuple):
    """A signal of one GPU with different values on the node and in the simulator."""

    gpu: int
    signal: Signal
    node: Value | None
    simulated: Value | None


def replayed(path: Path, document: dict[str, Any]) -> NodeRead:
    """Write the document to `path` and return what the simulated driver reads from it."""
    path.write_text(yaml.safe_dump(document, sort_keys=False, width=150), encoding="utf-8")
    with install(path), initialised():
        return read_node()


def correct(document: dict[str, Any], node: NodeRead, simulated: NodeRead) -> list[Difference]:
    """Add the node's return codes to the document and return the remaining differences."""
    left = []
    for row, (real, other) in enumerate(zip(node.gpus, simulated.gpus, strict=True)):
        for signal in sorted({*real.values, *other.values}):
            found = Difference(row, signal, real.values.get(signal), other.values.get(signal))
            if found.node == found.simulated:
                continue
            if not isinstance(found.node, Absent) or not _write_code(
                document["gpus"][row], real, node.branch, signal, found.node.code
            ):
                left.append(found)
    return left


def _write_code(
    description: dict[str, Any], read: GpuRead, branch: int, signal: Signal, code: int
) -> bool:
    """Add the code for the signal's own field or call; return False if it has none."""
    architecture = read.gpu.device.architecture or 0
    for field in FIELDS:
        if field.signal is signal and applies(field, branch, architecture):
            description.setdefault("errors", {})[field.constant] = code
            return True
    for call in CALLS:
        if signal in call.signals and applies(call, branch, architecture) and call.symbol != BATCH:
            together = {read.values.get(one) for one in call.signals}
            if len(together) == 1:
                description.setdefault("errors", {})[call.symbol] = code
                return True
    return False
