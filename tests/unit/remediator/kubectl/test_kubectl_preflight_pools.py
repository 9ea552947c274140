"""`preflight` with several policies: what each of them needs, and which nodes the pools select."""

from pathlib import Path

import yaml

from hack.sim.cluster import resource as r
from hack.sim.manifests import read_manifests
from tests.support.cluster.provider_definitions import DEFINITIONS
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import node
from tests.support.remediator.preflight_reports import ADMIN, BASE, component, having, lines
from tests.support.scenario.provider_world import steps_for


def test_each_policy_is_checked_and_nodes_of_two_pools_are_named(tmp_path: Path) -> None:
    policies = (
        {"mode": "Enforce", "reasons": {"Misspelled": {"level": "Report"}}},
        {
            "metadata": {"name": "trial"},
            "nodeSelector": "team=t",
            "mode": "Shadow",
            "drain": {"onTimeout": "Force"},
            "isolate": "Device",
            "reasons": {"Mistyped": {"level": "Report"}},
        },
        {
            "metadata": {"name": "zone"},
            "nodeSelector": "zone=z",
            "repair": {"mode": "Ask", "steps": steps_for("Karpenter", "ReplaceNode")},
            "validate": {"provider": "Job", "template": "own"},
        },
        {"metadata": {"name": "empty"}, "nodeSelector": "zone=y", "drain": {"scope": "Holders"}},
    )
    labels: dict[str, dict[str, str]] = {
        "gpu-1": {}, "gpu-2": {"team": "t"}, "gpu-3": {"team": "t", "zone": "z"},
    }  # fmt: skip
    there = [*read_manifests(BASE / "remediator-rbac.yaml"), *component("devices"), *DEFINITIONS]
    with cluster(tmp_path, having(there, yaml.safe_dump_all(policies)), **ADMIN) as kubectl:
        for name, its in labels.items():
            made = node(name, labels=its)
            made["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
            load(kubectl.hosted, r.NODES, made)
        code, out, _ = kubectl("preflight")
        report = lines(kubectl)[1]
    assert code == 1
    assert report["pools trial and zone"] == (
        "FAIL  pools trial and zone: select gpu-3 with equally many requirements, so gpuward "
        "changes nothing there; add a requirement to one nodeSelector, or change the labels"
    )
    assert report["pool trial"].endswith(
        "1 node selected by 'gpuward.io/gpus,team=t', mode Shadow"
    )
    assert report["pool empty"].startswith("warn  pool empty: 0 nodes selected by ")
    assert "policy: reasons.Misspelled is no reason" in out
    assert "policy: pool trial: reasons.Mistyped is no reason" in out
    assert out.count("Misspelled") == 1
    assert "may not delete pods, patch pods/status" in report["permissions"]
    assert "pool zone: " in report["repair adapter Karpenter"]
    assert "pool zone: there is no PodTemplate own" in report["test under load own"]
    assert report["device plugin"].startswith("warn  device plugin: pool trial: gpu-2 offer")
    assert report["drain scope Holders"].endswith("pool empty: every node reports them")
