"""`preflight` before there is anything, in the wrong namespace, and of an edited policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.calls import Caller
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.http.threaded import HostedServer, run_in_thread
from hack.sim.cluster.resource import CONFIGMAPS, DAEMON_SETS, NAMESPACES
from remediator.kubectl.ready.installation import Installation, agents_check
from remediator.kubectl.ready.policy_edited import APPLIED
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load

LABELS = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent"}


def lines(kubectl: Kubectl, *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit status, and each line of the report by the name of its check."""
    code, out, _ = kubectl("preflight", *arguments)
    return code, {line[6:].partition(":")[0]: line for line in out.splitlines()}


def test_walk_before_the_installation_nothing_fails_that_it_brings(tmp_path: Path) -> None:
    """README: preflight first, then apply. `preflight && apply` must not end at the first."""
    root = Caller("root", ("system:masters", "system:authenticated"))
    with run_in_thread(authorization="RBAC", tokens={"secret": root}) as hosted:
        code, said = lines(Kubectl(hosted, tmp_path))
    assert code == 0
    assert "the installation brings them" in said["permissions"]
    assert "the installation brings them" in said["admission policies"]


def space(hosted: HostedServer, name: str) -> None:
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    load(hosted, NAMESPACES, made)


def agents(**status: int) -> dict[str, Any]:
    template = {"spec": {"runtimeClassName": "nvidia", "containers": []}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "gpuward-agent", "namespace": "other", "labels": LABELS},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template},
        "status": status,
    }


def test_walk_another_namespace_is_named_and_its_own_checks_are_left_out(
    tmp_path: Path,
) -> None:
    def fill(hosted: HostedServer) -> None:
        space(hosted, "other")
        load(hosted, DAEMON_SETS, agents())

    with cluster(tmp_path, fill) as kubectl:
        code, said = lines(kubectl)
        there, seen = lines(kubectl, "-n", "other")
    assert (code, there) == (1, 0)
    assert "installed in other, not in gpuward" in said["namespace"]
    assert "add -n other" in said["namespace"]
    assert "permissions" not in said
    assert "namespace" not in seen
    # Installed, so "once installed, one does" would be no remedy.
    assert "none has led yet; see kubectl -n other get pods" in seen["leader"]


@pytest.mark.parametrize(
    ("status", "verdict", "said"),
    [
        ((3, 3, 3), "ok", "3 of 3 are ready"),
        ((3, 0, 0), "warn", "3 of 3 pods are not made (they need RuntimeClass nvidia)"),
        ((3, 3, 1), "warn", "2 of 3 are not ready; see kubectl -n other get pods"),
        ((0, 0, 0), "warn", "finds no node that has GPUs"),
    ],
)
def test_walk_agents_that_are_not_made_are_said(
    status: tuple[int, int, int], verdict: str, said: str
) -> None:
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    here = Installation(
        namespace="other", definitions=True, spaces=frozenset({"other"}),
        agents=agents(**dict(zip(names, status, strict=True))),
    )  # fmt: skip
    [check] = agents_check(here)
    assert check.verdict == verdict
    assert said in check.found


def test_a_refusal_by_pod_security_is_named_with_the_label_that_ends_it() -> None:
    """It guessed at the RuntimeClass, which was there."""
    here = Installation(
        namespace="other", definitions=True, spaces=frozenset({"other"}),
        agents=agents(desiredNumberScheduled=3, currentNumberScheduled=0, numberReady=0),
        refused='pods "gpuward-agent-x" is forbidden: violates PodSecurity "baseline:latest"',
    )  # fmt: skip
    [check] = agents_check(here)
    assert 'violates PodSecurity "baseline:latest"' in check.found
    label = "pod-security.kubernetes.io/enforce=privileged"
    assert f"kubectl label --overwrite namespace other {label}" in check.found
    assert "RuntimeClass" not in check.found


@pytest.mark.parametrize(
    ("plural", "said"),
    [
        pytest.param("deployments", "ok    agents: 3 of 3 are ready", id="an operator"),
        pytest.param("daemonsets", "warn  agents: could not look: not allowed", id="a viewer"),
    ],
)
def test_walk1_21_who_may_not_see_all_workloads_still_hears_of_the_agents(
    tmp_path: Path, plural: str, said: str
) -> None:
    """The line was left out, as if there were nothing to look at."""

    def fill(hosted: HostedServer) -> None:
        space(hosted, "other")
        ready = {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberReady": 3}
        load(hosted, DAEMON_SETS, agents(**ready))
        refused = ApiError(403, "Forbidden", f"{plural}.apps is forbidden")
        hosted.server.faults.fail(refused, path=f".*/{plural}", times=None)

    with cluster(tmp_path, fill) as kubectl:
        _, found = lines(kubectl, "-n", "other")
    assert found["agents"].startswith(said)


def policy_map(now: str, applied: str = "") -> dict[str, Any]:
    notes = {APPLIED: json.dumps({"data": {"policy.yaml": applied}})} if applied else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpuward-policy", "namespace": "gpuward", "annotations": notes},
        "data": {"policy.yaml": now},
    }


HEAD = "apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\n"


@pytest.mark.parametrize(
    ("now", "applied", "said"),
    [
        pytest.param(
            "mode: Enforce\n", "mode: Shadow\n", "(mode: Enforce -> Shadow)", id="edited"
        ),
        pytest.param("mode: Enforce\n", "mode: Enforce\n# why\n", "", id="as applied"),
        pytest.param("mode: Enforce\n", "", "", id="never applied"),
    ],
)
def test_walk_a_policy_that_the_next_apply_sets_back_is_said(
    tmp_path: Path, now: str, applied: str, said: str
) -> None:
    def fill(hosted: HostedServer) -> None:
        space(hosted, "gpuward")
        load(hosted, CONFIGMAPS, policy_map(HEAD + now, HEAD + applied if applied else ""))

    with cluster(tmp_path, fill) as kubectl:
        _, found = lines(kubectl)
    assert ("policy" in found) == bool(said)
    assert said in found.get("policy", "")


def test_walk_a_wrong_policy_is_one_failed_check_and_the_rest_is_looked_at(
    tmp_path: Path,
) -> None:
    def fill(hosted: HostedServer) -> None:
        space(hosted, "gpuward")
        load(hosted, CONFIGMAPS, policy_map(f"{HEAD}release: {{healthyFor: 5min}}\n"))

    with cluster(tmp_path, fill) as kubectl:
        code, said = lines(kubectl)
    assert code == 1
    assert said["policy"].startswith("FAIL")
    assert "'5min' is no duration" in said["policy"]
    assert "leader" in said
