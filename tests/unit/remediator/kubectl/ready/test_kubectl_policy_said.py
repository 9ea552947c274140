"""What commands say where the policy in the cluster is wrong, or leaves nodes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import cluster, lease, load
from tests.support.remediator.kubectl_objects import HEALTHS, NOW, node, verdict

GOES_ON = "a remediator that runs goes on by the last good one, one that starts now is in Shadow"


def under(policy: str, hosted: HostedServer) -> None:
    meta = {"name": "gpuward-policy", "namespace": "gpuward"}
    load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
    for name, pool in (("a1", "train"), ("b1", "serve")):
        found = node(name, "healthy")
        found["metadata"]["labels"] |= {"pool": pool}
        load(hosted, r.NODES, found)
        load(hosted, HEALTHS, verdict(name))
    load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"policy.yaml": policy}})


@pytest.mark.parametrize("command", [("fleet",), ("list",), ("why", "a1"), ("plan",)])
def test_a_policy_with_a_typo_is_said_with_what_holds_meanwhile(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with cluster(tmp_path, lambda hosted: under("budgit: {}", hosted)) as kubectl:
        code, out, err = kubectl(*command)
    said = " ".join(f"{out} {err}".split())
    assert "the policy cannot be used (gpuward-policy: budgit is not a known key" in said
    assert GOES_ON in said
    assert code == (1 if command == ("plan",) else 0)
    assert ("--policy FILE judges by another" in said) == (command == ("plan",))


def test_a_selector_that_leaves_nodes_out_is_said_over_the_fleet(tmp_path: Path) -> None:
    narrow = "{mode: Enforce, nodeSelector: pool=train}"
    with cluster(tmp_path, lambda hosted: under(narrow, hosted)) as kubectl:
        _, out, _ = kubectl("fleet")
    left = "the policy's nodeSelector (pool=train) leaves out 1 of 2 GPU nodes"
    assert out.splitlines()[1] == f"{left}: no detector takes one of those"


def test_issue15_whoever_asks_for_a_node_is_told_that_a_typo_may_keep_all_from_it(
    tmp_path: Path,
) -> None:
    def led(hosted: HostedServer) -> None:
        under("budgit: {}", hosted)
        load(hosted, r.LEASES, lease(NOW))

    with cluster(tmp_path, led) as kubectl:
        code, out, _ = kubectl("quarantine", "a1", "--reason", "fan noise", "--yes")
    assert code == 0
    said = "the policy cannot be used: a remediator that began with it touches nothing"
    assert said in " ".join(out.split())
