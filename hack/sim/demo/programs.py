"""The real programs of the demo: agents and the remediator as processes with their own log files.

An agent gets a folder: the simulated driver's node description, a file that stands for its
`/dev/kmsg`, and a log. Breaking a GPU is editing the description; a kernel line is one more record
in the file.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from hack.sim.driver.node import merge

DESCRIPTION = Path(__file__).resolve().parents[1] / "driver" / "nodes" / "h100-8-nvswitch.yaml"
KERN_ERR = 3


ANY_PORT = "127.0.0.1:0"
"""A loopback address that the system chooses when a program listens; its log has it."""


class Program:
    """One process of gpuward; its output goes to `log`."""

    def __init__(self, arguments: list[str], log: Path, environment: dict[str, str]) -> None:
        self._arguments = [
            sys.executable,
            "-m",
            "hack.sim.demo.tied",
            str(os.getpid()),
            *arguments,
        ]
        self._environment = {**os.environ, **environment}
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; its output is appended to the log."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int | None:
        """Of the process while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def ended(self) -> int | None:
        """Exit status once it ended by itself."""
        return None if self._process is None else self._process.poll()

    def tail(self, lines: int = 12) -> str:
        """Name and last lines of the log, for an operator who wonders what went wrong."""
        last = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n  ".join([f"{self.log.name}:", *last])

    def logged(self, name: str) -> Any:
        """The newest value of that name in its log; None before the first."""
        # The last line may be half written.
        lines = self.log.read_text(errors="replace").split("\n")[:-1]
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return next((one[name] for one in reversed(entries) if name in one), None)

    def stop(self, within_s: float = 8.0) -> None:
        """Ask it to end, and end it when it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


class DemoAgent:
    """A real agent on one simulated node."""

    def __init__(self, node: str, number: int, folder: Path, kubeconfig: Path, boot: str) -> None:
        self.node = node
        self._description = folder / f"{node}.yaml"
        self._kernel_log = folder / f"{node}.kmsg"
        self._sequence = 0
        self._started = time.monotonic()
        self._tree = _own_gpus(yaml.safe_load(DESCRIPTION.read_text()), number)
        self._write()
        self._boot_id = folder / f"{node}.boot"
        self._boot_id.write_text(f"{boot}\n")
        self._kernel_log.touch()
        self.program = Program(
            [
                "agent.cli", "run", "--kmsg", str(self._kernel_log),
                "--nvml", f"sim:{self._description}", "--dcgm", "off", "--udev", "off",
                "--kubeconfig", str(kubeconfig), "--node-name", node,
                "--listen", ANY_PORT,
            ],
            folder / f"{node}.log",
            {"GPUWARD_POLL": "1", "GPUWARD_BOOT_ID": str(self._boot_id)},
        )  # fmt: skip

    @property
    def uuids(self) -> list[str]:
        """The UUIDs of the node's GPUs, by index."""
        return [gpu["uuid"] for gpu in self._tree["gpus"]]

    def kernel_line(self, text: str) -> None:
        """The driver prints a line."""
        since_boot_us = int((time.monotonic() - self._started) * 1e6)
        with self._kernel_log.open("a") as log:
            log.write(f"{KERN_ERR},{self._sequence},{since_boot_us},-;{text}\n")
        self._sequence += 1

    def edit(self, change: dict[str, Any]) -> None:
        """Change the node's description: `{"gpus": {3: {"lost": True}}}`."""
        for position, fields in change.get("gpus", {}).items():
            self._tree["gpus"][position] = merge(self._tree["gpus"][position], fields)
        self._tree = merge(self._tree, {k: v for k, v in change.items() if k != "gpus"})
        self._write()

    def reboot(self, boot: str) -> None:
        """The machine starts again: a fresh kernel log in another boot."""
        self.program.stop()
        self._kernel_log.write_text("")
        self._sequence, self._started = 0, time.monotonic()
        self._boot_id.write_text(f"{boot}\n")
        self.program.start()

    def _write(self) -> None:
        partial = self._description.with_suffix(".partial")
        partial.write_text(yaml.safe_dump(self._tree, sort_keys=False))
        partial.rename(self._description)


def _own_gpus(tree: dict[str, Any], number: int) -> dict[str, Any]:
    """The description with UUIDs and serials no other node has."""
    for gpu in tree["gpus"]:
        gpu["uuid"] = re.sub(r"-[0-9a-f]{4}-", f"-{number:04x}-", gpu["uuid"], count=1)
        gpu["serial"] = str(int(gpu["serial"]) + number * 1000)
    return tree
