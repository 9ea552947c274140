"""Which pods leave and which stay."""

from __future__ import annotations

from typing import Any

import pytest

from rules.api.pods import PodView
from rules.api.timestamps import format_time, parse_time
from rules.catalog.why_not import WhyNot
from rules.drain.fate import Fate, Moment, fate_of
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.scenario.drain_objects import pod

NOW = parse_time("2026-01-01T01:00:00Z") or 0.0


def owned(version: str, kind: str) -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": True}
    return {"ownerReferences": [reference]}


def judged(target: PodView, *, severity: str = "Fatal", missing: str = "", **policy: Any) -> Any:
    loaded = load_policy(policy)
    assert isinstance(loaded, Policy)
    at = Moment(now=NOW, started_at=NOW - 60, severity=severity, policy=loaded)
    return fate_of(target, frozenset({missing}), at)


@pytest.mark.parametrize(
    ("target", "fate", "why"),
    [
        pytest.param(pod(), Fate.EVICT, "", id="ordinary"),
        pytest.param(
            pod(metadata=owned("apps/v1", "DaemonSet")), Fate.STAYS, "DaemonSet", id="ds"
        ),
        pytest.param(
            pod(metadata=owned("apps.kruise.io/v1alpha1", "DaemonSet")),
            Fate.STAYS,
            "DaemonSet",
            id="the DaemonSet of another controller",
        ),
        pytest.param(
            pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
            Fate.STAYS,
            "static pod",
            id="mirror",
        ),
        pytest.param(pod(metadata=owned("v1", "Node")), Fate.STAYS, "static pod", id="node-owned"),
        pytest.param(pod(status={"phase": "Succeeded"}), Fate.STAYS, "", id="finished"),
        pytest.param(pod(metadata={"ownerReferences": []}), Fate.STAYS, "unmanaged", id="bare"),
        pytest.param(pod(status={"phase": "Pending"}), Fate.EVICT, "", id="pending"),
    ],
)
def test_by_default(target: PodView, fate: Fate, why: str) -> None:
    verdict = judged(target)
    assert (verdict.fate, verdict.why) == (fate, why)


def test_an_orphan_of_a_deleted_daemonset_goes() -> None:
    assert judged(pod(metadata=owned("apps/v1", "DaemonSet")), missing="o").fate is Fate.EVICT


def terminating(seconds_ago: float, **parts: Any) -> PodView:
    meta = {"deletionTimestamp": format_time(NOW - seconds_ago), **parts.pop("metadata", {})}
    return pod(metadata=meta, **parts)


ENDED = {"containerStatuses": [{"name": "main", "state": {"terminated": {}}}]}
RUNNING = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("target", "fate"),
    [
        pytest.param(terminating(-30, status=RUNNING), Fate.LEAVING, id="in-grace"),
        pytest.param(terminating(59, status=RUNNING), Fate.LEAVING, id="just-over"),
        pytest.param(terminating(61, status=RUNNING), Fate.STUCK, id="hung"),
        pytest.param(
            terminating(61, status=ENDED, metadata={"finalizers": ["a/b"]}),
            "Over",
            id="finalizer",
        ),
        pytest.param(
            terminating(61, status={"phase": "Failed"}, metadata={"finalizers": ["a/b"]}),
            "Over",
            id="finalizer-and-the-last-phase",
        ),
        pytest.param(
            terminating(1, status={"phase": "Succeeded"}, metadata={"finalizers": ["a/b"]}),
            Fate.LEAVING,
            id="finalizer-in-its-minute",
        ),
        pytest.param(
            terminating(61, status={"phase": "Failed"}), Fate.STAYS, id="finished-and-going"
        ),
        pytest.param(
            terminating(61, status=RUNNING, metadata={"finalizers": ["a/b"]}),
            Fate.STUCK,
            id="finalizer-and-still-running",
        ),
        pytest.param(
            terminating(
                61,
                status={
                    **ENDED,
                    "initContainerStatuses": [{"name": "sidecar", "state": {"running": {}}}],
                },
                metadata={"finalizers": ["a/b"]},
            ),
            Fate.STUCK,
            id="finalizer-and-a-sidecar-that-runs",
        ),
    ],
)
def test_terminating_pods_are_told_apart(target: PodView, fate: str) -> None:
    verdict = judged(target)
    assert verdict.fate == fate


def test_of_two_wishes_not_to_be_disrupted_the_longer_is_kept() -> None:
    held = pod(
        metadata={
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "1m",
            }
        },
        status={"startTime": format_time(NOW - 300)},
    )
    verdict = judged(held)
    assert verdict.fate is Fate.WAITS
    assert verdict.refusal is not None
    assert verdict.refusal.reason is WhyNot.DO_NOT_DISRUPT
    assert verdict.until == NOW - 60 + 600


def test_the_first_matching_rule_wins() -> None:
    rules = [{"namespaces": ["team-a"], "strategy": "Skip"}, {"strategy": "WaitCompleted"}]
    assert judged(pod(), pods=rules).fate is Fate.STAYS
    assert judged(pod(metadata={"namespace": "team-b"}), pods=rules).fate is Fate.WAITS


@pytest.mark.parametrize(("grace_s", "told"), [(600, True), (30, False)])
def test_a_long_grace_of_a_leaving_pod_says_when_it_ends(grace_s: int, told: bool) -> None:
    pod = terminating(-300, metadata={"deletionGracePeriodSeconds": grace_s})
    ends_at = NOW + 300
    assert judged(pod).leaves_by == (ends_at if told else None)
