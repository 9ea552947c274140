"""A machine that came back under another name: `why` leads from one name to the other."""

from __future__ import annotations

from pathlib import Path

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    QUARANTINES,
    node,
    session,
    verdict,
)
from tests.support.remediator.record_objects import RECORDS

GPU = "GPU-5badcafe"


def fill(hosted: HostedServer) -> None:
    load(hosted, r.NODES, node("gpu-new"))
    load(hosted, HEALTHS, verdict("gpu-new", gpus=[{"uuid": GPU, "health": "Healthy"}]))
    load(hosted, QUARANTINES, session("gpu-old-s", "gpu-old", "NodeGone", "NodeGone: it went."))
    status = {"scope": "GPU", "uuid": GPU, "places": [{"node": "gpu-old"}]}
    name = {"name": GPU.lower()}
    load(hosted, RECORDS, {"apiVersion": "gpuward.io/v1alpha1", "kind": "GPURecord",
                           "metadata": name, "spec": {}, "status": status})  # fmt: skip


def test_walk_why_leads_from_one_name_to_the_other(tmp_path: Path) -> None:
    with cluster(tmp_path, fill) as kubectl:
        _, new, _ = kubectl("why", "gpu-new")
        code, old, _ = kubectl("why", "gpu-old")
    assert code == 0
    assert f"GPU {GPU} was in gpu-old before: kubectl gpuward why gpu-old" in new
    assert f"GPU {GPU} is in gpu-new now: kubectl gpuward why gpu-new" in old
