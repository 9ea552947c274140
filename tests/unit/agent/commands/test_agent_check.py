"""`gpuward-agent check`: exit status, table and JSON for each health."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main
from agent.commands.check import Pending, plain_text
from agent.settings import add_options, settings_of
from hack.sim.driver import NODES, set_gpu
from hack.sim.driver.store import load
from rules.api.health import GpuStatus, HealthStatus, IncidentStatus, SourceStatus, Topology
from rules.judge.observation import (
    GpuSeen,
    HostSeen,
    Inventory,
    Readings,
    SourceChanged,
    SourceName,
    SourceState,
    TopologySeen,
)
from tests.support.agent.http_answers import exporter
from tests.support.agent.kernel_log_parts import XID79, record


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


def check(machine: Machine, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    arguments = ["check", f"--kmsg={machine.kernel_log}", f"--nvml=sim:{machine.description}"]
    status = main([*arguments, *flags])
    return status, capsys.readouterr().out


def test_a_healthy_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = check(Machine(tmp_path), capsys)
    lines = out.splitlines()
    assert status == 0
    assert lines[0].endswith(": Healthy (AllChecksPassing)")
    assert lines[1] == (
        "All checks pass on 8 GPUs (kernel log, presence, recovery action, memory, heat, PCIe,"
        " NVLink, fabric)."
    )
    assert lines[3] == "8 x NVIDIA H100 80GB HBM3, nvswitch, driver 580.95.05"
    assert [line.split()[0] for line in lines[6:14]] == list("01234567")
    assert lines[-2:] == [
        "data sources up: host, kernel-log, nvml, pci",
        "not available: dcgm-exporter (Off), pod-resources (Off), udev (Off)",
    ]


def test_a_host_without_visible_processes_is_absent(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--kmsg=off", "--nvml=off"])
    output = capsys.readouterr().out.splitlines()[-2:]
    seen = any(line.startswith("data sources up: host") for line in output)
    assert seen is not any("host (ProcessesOutOfSight)" in line for line in output)


def test_a_failed_remap_is_unhealthy(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    set_gpu(machine.description, 2, remap={"failure": True})
    status, out = check(machine, capsys, "--json")
    found = json.loads(out)
    assert status == 2
    assert (found["health"], found["reason"]) == ("Unhealthy", "RowRemapFailure")
    assert [gpu["health"] for gpu in found["gpus"]].count("Unhealthy") == 1
    assert "publisher" not in found


def test_an_old_xid_on_a_gpu_that_is_well_is_history(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.kernel_log.write_bytes(record(1, XID79.replace("0000:3b:00", machine.pci(0))))
    status, _ = check(machine, capsys)
    assert status == 0


def test_an_old_xid_on_a_gpu_that_is_lost_is_a_fault(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    set_gpu(machine.description, 0, lost=True)
    machine.kernel_log.write_bytes(record(1, XID79.replace("0000:3b:00", machine.pci(0))))
    status, out = check(machine, capsys)
    assert status == 2
    assert XID79.replace("0000:3b:00", machine.pci(0)) in out


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param((), (3, "Unknown", "Absent"), id="no GPU here"),
        pytest.param(("--expected-gpus=8",), (3, "Unknown", "Down"), id="eight should be here"),
        pytest.param(("--kmsg=off",), (3, "Unknown", "Absent"), id="no kernel log either"),
    ],
)
def test_without_driver_and_library(
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    expected: tuple[int, str, str],
) -> None:
    if Path("/proc/driver/nvidia/version").exists() or not Path("/sys/bus/pci/devices").exists():
        pytest.skip("this machine has an NVIDIA driver, or no PCI bus to look at")
    arguments = ["check", f"--kmsg={machine.kernel_log}", "--nvml=real", "--json", *flags]
    status = main(arguments)
    found = json.loads(capsys.readouterr().out)
    states = {source["name"]: source["state"] for source in found["sources"]}
    assert (status, found["health"], states["nvml"]) == expected


def test_a_gpu_lost_before_the_check_is_listed_by_its_address(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    set_gpu(machine.description, 3, lost=True)
    status, out = check(machine, capsys)
    assert status == 2
    (row,) = (line for line in out.splitlines() if f"{machine.pci(3)}  " in line)
    assert row.split()[-3:] == ["Unhealthy", "GPULost", "-"]
    assert sum(" Healthy " in line for line in out.splitlines()) == 7


def test_heat_is_confirmed_by_more_readings(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    set_gpu(machine.description, 1, clock_events=["hw_thermal"])
    status, out = check(machine, capsys)
    assert status == 1
    assert "ThermalSlowdown" in out


def test_what_only_an_exporter_sees_is_confirmed_by_another_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = b'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-1"} 1\n'

    with exporter(lambda sent: sent.write(page)) as url:
        status = main(["check", "--kmsg=off", "--nvml=off", f"--dcgm={url}"])
    assert status == 2
    assert "RowRemapFailure" in capsys.readouterr().out


def test_an_unconfirmed_fatal_line_of_a_file_is_shown_as_unknown(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.kernel_log.write_bytes(record(1))
    status = main(["check", f"--kmsg={machine.kernel_log}", "--nvml=off"])
    out = capsys.readouterr().out
    assert status == 3
    assert "The kernel log shows Xid 79 (GPUFallenOffBus)" in out
    assert "No data source can confirm that it persists." in out


def test_a_log_in_another_format_is_refused(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.kernel_log.write_text(f"[    2.5] {XID79}\n")
    assert main(["check", f"--kmsg={machine.kernel_log}", "--nvml=off"]) == 64
    assert "use gpuward-agent decode" in capsys.readouterr().err


def test_a_log_without_access_is_a_source_down(
    capsys: pytest.CaptureFixture[str],
) -> None:
    too_long = "/" + "k" * 300
    status = main(["check", f"--kmsg={too_long}", "--nvml=off", "--json"])
    sources = {each["name"]: each for each in json.loads(capsys.readouterr().out)["sources"]}
    assert (sources["kernel-log"]["state"], sources["kernel-log"]["reason"]) == (
        "Down",
        "CannotOpen",
    )
    assert status == 3


def test_a_check_ends_when_no_source_is_pending(machine: Machine) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, {}, collectors_only=True)
    settings = settings_of(parser.parse_args(["--nvml=sim:x"]), {})
    gpu = GpuSeen(index=0, uuid="GPU-0", pci="0000:10:00.0")
    read = Readings(at=0.0, gpu="GPU-0", values={})
    joined = TopologySeen(at=0.0, gpus=("GPU-0",), links=(("X",),))
    looks: list[list[Inventory | Readings | TopologySeen]] = [
        [Inventory(at=0.0, driver="580.1")],
        [Inventory(at=0.0, driver="580.1", gpus=(gpu,)), read, joined],
    ]
    for heard in looks:
        looking = Pending(settings)
        for source in (SourceName.KERNEL_LOG, SourceName.PCI):
            looking.received(SourceChanged(at=0.0, source=source, state=SourceState.ABSENT))
        looking.received(HostSeen(at=0.0))
        for fact in heard:
            assert not looking.done
            looking.received(fact)
        assert looking.done


def test_the_exit_status_stays_if_the_result_cannot_be_printed(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "agent.cli", "check", "--kmsg=off", "--nvml=off"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, stdout=full, check=False).returncode == 3
    output = capfd.readouterr().err.splitlines()
    assert len(output) == 1
    assert "Free some space" in output[0]


def test_a_closed_pipe_keeps_the_exit_status(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "agent.cli", "check", "--kmsg=off", "--nvml=off"]
    with os.fdopen(writer, "w") as closed:
        assert subprocess.run(command, stdout=closed, check=False).returncode == 3
    assert capfd.readouterr().err == ""


REASON = "RecoveryActionDrainAndReset"


def gpu_status(index: int, **more: object) -> GpuStatus:
    return GpuStatus(
        uuid=f"GPU-{index}",
        index=index,
        pci=f"0000:1{index}:00.0",
        serial=f"165402301000{index}",
        product="NVIDIA H100 80GB HBM3",
        health="Healthy",
        recovery_action="None",
        **more,  # type: ignore[arg-type]
    )


def status_of(*gpus: GpuStatus) -> HealthStatus:
    return HealthStatus(
        health="Degraded",
        reason=REASON,
        message="GPU 5 wants to be drained and reset.",
        driver_version="580.95.05",
        gpus=gpus,
        topology=Topology(interconnect="nvswitch"),
        sources=(
            SourceStatus(name="dcgm-exporter", state="Absent", reason="Off"),
            SourceStatus(name="kernel-log", state="Up"),
            SourceStatus(name="nvml", state="Down", reason="CallHung"),
        ),
        incidents=(
            IncidentStatus(
                id="1",
                reason=REASON,
                severity="Degraded",
                recommended_action="ResetGPU",
                gpus=("GPU-5",),
                active=True,
                first_seen="2026-11-21T13:52:25.000001Z",
                evidence=("a line \x1b[31m of the kernel",),
            ),
        ),
    )


TEXT = """\
n1: Degraded (RecoveryActionDrainAndReset)
GPU 5 wants to be drained and reset.

2 x NVIDIA H100 80GB HBM3, nvswitch, driver 580.95.05

GPU  PCI           MIG  HEALTH   REASON                       RECOVERY ACTION
0    0000:10:00.0  on   Healthy  -                            None
5    0000:15:00.0  -    Healthy  RecoveryActionDrainAndReset  None

Degraded RecoveryActionDrainAndReset on GPU 5 (0000:15:00.0), since 2026-11-21 13:52:25 UTC
  recommended: ResetGPU
  a line \\x1b[31m of the kernel

data sources up: kernel-log
data source down: nvml (CallHung)
not available: dcgm-exporter (Off)
"""


def test_gpus_are_a_table_with_incidents_and_sources_below() -> None:
    found = status_of(gpu_status(0, mig_mode="Enabled"), gpu_status(5, reason=REASON))
    assert plain_text(found, "n1") == TEXT


def test_the_product_is_a_column_where_gpus_differ() -> None:
    text = plain_text(status_of(gpu_status(0), GpuStatus(index=7, product="NVIDIA H200")), "n1")
    assert "2 x GPU, nvswitch" in text
    assert "GPU  PCI           PRODUCT" in text


def test_a_node_without_gpus_has_no_table() -> None:
    assert "PCI" not in plain_text(status_of(), "n1")
