"""After a reboot the old fault is not repeated as news before anybody has looked."""

from __future__ import annotations

from rules.api.health import HealthStatus, IncidentStatus, PublisherPod, SourceStatus
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.health_object import Identity, publish
from rules.judge.health_status import assess
from rules.judge.judge import judge
from rules.judge.observation import SourceChanged, SourceName, SourceState
from rules.judge.restore import restore

NOW = 1_760_000_000.0
LOST = IncidentStatus(
    id="79", reason="Xid79GPUFallenOffBus", klass="Decisive", severity="Fatal", level="Drain",
    recommended_action="RestartNode", pci=("0000:61:00",), xids=(79,), active=True,
    first_seen="2025-10-09T08:00:00.000000Z", closes_on="Reboot",
)  # fmt: skip
BEFORE = HealthStatus(
    publisher=PublisherPod(pod="gpuward/agent", pod_uid="1"),
    node_uid="node",
    boot_id="old",
    incidents=(LOST,),
    sources=(SourceStatus(name="nvml", state="Up"),),
)


def sources(status: HealthStatus) -> dict[str, tuple[str, str]]:
    return {source.name: (source.state, source.reason) for source in status.sources}


def published(boot: str, *, nvml_up: bool, later_s: float = 0.0) -> HealthStatus:
    state = restore(BEFORE, NOW, boot_id=boot, node_uid="node")
    if nvml_up:
        up = SourceChanged(at=NOW, source=SourceName.NVML, state=SourceState.UP, reason="")
        state, _ = judge(state, up, NOW, DEFAULT_RULES)
    now = NOW + later_s
    return publish(
        state, assess(state, now), now, Identity(agent_version="1", rules_version="1")
    ).status


def test_a_new_boot_counts_as_unseen_until_the_gpus_answered() -> None:
    """The remediator takes no verdict whose GPU view is Down, so nothing drains anew."""
    for nvml_up in (False, True):
        assert sources(published("new", nvml_up=nvml_up))["nvml"] == ("Down", "Starting")


def test_the_grace_ends() -> None:
    """A driver that never answers does not hide the fault for ever."""
    assert sources(published("new", nvml_up=True, later_s=31))["nvml"] == ("Up", "")


def test_the_same_boot_goes_on_as_it_was() -> None:
    """A rollout of the agent turns no node to Unknown."""
    assert sources(published("old", nvml_up=False))["nvml"] == ("Up", "")
