"""One look at the machine: exit status, table and JSON, for each health."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kernel_log_parts import XID79, record

from agent.cli import main
from hack.sim.driver import NODES, set_gpu
from hack.sim.driver.store import load


class Machine:
    """A simulated node and its kernel log."""

    def __init__(self, folder: Path) -> None:
        self.description = folder / "node.yaml"
        self.description.write_bytes((NODES / "h100-8-nvswitch.yaml").read_bytes())
        self.kernel_log = folder / "kmsg"
        self.kernel_log.touch()

    def pci(self, index: int) -> str:
        gpus: list[dict[str, Any]] = load(self.description)["gpus"]
        return str(gpus[index]["pci"]).lower().removesuffix(".0")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def look(machine: Machine, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    arguments = ["check", f"--kmsg={machine.kernel_log}", f"--nvml=sim:{machine.description}"]
    status = main([*arguments, *flags])
    return status, capsys.readouterr().out


def test_a_healthy_machine(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = look(machine, capsys)
    lines = out.splitlines()
    assert status == 0
    assert lines[0].endswith(": Healthy (AllChecksPassing)")
    assert lines[1] == "All checks pass on 8 GPUs."
    assert sum("NVIDIA H100" in line for line in lines) == 8
    assert "kernel-log: Up" in lines
    assert "dcgm-exporter: Absent (Off)" in lines


def test_a_failed_remap_is_unhealthy(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    set_gpu(machine.description, 2, remap={"failure": True})
    status, out = look(machine, capsys, "--json")
    found = json.loads(out)
    assert status == 2
    assert (found["health"], found["reason"]) == ("Unhealthy", "RowRemapFailure")
    assert [gpu["health"] for gpu in found["gpus"]].count("Unhealthy") == 1
    assert "publisher" not in found


def test_an_old_xid_on_a_gpu_that_is_well_is_history(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.kernel_log.write_bytes(record(1, XID79.replace("0000:3b:00", machine.pci(0))))
    status, _ = look(machine, capsys)
    assert status == 0


def test_an_old_xid_on_a_gpu_that_is_lost_is_a_fault(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    set_gpu(machine.description, 0, lost=True)
    machine.kernel_log.write_bytes(record(1, XID79.replace("0000:3b:00", machine.pci(0))))
    status, out = look(machine, capsys)
    assert status == 2
    assert XID79.replace("0000:3b:00", machine.pci(0)) in out


def test_control_characters_of_a_kernel_line_do_not_reach_the_terminal(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    set_gpu(machine.description, 0, lost=True)
    text = XID79.replace("0000:3b:00", machine.pci(0)).replace("python", "\x1b[31mred")
    machine.kernel_log.write_bytes(record(1, text))
    _, out = look(machine, capsys)
    assert "\x1b" not in out


def test_without_any_sense_of_the_gpus_it_is_unknown(
    machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has an NVIDIA driver")
    status = main(["check", f"--kmsg={machine.kernel_log}", "--nvml=real", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == 3
    assert found["health"] == "Unknown"


def test_without_driver_and_kernel_log_nothing_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["check", "--kmsg=off", "--nvml=off"])
    assert status == 3
    assert "(NoSenseWorks)" in capsys.readouterr().out
