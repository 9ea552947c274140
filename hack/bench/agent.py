"""What the agent costs and how fast it is, measured on real processes.

    python -m hack.bench.agent [--seconds 120] [--samples 200] [--image] [--json]

Memory, CPU, wake-ups and page faults of the agent with 8 simulated GPUs and of the same agent with
`--nvml off`, in one run, the simulated driver's own share measured apart; start to first health
status with compiled files; kernel line to node condition. The API server is the simulated one, or
a real one where KUBEBUILDER_ASSETS names its programs. The kernel log is a FIFO in the format of
/dev/kmsg. Times are of this machine: compare columns, not runs.
"""

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent.publish.client import Kube, KubeError
from hack.bench.agent_processes import (
    ROOT,
    Memory,
    Use,
    image_bytecode,
    memory,
    simulator_kib,
    simulator_share,
    used,
)
from hack.sim.cluster.resource import NODES
from hack.sim.cluster.server import Hosted
from hack.sim.control_plane import ControlPlane, Setup, control_plane_in_thread
from hack.sim.driver import NODES as DESCRIPTIONS
from rules.api.kube_config import from_files

DEFINITIONS = ROOT / "daemonset" / "crds"
LINE = "NVRM: Xid (PCI:{pci}): 79, pid=1234, name=python, GPU has fallen off the bus."
SETTLE_S = 20.0
LINES_PER_AGENT = 50
"""An object holds 64 incidents: then another agent begins on another node."""
BETWEEN_LINES_S = 0.3
TIMEOUT_S = 30.0
STARTS = 9
"""Of each mode, in turns."""


@dataclass(slots=True)
class Bench:
    """All results; seconds unless a name has another unit."""

    control_plane: str = ""
    memory: dict[str, list[Memory]] = field(default_factory=dict)
    simulator_kib: int = 0
    simulator_share: float = 0.0
    use: dict[str, Use] = field(default_factory=dict)
    first_health_status_s: dict[str, list[float]] = field(default_factory=dict)
    """By mode: with `sim`, the simulated driver is loaded before the first health status, too."""
    line_to_condition_s: list[float] = field(default_factory=list)


class BenchedAgent:
    """One agent on its own node, with a kernel log to write to."""

    def __init__(self, plane: Hosted[ControlPlane], number: int, nvml: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gpuward-bench-"))
        self.node = f"bench-{number}"
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        plane.run(plane.value.client.create(NODES, body))
        fifo = self._folder / "kmsg"
        os.mkfifo(fifo)
        self._writer = os.open(fifo, os.O_RDWR)
        self._sequence = 0
        if nvml == "sim":
            description = self._folder / "node.yaml"
            description.write_bytes((DESCRIPTIONS / "h100-8-nvswitch.yaml").read_bytes())
            nvml = f"sim:{description}"
        self._command = [
            sys.executable, "-m", "agent.cli", "run", "--kmsg", str(fifo), "--nvml", nvml,
            "--udev", "auto", "--listen", "127.0.0.1:0", "--node-name", self.node,
            "--kubeconfig", str(plane.value.kubeconfig), "--log", "json",
        ]  # fmt: skip

    def start(self) -> None:
        """Start the process."""
        self._log = (self._folder / "log").open("wb")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(self._command, cwd=ROOT, stderr=self._log, env=environment)

    def print(self, text: str) -> None:
        """The driver prints a line."""
        self._sequence += 1
        os.write(self._writer, f"4,{self._sequence},1,-;{text}\n".encode())

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        os.close(self._writer)
        self._log.close()


class Conditions:
    """Watches the node's GPUHealthy condition."""

    def __init__(self, plane: Hosted[ControlPlane], node: str) -> None:
        config = from_files(plane.value.kubeconfig)
        self._kube = Kube(config, user_agent="gpuward-bench")
        self._node = node
        self._changes: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self._version = self._kube.node(node).metadata.resource_version
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        last = ""
        try:
            for _, node in self._kube.watch_node(self._node, self._version):
                for condition in node.status.conditions or ():
                    status_text = f"{condition.status} {condition.reason} {condition.message}"
                    if condition.type == "GPUHealthy" and status_text != last:
                        last = status_text
                        self._changes.put((time.monotonic(), status_text))
        except KubeError:
            # The control plane ends with the measurement.
            return

    def next(self) -> tuple[float, str]:
        """Return when the next change arrived, and its text."""
        return self._changes.get(timeout=TIMEOUT_S)

    def settled(self) -> None:
        """Wait until nothing has changed for a while."""
        while True:
            try:
                self._changes.get(timeout=1.0)
            except queue.Empty:
                return


@contextmanager
def running(
    plane: Hosted[ControlPlane], number: int, nvml: str
) -> Iterator[tuple[Any, Any, float]]:
    """A started agent, its node's conditions, and the seconds to its first health status."""
    agent = BenchedAgent(plane, number, nvml)
    conditions = Conditions(plane, agent.node)
    began = time.monotonic()
    agent.start()
    try:
        at, _ = conditions.next()
        yield agent, conditions, at - began
    finally:
        agent.end()


def measure_use(plane: Hosted[ControlPlane], bench: Bench, seconds: float) -> None:
    """Memory and CPU with simulated GPUs and without NVML."""
    for number, nvml in enumerate(("sim", "off")):
        with running(plane, number, nvml) as (agent, _, _):
            time.sleep(SETTLE_S)
            bench.use[nvml] = used(agent.process.pid, seconds)
            bench.memory[nvml] = memory(agent.process.pid)


def measure_start(plane: Hosted[ControlPlane], bench: Bench) -> None:
    """From starting the process to seeing its first condition in a watch."""
    for number in range(STARTS):
        for at, nvml in enumerate(("sim", "off"), start=1):
            with running(plane, at * 1000 + number, nvml) as (_, _, first_s):
                bench.first_health_status_s.setdefault(nvml, []).append(first_s)


def measure_latency(plane: Hosted[ControlPlane], bench: Bench, samples: int) -> None:
    """From writing a kernel line to seeing the changed condition in a watch."""
    number = 100
    while len(bench.line_to_condition_s) < samples:
        number += 1
        with running(plane, number, "sim") as (agent, conditions, _):
            conditions.settled()
            for slot in range(min(LINES_PER_AGENT, samples - len(bench.line_to_condition_s))):
                time.sleep(BETWEEN_LINES_S)
                began = time.monotonic()
                agent.print(LINE.format(pci=f"0000:{slot:02x}:1f"))
                at, _ = conditions.next()
                bench.line_to_condition_s.append(at - began)


def p99(values: list[float]) -> float:
    """The 99th percentile, the nearest measured value above it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)]


def report(bench: Bench) -> str:
    """Return the results and targets as a table."""
    pss = {mode: sum(each.pss_kib for each in found) for mode, found in bench.memory.items()}
    sim, off = bench.use["sim"], bench.use["off"]
    above = sim.share - off.share
    parts = ", ".join(f"{each.name} {each.pss_kib / 1024:.1f}" for each in bench.memory["sim"])
    latency = bench.line_to_condition_s
    start = {mode: statistics.median(found) for mode, found in bench.first_health_status_s.items()}
    rows = [
        ("measure", "result", "target"),
        ("memory, 8 simulated GPUs and the simulator", f"{pss['sim'] / 1024:.1f} MiB ({parts})",
         ""),
        ("of it the simulator's own", f"{bench.simulator_kib / 1024:.1f} MiB", ""),
        ("memory without the simulator", f"{(pss['sim'] - bench.simulator_kib) / 1024:.1f} MiB",
         "45 MiB"),
        ("memory, --nvml off", f"{pss['off'] / 1024:.1f} MiB", ""),
        ("CPU, 8 simulated GPUs and the simulator", f"{sim.share:.3%} of a core", ""),
        ("of it the simulated driver's answers", f"{bench.simulator_share:.3%} of a core", ""),
        ("CPU without the simulator", f"{sim.share - bench.simulator_share:.3%} of a core",
         "0.2 %"),
        ("CPU, --nvml off", f"{off.share:.3%} of a core", ""),
        ("CPU of NVML, without the simulator", f"{above - bench.simulator_share:.3%} of a core",
         ""),
        ("most CPU in 100 ms", f"{sim.longest_ms:.1f} ms", "50 ms"),
        ("wake-ups a minute, --nvml off", f"{sim.wake_ups:.0f}, {off.wake_ups:.0f}", ""),
        ("page faults a minute, --nvml off", f"{sim.minor_faults:.0f}, {off.minor_faults:.0f}",
         ""),
        ("of them from disk", f"{sim.major_faults:.0f}, {off.major_faults:.0f}", ""),
        (f"start to first health status, --nvml off, median of {STARTS}", f"{start['off']:.3f} s",
         "0.5 s"),
        ("the same, which loads the simulator first", f"{start['sim']:.3f} s", ""),
        (f"kernel line to condition, median of {len(latency)}",
         f"{statistics.median(latency) * 1e3:.1f} ms", ""),
        ("kernel line to condition, p99", f"{p99(latency) * 1e3:.1f} ms", "250 ms"),
        ("kernel line to condition, worst", f"{max(latency) * 1e3:.1f} ms", ""),
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([f"control plane: {bench.control_plane}", *lines])


def measured(seconds: float, samples: int) -> Bench:
    """All of it, one after the other."""
    bench = Bench()
    with control_plane_in_thread(Setup(manifests=(DEFINITIONS,))) as plane:
        bench.control_plane = "real" if plane.value.is_real else "simulated"
        measure_start(plane, bench)
        measure_latency(plane, bench, samples)
        measure_use(plane, bench, seconds)
    description = DESCRIPTIONS / "h100-8-nvswitch.yaml"
    bench.simulator_kib = simulator_kib(description)
    bench.simulator_share = simulator_share(description, seconds)
    return bench


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU is measured this long")
    parser.add_argument("--samples", type=int, default=200, help="kernel lines to time")
    parser.add_argument("--image", action="store_true", help="on the image's bytecode")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    with image_bytecode() if arguments.image else nullcontext():
        bench = measured(arguments.seconds, arguments.samples)
    print(json.dumps(asdict(bench)) if arguments.json else report(bench))


if __name__ == "__main__":
    main()
