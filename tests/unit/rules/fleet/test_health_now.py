"""One answer to how a node's GPUs are, from whatever was read of it."""

from typing import Any

import msgspec
import pytest

from rules.api.health import HealthStatus, PublisherPod, SourceStatus
from rules.api.metadata import TimedMeta
from rules.api.nodes import AgentPod, HealthView, NodeView
from rules.api.timestamps import format_time
from rules.fleet.node_health import HealthNow, health_now, health_unread, silent_together
from rules.session.observation import Staleness

NOW = 1_700_000_000.0


def node(label: str = "healthy", boot: str = "b1") -> NodeView:
    raw = {
        "metadata": {"name": "n", "uid": "u", "labels": {"gpuward.io/health": label}},
        "spec": {},
        "status": {"nodeInfo": {"bootID": boot}},
    }
    return msgspec.convert(raw, NodeView)


def status(**changes: Any) -> HealthView:
    status = HealthStatus(
        health="Healthy", node_uid="u", boot_id="b1", publisher=PublisherPod(pod_uid="p")
    )
    return HealthView(
        metadata=TimedMeta(name="n"), status=msgspec.structs.replace(status, **changes)
    )


def pod(*, ready: bool = True) -> AgentPod:
    return AgentPod(uid="p", node="n", ready=ready, ready_changed_at=NOW - 60)


BEATS = PublisherPod(heartbeat=format_time(NOW - 60))
DOWN = (SourceStatus(name="nvml", state="Down"),)
STOPPED = PublisherPod(heartbeat=format_time(NOW - 6000))


@pytest.mark.parametrize(
    ("health", "agents", "value", "code"),
    [
        pytest.param(status(), [pod()], "Healthy", "", id="its agent lives"),
        pytest.param(status(health="Degraded"), [pod()], "Degraded", "", id="not the label"),
        pytest.param(status(), [pod(ready=False)], "Unknown", "AgentSilent", id="not Ready"),
        pytest.param(status(), [], "Unknown", "AgentSilent", id="its pod is gone"),
        pytest.param(status(publisher=BEATS), [], "Healthy", "", id="no pod, and it beats"),
        pytest.param(status(publisher=STOPPED), [], "Unknown", "AgentSilent", id="no beat"),
        pytest.param(status(boot_id="b0"), [pod()], "Unknown", "OtherBoot", id="of another boot"),
        pytest.param(status(node_uid="x"), [pod()], "Unknown", "OtherNode", id="of another node"),
        pytest.param(
            status(health="Unhealthy", sources=DOWN), [pod()], "Unhealthy", "AgentBlind",
            id="it has seen it go wrong",
        ),
        pytest.param(status(sources=DOWN), [pod()], "Unknown", "AgentBlind", id="it sees no GPU"),
        pytest.param(None, [pod()], "Unknown", "NoVerdict", id="no assessment"),
        pytest.param(status(health="<b>Fine"), [pod()], "Unknown", "", id="no value of gpuward"),
        pytest.param(status(), None, "Healthy", "", id="pods may not be read"),
        pytest.param(
            status(silent_since=format_time(NOW - 600)), None, "Unknown", "AgentSilent",
            id="pods may not be read, and the remediator reports it",
        ),
    ],
)  # fmt: skip
def test_a_health_status_counts_while_its_agent_is_alive(
    health: HealthView | None, agents: list[AgentPod] | None, value: str, code: str
) -> None:
    known = None if agents is None else {agent.uid: agent for agent in agents}
    found = health_now(node(), health, known, NOW)
    assert (found.value, found.code) == (value, code)
    assert bool(found.why) == bool(code)


def test_a_health_status_with_unreadable_parts_is_not_used() -> None:
    health = msgspec.structs.replace(status(), doubt="a field is no list")
    assert health_now(node(), health, {"p": pod()}, NOW).code == "VerdictUnreadable"


def test_without_the_node_the_health_status_and_its_agent_count() -> None:
    assert health_now(None, status(), {"p": pod()}, NOW) == HealthNow("Healthy")
    assert health_now(None, status(), {}, NOW).code == "AgentSilent"


@pytest.mark.parametrize(
    ("label", "pods", "value"),
    [
        ("healthy", [pod()], "Healthy"),
        ("healthy", [], "Healthy"),
        ("healthy", [pod(ready=False)], "Unknown"),
        ("healthy", [pod(ready=False), pod()], "Healthy"),
        ("unknown", [pod()], "Unknown"),
        ("fine; really", [pod()], "Unknown"),
        ("", [], "Unknown"),
    ],
)
def test_without_a_health_status_the_label_and_pods_count(
    label: str, pods: list[AgentPod], value: str
) -> None:
    found = health_unread(node(label), pods)
    assert found.value == value
    assert (found.why == Staleness.POD_NOT_READY) is (
        bool(pods) and not any(p.ready for p in pods)
    )


def pods(*since: float | None) -> list[AgentPod]:
    """One per node: since when it is not Ready; None for one that is."""
    return [
        AgentPod(uid=f"u{i}", node=f"n{i}", ready=at is None, ready_changed_at=at or 0.0)
        for i, at in enumerate(since)
    ]


def test_agents_that_stopped_being_ready_at_once_are_one_sentence() -> None:
    message = silent_together(pods(1000.0, 1040.0, 1200.0, None))
    assert message.startswith("3 of 4 agents' pods stopped being Ready at about the same time")
    assert "the API server, the network or a rollout, not the GPUs" in message


def test_one_that_was_silent_before_hides_nothing() -> None:
    message = silent_together(pods(10.0, 9000.0, 9040.0, 9050.0))
    assert message.startswith("3 of 4 agents' pods")


@pytest.mark.parametrize(
    "since",
    [
        pytest.param((), id="no agents"),
        pytest.param((None, None, None), id="all are ready"),
        pytest.param((1000.0, 1000.0), id="too few"),
        pytest.param((1000.0,) * 3 + (None,) * 4, id="less than half"),
        pytest.param((1000.0, 1010.0, 1400.0), id="one after the other"),
    ],
)
def test_unrelated_silences_are_reported_per_node(since: tuple[float | None, ...]) -> None:
    assert silent_together(pods(*since)) == ""
