"""Many agents that fall silent at once have one cause, and it is no GPU."""

from __future__ import annotations

import pytest

from rules.api.nodes import AgentPod
from rules.fleet.node_health import silent_together


def pods(*since: float | None) -> list[AgentPod]:
    """One per node: since when it is not Ready; None for one that is."""
    return [
        AgentPod(uid=f"u{i}", node=f"n{i}", ready=at is None, ready_changed_at=at or 0.0)
        for i, at in enumerate(since)
    ]


def test_agents_that_stopped_being_ready_at_once_are_one_sentence() -> None:
    said = silent_together(pods(1000.0, 1040.0, 1200.0, None))
    assert said.startswith("3 of 4 agents' pods stopped being Ready at about the same time")
    assert "the API server, the network or a rollout, not the GPUs" in said


def test_one_that_was_silent_before_hides_nothing() -> None:
    said = silent_together(pods(10.0, 9000.0, 9040.0, 9050.0))
    assert said.startswith("3 of 4 agents' pods")


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
def test_what_is_no_common_silence_is_told_node_by_node(since: tuple[float | None, ...]) -> None:
    assert silent_together(pods(*since)) == ""
