"""`preflight` before the first install, and when only some definitions are there."""

from pathlib import Path

import pytest
from kubectl_cluster import Kubectl

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
