"""Health, reason and message without an incident."""

import pytest
from msgspec.structs import replace

from rules.catalog.signals import Signal
from rules.judge.health_status import Health, assess, view_problem
from rules.judge.messages import unknown_sentence
from rules.judge.observation import GpuSeen, SourceName, SourceState
from rules.judge.state import GpuView, NodeState, SourceView, initial

NOW = 1_700_000_000.0


def state(
    nvml: SourceState | None,
    reason: str = "",
    *,
    dcgm: SourceState | None = None,
    gpus: int = 2,
    presence: str = "present",
) -> NodeState:
    sources = {
        name: SourceView(state=reported, reason=reason)
        for name, reported in ((SourceName.NVML, nvml), (SourceName.DCGM, dcgm))
        if reported is not None
    }
    views = {
        f"GPU-{n}": GpuView(
            seen=GpuSeen(uuid=f"GPU-{n}", index=n, pci=f"0000:1{n}:00"),
            enumerated=True,
            values={Signal.PRESENCE: presence},
        )
        for n in range(gpus)
    }
    return replace(initial(NOW - 7200), sources=sources, gpus=views, inventory_at=float(gpus))


UP, DOWN, ABSENT, RELEASED = SourceState


@pytest.mark.parametrize(
    ("node", "health", "reason"),
    [
        pytest.param(state(UP), "Healthy", "AllChecksPassing", id="all well"),
        pytest.param(state(None), "Unknown", "Starting", id="not spoken"),
        pytest.param(state(UP, gpus=0), "Unknown", "Starting", id="not enumerated"),
        pytest.param(state(DOWN, "CallHung"), "Unknown", "CallHung", id="hung"),
        pytest.param(state(DOWN), "Unknown", "NVMLDown", id="no reason given"),
        pytest.param(state(RELEASED), "Healthy", "AllChecksPassing", id="released"),
        pytest.param(state(ABSENT), "Unknown", "OnlyKernelLog", id="kernel log only"),
        pytest.param(state(ABSENT, dcgm=UP), "Healthy", "AllChecksPassing", id="dcgm"),
        pytest.param(state(ABSENT, dcgm=DOWN), "Unknown", "DCGMDown", id="dcgm down"),
        pytest.param(state(UP, dcgm=DOWN), "Healthy", "AllChecksPassing", id="dcgm down"),
        pytest.param(state(UP, presence="lost"), "Unknown", "NoGPUAnswers", id="none answers"),
    ],
)
def test_the_health_status_by_data_sources_alone(
    node: NodeState, health: str, reason: str
) -> None:
    judged = assess(node, NOW)
    assert (judged.health, judged.reason) == (health, reason)
    assert judged.message.endswith(".")
    if judged.health is Health.UNKNOWN:
        assert judged.gpus_healthy is None


@pytest.mark.parametrize(("seconds", "reason"), [(899, "WaitingForDriver"), (900, "DriverAbsent")])
def test_the_boot_grace_is_a_quarter_of_an_hour(seconds: float, reason: str) -> None:
    node = state(DOWN, "DriverAbsent")
    young = replace(node, node=replace(node.node, booted_at=NOW - seconds))
    assert view_problem(young, NOW) == reason


def test_only_an_absent_driver_has_a_grace() -> None:
    node = state(DOWN, "NoAccess")
    young = replace(node, node=replace(node.node, booted_at=NOW - 10))
    assert view_problem(young, NOW) == "NoAccess"


def test_a_reason_without_a_message_gets_a_default() -> None:
    assert unknown_sentence("Whatever").startswith("GPU health is unknown (Whatever).")
