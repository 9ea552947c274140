"""The health check script of docs/interop/workloads.md, with real health statuses and a fake
scontrol."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.driver import NODES as DESCRIPTIONS
from hack.sim.driver import set_gpu

REPOSITORY = Path(__file__).parents[3]


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class SlurmNode:
    """A machine with the script, a simulated driver and a scontrol that records its commands."""

    def __init__(self, folder: Path) -> None:
        page = (REPOSITORY / "docs" / "interop" / "workloads.md").read_text()
        self.folder = folder
        self.script = folder / "gpuward-check"
        self.script.write_text(page.split("```sh\n")[1].split("```")[0])
        self.script.chmod(0o755)
        self.description = folder / "node.yaml"
        self.description.write_bytes((DESCRIPTIONS / "h100-8-nvswitch.yaml").read_bytes())
        self.state("IDLE")
        program(folder, "logger", f'echo "$@" >> {folder}/logged')
        collectors = f"--kmsg=off --nvml=sim:{self.description}"
        self.agent(f'exec {sys.executable} -m agent.cli "$@" {collectors}')

    def agent(self, text: str) -> None:
        program(self.folder, "gpuward-agent", text)

    def state(self, state: str) -> None:
        sent = self.folder / "commands"
        shows = (
            f'case $2 in show) echo "NodeName=n1 State={state}" ;; *) echo "$@" >> {sent} ;; esac'
        )
        program(self.folder, "scontrol", shows.replace("case $2", 'case "${2:-}"'))

    def check(self) -> tuple[int, str, str]:
        environ = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "SLURMD_NODENAME": "n1",
        }
        done = subprocess.run([str(self.script)], env=environ, cwd=self.folder, check=False)
        return done.returncode, self._read("commands"), self._read("logged")

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> SlurmNode:
    return SlurmNode(tmp_path)


def test_a_healthy_node_is_left_alone(machine: SlurmNode) -> None:
    assert machine.check() == (0, "", "")


def test_an_unhealthy_node_is_drained_with_its_reason(machine: SlurmNode) -> None:
    set_gpu(machine.description, 2, remap={"failure": True})
    status, commands, _ = machine.check()
    assert status == 0
    assert commands == "update nodename=n1 state=drain reason=gpuward: RowRemapFailure\n"


def test_a_node_drained_by_an_operator_keeps_its_reason(machine: SlurmNode) -> None:
    set_gpu(machine.description, 2, remap={"failure": True})
    machine.state("IDLE+DRAIN")
    assert machine.check() == (0, "", "")


@pytest.mark.parametrize("status", [1, 3, 64, 127], ids=["degraded", "unknown", "usage", "absent"])
def test_a_degraded_node_is_not_drained(machine: SlurmNode, status: int) -> None:
    machine.agent(f"exit {status}")
    ended, commands, logged = machine.check()
    assert (ended, commands) == (0, "")
    assert f"n1: gpuward-agent check ended with {status}" in logged
