"""`fleet` says once that the policy is Shadow."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import HEALTHS, node, verdict


@pytest.mark.parametrize(("mode", "said"), [("Shadow", 1), ("Enforce", 0), ("Sometimes", 0)])
def test_fleet_says_once_that_the_policy_is_shadow(tmp_path: Path, mode: str, said: int) -> None:
    def filled(hosted: HostedServer) -> None:
        meta = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
        load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"policy.yaml": f"mode: {mode}"}})
        load(hosted, r.NODES, node("n0", "healthy"))
        load(hosted, HEALTHS, verdict("n0"))

    with cluster(tmp_path, filled) as kubectl:
        code, out, _ = kubectl("fleet")
    assert code == 0
    assert out.startswith("1 GPU node: 1 healthy")
    assert out.count("the policy is Shadow: no node is taken out of service") == said
    assert out.count("mode: Enforce") == said, "with the remedy"
