"""The disruption controller: numbers, conditions and failures of a PodDisruptionBudget."""

from typing import Any

import pytest

from hack.sim.cluster.controllers.disruption import (
    Scale,
    reconcile,
)
from tests.support.cluster.controller_objects import (
    NOW,
    ago,
    meta,
    owner,
    pod,
    status,
)

SET = owner("ReplicaSet")


def budget(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta("keep"),
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }


def scale_of(replicas: int) -> Any:
    return lambda pod: Scale(uid="set", replicas=replicas)


def pods(ready: int, unready: int = 0, terminating: int = 0) -> list[dict[str, Any]]:
    return (
        [pod(f"ready-{i}", SET) for i in range(ready)]
        + [pod(f"unready-{i}", SET, ready=False) for i in range(unready)]
        + [pod(f"going-{i}", SET, terminating=True) for i in range(terminating)]
    )


@pytest.mark.parametrize(
    ("spec", "there", "replicas", "want"),
    [
        pytest.param({"minAvailable": 2}, pods(3), 3, (1, 3, 2, 3), id="integer minimum"),
        pytest.param({"minAvailable": 3}, pods(3), 3, (0, 3, 3, 3), id="minimum is everything"),
        pytest.param(
            {"minAvailable": 2}, pods(2, 1), 3, (0, 2, 2, 3), id="an unready pod counts as out"
        ),
        pytest.param(
            {"minAvailable": 1}, pods(2, 0, 1), 3, (1, 2, 1, 3), id="terminating is not healthy"
        ),
        pytest.param(
            {"minAvailable": "50%"}, pods(3), 3, (1, 3, 2, 3), id="a percentage rounds up"
        ),
        pytest.param({"maxUnavailable": 1}, pods(4), 4, (1, 4, 3, 4), id="integer maximum"),
        pytest.param(
            {"maxUnavailable": "10%"}, pods(4), 4, (1, 4, 3, 4), id="10 % of 4 is one pod"
        ),
        pytest.param({"maxUnavailable": 0}, pods(4), 4, (0, 4, 4, 4), id="nobody may go"),
        pytest.param({"maxUnavailable": 1}, pods(4), 6, (0, 4, 5, 6), id="scale counts, not pods"),
        pytest.param({"minAvailable": 0}, [], 0, (0, 0, 0, 0), id="no pods, no disruption"),
    ],
)
def test_numbers(
    spec: dict[str, Any], there: list[Any], replicas: int, want: tuple[int, int, int, int]
) -> None:
    found = status(reconcile(budget(**spec), there, scale_of(replicas), NOW))
    assert (
        found["disruptionsAllowed"],
        found["currentHealthy"],
        found["desiredHealthy"],
        found["expectedPods"],
    ) == want
    (condition,) = found["conditions"]
    assert condition["reason"] == ("SufficientPods" if want[0] else "InsufficientPods")
    assert found["observedGeneration"] == 1


def test_an_evicted_pod_counts_out_until_it_terminates_or_two_minutes_pass() -> None:
    there = pods(4)
    stored = budget(minAvailable=2)
    stored["status"] = {"disruptedPods": {"ready-0": ago(30), "gone": ago(5)}}
    outcome = reconcile(stored, there, scale_of(4), NOW)
    assert status(outcome)["disruptedPods"] == {"ready-0": ago(30)}
    assert status(outcome)["disruptionsAllowed"] == 1
    assert outcome.again_in_s == 90

    stored["status"] = {"disruptedPods": {"ready-0": ago(121)}}
    outcome = reconcile(stored, there, scale_of(4), NOW)
    assert "disruptedPods" not in status(outcome)
    assert status(outcome)["disruptionsAllowed"] == 2
