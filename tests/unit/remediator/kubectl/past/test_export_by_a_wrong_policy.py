"""`export` in a cluster whose policy is not valid: everything else is exported, and it says so."""

from __future__ import annotations

from pathlib import Path

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet


def test_walk3_an_export_is_made_all_the_same_and_names_what_it_lacks(tmp_path: Path) -> None:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
            "data": {"policy.yaml": "drain: {fatalTimout: 10m}\n"},
        }
        load(hosted, r.CONFIGMAPS, config)

    file = tmp_path / "records.tar.gz"
    with cluster(tmp_path, fill) as kubectl:
        code, _, err = kubectl("export", "-o", str(file))
    assert code == 0
    assert "left out: the policy, which is not valid" in err
    assert "did you mean fatalTimeout?" in err
    assert file.exists()
