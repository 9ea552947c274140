"""The table that people see: what fits, what is left out, what is never cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.commands.check_table import columns, fitting, plain_text, rich_text
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


def titles(found: HealthStatus, width: int | None) -> list[str]:
    return [column.title for column in fitting(columns(found), width)]


def test_what_all_gpus_share_is_said_once() -> None:
    text = plain_text(status(*EIGHT), "n1")
    assert "8 x NVIDIA H100 80GB HBM3, nvswitch, driver 580.95.05\n" in text
    assert text.count("H100") == 1
    mixed = (*EIGHT[:7], GpuStatus(index=7, product="NVIDIA H200"))
    assert titles(status(*mixed), None)[:4] == ["GPU", "PCI", "PRODUCT", "SERIAL"]


def test_mig_is_a_column_where_it_is_on() -> None:
    assert "MIG" not in titles(status(*EIGHT), None)
    found = status(gpu(0, mig_mode="Enabled"), gpu(1, mig_mode="Disabled"))
    (mig,) = (column for column in columns(found) if column.title == "MIG")
    assert mig.cells == ("on", "-")


@pytest.mark.parametrize("show", [plain_text, rich_text])
@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(
    show: object, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    found = status(*EIGHT)
    text = plain_text(found, "n1", width) if show is plain_text else rich_text(found, "n1")
    table = text.split("\n\n")[2].splitlines()
    said = "left out to fit; | cat shows: SERIAL"
    assert table[9:] == ([said] if width == 80 else [])
    assert all(len(line) <= width for line in table)
    assert ("SERIAL" in table[0]) == (width == 120), "what says least makes room"
    assert text.count(REASON) == 3, "what says most is never cut"


def test_a_terminal_too_narrow_for_anything_still_gets_everything_that_matters() -> None:
    assert titles(status(*EIGHT), 20) == ["GPU", "PCI", "HEALTH", "REASON", "DRIVER ASKS FOR"]


@pytest.mark.parametrize("show", [plain_text, rich_text])
def test_incidents_and_senses_are_told_below(
    show: Callable[[HealthStatus, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = show(status(*EIGHT), "n1")
    lines = text.splitlines()
    at = lines.index(f"Degraded {REASON} on GPU 5 (0000:15:00.0), since 2026-11-21 13:52:25 UTC")
    assert lines[at + 1] == "  recommended: ResetGPU"
    assert lines[at + 2] == "  a line \\x1b[31m of the kernel"
    assert lines[-3:] == [
        "seen through: kernel-log",
        "down: nvml (CallHung)",
        "not here: dcgm-exporter (Off)",
    ]


def test_a_node_without_gpus_has_no_table() -> None:
    assert "PCI" not in plain_text(status(), "n1")
