"""A node whose clock is wrong: `why` says which way, how far and what that means."""

from __future__ import annotations

import pytest

from rules.api.nodes import AgentPod
from tests.support.remediator.kubectl_looks import NAME, look, told
from tests.support.remediator.kubectl_objects import NOW, Object, ago, node, verdict

POD = AgentPod(uid="a", node=NAME, ready=True, ready_changed_at=NOW - 60)
IN_A_POD = {"pod": "gpuward/agent", "podUID": "a"}


def reported(dated: str, noted: str, *, manager: str = "kubelet") -> Object:
    """A node whose kubelet dated its report so; the API server noted its arrival."""
    found = node(NAME)
    found["status"]["conditions"][0]["lastHeartbeatTime"] = dated
    other = {"manager": "gpuward-agent", "subresource": "status", "time": ago(0)}
    entry = {"manager": manager, "operation": "Update", "subresource": "status", "time": noted}
    found["metadata"]["managedFields"] = [other, entry]
    return found


@pytest.mark.parametrize(
    ("on", "said"),
    [
        pytest.param(reported(ago(4), ago(4)), "", id="right"),
        pytest.param(reported(ago(5), ago(4)), "", id="as-clocks-are"),
        pytest.param(reported(ago(14), ago(4)), "10m behind the", id="behind"),
        pytest.param(reported(ago(-26), ago(4)), "30m ahead of the", id="ahead"),
        pytest.param(reported(ago(14), ago(4), manager="k3s"), "", id="theirs-and-others-time"),
        pytest.param(node(NAME), "", id="no-report"),
    ],
)
def test_walk_a_clock_that_is_wrong_is_said_which_way_and_how_far(on: Object, said: str) -> None:
    lines = told(look(verdict(NAME, publisher=IN_A_POD), on=on, agents=(POD,)))
    assert said in lines
    assert ("clock is" in lines) == bool(said)
