"""What `gpuward-agent check` prints for people."""

from __future__ import annotations

from agent.commands.check import plain_text
from rules.api.health import GpuStatus, HealthStatus, IncidentStatus, SourceStatus, Topology

REASON = "RecoveryActionDrainAndReset"


def gpu(index: int, **more: object) -> GpuStatus:
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


def status(*gpus: GpuStatus) -> HealthStatus:
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


EIGHT = tuple(gpu(index, reason=REASON if index == 5 else "") for index in range(8))


TEXT = """\
n1: Degraded (RecoveryActionDrainAndReset)
GPU 5 wants to be drained and reset.

2 x NVIDIA H100 80GB HBM3, nvswitch, driver 580.95.05

GPU  PCI           MIG  HEALTH   REASON                       DRIVER ASKS FOR
0    0000:10:00.0  on   Healthy  -                            None
5    0000:15:00.0  -    Healthy  RecoveryActionDrainAndReset  None

Degraded RecoveryActionDrainAndReset on GPU 5 (0000:15:00.0), since 2026-11-21 13:52:25 UTC
  recommended: ResetGPU
  a line \\x1b[31m of the kernel

seen through: kernel-log
down: nvml (CallHung)
not here: dcgm-exporter (Off)
"""


def test_gpus_are_a_table_with_incidents_and_sources_below() -> None:
    found = status(gpu(0, mig_mode="Enabled"), gpu(5, reason=REASON))
    assert plain_text(found, "n1") == TEXT


def test_the_product_is_a_column_where_gpus_differ() -> None:
    text = plain_text(status(gpu(0), GpuStatus(index=7, product="NVIDIA H200")), "n1")
    assert "2 x GPU, nvswitch" in text
    assert "GPU  PCI           PRODUCT" in text


def test_a_node_without_gpus_has_no_table() -> None:
    assert "PCI" not in plain_text(status(), "n1")
