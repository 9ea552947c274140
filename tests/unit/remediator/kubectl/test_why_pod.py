"""`why` of a pod: its node, or the node whose drain moved it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import HEALTHY, QUARANTINES, session

POD = {
    "metadata": {"name": "llama-0", "namespace": "training"},
    "spec": {"nodeName": HEALTHY, "containers": [{"name": "main", "image": "w:1"}]},
    "status": {"phase": "Running"},
}


def fill(hosted: HostedServer) -> None:
    load_fleet(hosted)
    load(hosted, r.NAMESPACES, {"metadata": {"name": "training"}})
    load(hosted, r.PODS, POD)
    drain = {"evicted": 1, "recent": ["training/went-0"]}
    load(hosted, QUARANTINES, session("s-1", "gpu-cordoned", "Released", "m", drain=drain))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("pods"), fill) as kubectl:
        yield kubectl


def test_of_a_pod_that_runs_its_node_is_shown(fleet: Kubectl) -> None:
    code, out, _ = fleet("why", "training/llama-0")
    first, _, rest = out.partition("\n\n")
    assert (code, first) == (0, f"pod training/llama-0 is on node {HEALTHY}")
    assert rest == fleet("why", HEALTHY)[1]


def test_of_a_pod_that_is_gone_the_node_that_names_it_is_shown(fleet: Kubectl) -> None:
    code, out, _ = fleet("why", "training/went-0")
    first, _, rest = out.partition("\n\n")
    assert code == 0
    assert first.startswith("pod training/went-0 was moved by the drain of gpu-cordoned (Xid95")
    assert rest == fleet("why", "gpu-cordoned")[1]


def test_of_a_pod_that_nothing_names_its_events_are_pointed_to(fleet: Kubectl) -> None:
    code, out, err = fleet("why", "training/gone-0")
    assert (code, out) == (1, "")
    assert "pod training/gone-0 is on no node, and no session names it" in err
    assert "kubectl -n training get events --field-selector involvedObject.name=gone-0" in err


def test_other_commands_take_no_pod_for_a_node(fleet: Kubectl) -> None:
    assert fleet("hold", "training/llama-0", "--reason", "x")[0] == 64
