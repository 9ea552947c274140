"""The Job controller: every ended pod is counted once, failures follow the policy."""

from typing import Any

import pytest

from hack.sim.cluster.controllers import job as jobs
from hack.sim.cluster.controllers.job import TRACKING_FINALIZER
from tests.support.cluster.controller_objects import (
    NOW,
    created,
    owner,
    patched,
    pod,
    status,
    with_new_status,
)

IGNORE_DISRUPTION = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}
FAIL_ON_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}


def job(**spec: Any) -> dict[str, Any]:
    return owner("Job", api="batch/v1", **spec)


def tracked(name: str, of: dict[str, Any], **more: Any) -> Any:
    return pod(name, of, finalizers=[TRACKING_FINALIZER], **more)


def exited(code: int) -> list[dict[str, Any]]:
    return [{"name": "main", "state": {"terminated": {"exitCode": code}}}]


def test_an_ended_pod_is_counted_once_in_two_steps() -> None:
    stored = job(completions=2, parallelism=1)
    done = tracked("a", stored, phase="Succeeded", ready=False)

    first = jobs.reconcile(stored, [done], NOW)
    assert status(first)["uncountedTerminatedPods"] == {"succeeded": [done["metadata"]["uid"]]}
    assert "succeeded" not in status(first)
    assert patched(first) == []

    stored = with_new_status(stored, first)
    second = jobs.reconcile(stored, [done], NOW)
    assert patched(second) == [("a", {"metadata": {"finalizers": None}})]

    done["metadata"]["finalizers"] = []
    third = jobs.reconcile(stored, [done], NOW)
    assert status(third)["succeeded"] == 1
    assert status(third)["uncountedTerminatedPods"] == {}
    assert jobs.reconcile(with_new_status(stored, third), [done], NOW).writes[0] != third.writes[0]


def settle(stored: dict[str, Any], pods: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """Look until nothing but creations is wanted; applies statuses and finalizer removals."""
    for _ in range(10):
        outcome = jobs.reconcile(stored, pods, NOW)
        changed = False
        for name, patch in patched(outcome):
            for entry in pods:
                if entry["metadata"]["name"] == name:
                    entry["metadata"]["finalizers"] = patch["metadata"]["finalizers"] or []
                    changed = True
        try:
            stored = with_new_status(stored, outcome)
            changed = True
        except ValueError:
            pass
        if not changed:
            return stored, outcome
    raise AssertionError("the Job never settles")


def condition_reasons(stored: dict[str, Any]) -> dict[str, str]:
    return {entry["type"]: entry["reason"] for entry in stored["status"].get("conditions") or []}


@pytest.mark.parametrize(
    ("spec", "conditions", "code", "failed", "ends"),
    [
        pytest.param({"backoffLimit": 0}, [], 1, 1, "BackoffLimitExceeded", id="limit exceeded"),
        pytest.param({"backoffLimit": 1}, [], 1, 1, None, id="a retry is left"),
        pytest.param(
            {"backoffLimit": 0, "podFailurePolicy": IGNORE_DISRUPTION},
            ["DisruptionTarget"],
            143,
            None,
            None,
            id="an eviction does not count",
        ),
        pytest.param(
            {"backoffLimit": 0, "podFailurePolicy": IGNORE_DISRUPTION},
            [],
            143,
            1,
            "BackoffLimitExceeded",
            id="a plain deletion counts",
        ),
        pytest.param(
            {"backoffLimit": 9, "podFailurePolicy": FAIL_ON_42},
            [],
            42,
            1,
            "PodFailurePolicy",
            id="an exit code that fails the Job",
        ),
    ],
)
def test_failures(
    spec: dict[str, Any],
    conditions: list[str],
    code: int,
    failed: int | None,
    ends: str | None,
) -> None:
    stored = job(completions=1, parallelism=1, **spec)
    gone = tracked("a", stored, phase="Failed", ready=False, containerStatuses=exited(code))
    gone["status"]["conditions"] += [{"type": kind, "status": "True"} for kind in conditions]
    stored, outcome = settle(stored, [gone])
    assert stored["status"].get("failed") == failed
    assert condition_reasons(stored).get("Failed") == ends
    assert len(created(outcome)) == (0 if ends else 1)
