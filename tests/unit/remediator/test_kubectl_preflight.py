"""`preflight` before the first install, and when only some definitions are there."""

from pathlib import Path

import pytest
from kubectl_cluster import Kubectl

from hack.sim.cluster.resource import NODES
from hack.sim.cluster.threaded import run_in_thread
from hack.sim.manifests import post_manifests, read_manifests

CRDS = Path(__file__).parents[3] / "daemonset" / "crds"


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        pytest.param((), 0, "not installed yet", id="before the first install"),
        pytest.param(("gpuwardpauses.yaml",), 1, "missing gpunodehealths", id="torn apart"),
    ],
)
def test_definitions(tmp_path: Path, files: tuple[str, ...], code: int, said: str) -> None:
    """Nothing installed is where everybody starts; half of it is a fault."""
    with run_in_thread() as hosted:
        for name in files:
            objects = read_manifests(CRDS / name)
            hosted.run(post_manifests(hosted.server.client, objects))

        ended, out, err = Kubectl(hosted, tmp_path)("preflight")

    assert ended == code
    assert said in out + err


@pytest.mark.parametrize(
    ("nodes", "spared"),
    [
        pytest.param({"one": {}}, ["one"], id="single node"),
        pytest.param({"one": {}, "two": {}}, [], id="company"),
        pytest.param(
            {"one": {}, "two": {}, "cp": {"node-role.kubernetes.io/control-plane": ""}},
            ["cp"],
            id="control plane",
        ),
        pytest.param(
            {"one": {}, "two": {}, "lone": {"karpenter.sh/nodepool": "a"}}, ["lone"], id="pool"
        ),
    ],
)
def test_nodes_that_no_detector_takes_are_named_before_it_matters(
    tmp_path: Path, nodes: dict[str, dict[str, str]], spared: list[str]
) -> None:
    with run_in_thread() as hosted:
        for name, labels in nodes.items():
            body = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"gpuward.io/gpus": "8", **labels}},
            }
            hosted.run(hosted.server.client.create(NODES, body))
        ended, out, _ = Kubectl(hosted, tmp_path)("preflight")

    assert ended == 0
    said = [line for line in out.splitlines() if "nodes left to people" in line]
    assert len(said) == bool(spared)
    assert all(name in said[0] for name in spared)
    assert all("kubectl gpuward quarantine NODE" in line for line in said)
