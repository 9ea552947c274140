"""`preflight` before there is anything, in the wrong namespace, and of an edited policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hack.sim.cluster.calls import Caller
from hack.sim.cluster.http.threaded import HostedServer, run_in_thread
from hack.sim.cluster.resource import CONFIGMAPS, DAEMON_SETS, NAMESPACES
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
    assert "not installed yet" in said["gpuward"]
    assert not {"permissions", "admission policies", "definitions"} & set(said)


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
    assert "no remediator has ever led in namespace other" in seen["leader"]


def policy_map(now: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
        "data": {"policy.yaml": now},
    }


HEAD = "apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\n"


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
