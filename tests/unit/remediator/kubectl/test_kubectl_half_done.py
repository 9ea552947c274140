"""Commands that write twice, or read and write: what failed is said with what was done before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.http.threaded import HostedServer, run_in_thread
from hack.sim.cluster.resource import NODES
from hack.sim.manifests import post_manifests
from rules.api.names import ANNOTATION_HOLD
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load, viewer
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, node

BECAUSE = ("--reason", "tested")
OURS = "gpuward.io"
# Who may steer nodes and only look at sessions.
NODES_ONLY = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "nodes-only"},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
            {"apiGroups": [OURS], "resources": ["*"], "verbs": ["get", "list"]},
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "nodes-only"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "nodes-only"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
    },
]  # fmt: skip


@pytest.mark.parametrize("command", ["hold", "repaired", "unhold"])
def test_walk_what_cannot_be_read_keeps_a_command_from_writing(
    tmp_path: Path, command: str
) -> None:
    """Before the definitions are installed: an error that had written all the same would lie."""
    kept = {ANNOTATION_HOLD: "vendor"}
    with run_in_thread() as hosted:
        load(hosted, NODES, node("gpu-7", annotations=kept))
        kubectl = Kubectl(hosted, tmp_path)
        code, out, err = kubectl(command, "gpu-7", *(() if command == "unhold" else BECAUSE))
        found = kubectl.get(NODES, "gpu-7")["metadata"]["annotations"]
    assert (code, out) == (1, "")
    assert "does not know gpuward's objects" in err
    assert found == kept


@pytest.fixture(scope="module")
def nodes_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        hosted.run(post_manifests(hosted.server.client, NODES_ONLY, namespace="gpuward"))

    folder = tmp_path_factory.mktemp("nodes-only")
    rights: dict[str, Any] = {"authorization": "RBAC", "tokens": {"secret": viewer()}}
    with cluster(folder, fill, **rights) as kubectl:
        yield kubectl


def test_walk_half_a_hold_says_which_half(nodes_only: Kubectl) -> None:
    code, out, err = nodes_only("hold", BLOCKED, *BECAUSE)
    assert (code, out) == (1, "")
    assert "the node is held, but its session could not be told: not allowed" in err
    assert "run this again" in err


def test_walk_a_hold_over_a_hold_says_what_it_replaced(tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        kubectl("hold", BLOCKED, "--reason", "vendor is on the way")
        code, out, _ = kubectl("hold", BLOCKED, "--reason", "second thought")
    assert code == 0
    assert "this stands instead of the hold before: vendor is on the way (" in out
