"""What `fleet` says above its table: what ill nodes have in common, and nodes nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    QUARANTINES,
    Object,
    ago,
    condition,
    node,
    verdict,
    waiting,
)

RACK = "topology.example.com/rack"


def hot(name: str) -> Object:
    incident = {
        "id": f"i-{name}", "reason": "ThermalSlowdown", "severity": "Degraded",
        "level": "Report", "active": True, "firstSeen": ago(1), "lastSeen": ago(1),
    }  # fmt: skip
    return verdict(name, health="Degraded", reason="ThermalSlowdown", incidents=[incident])


UNSEEN = {
    "mig": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"},
    "named": {"nvidia.com/gpu-a100": "8"},
    "shared": {"nvidia.com/gpu.shared": "32"},
}


def fill(hosted: HostedServer) -> None:
    for index in range(48):
        name, rack = f"n{index:02}", index // 8
        ill = rack == 3
        labels = {RACK: f"r{rack}"}
        found = node(name, "degraded" if ill else "healthy")
        found["metadata"]["labels"] |= labels
        load(hosted, r.NODES, found)
        load(hosted, HEALTHS, hot(name) if ill else verdict(name))

    blind = node("unseen")
    blind["metadata"]["labels"] = {"nvidia.com/gpu.present": "true", RACK: "r9"}
    load(hosted, r.NODES, blind)
    plain = node("cpu")
    plain["metadata"]["labels"] = {RACK: "r9"}
    load(hosted, r.NODES, plain)
    for name, resources in UNSEEN.items():
        found = node(name)
        found["metadata"]["labels"] = {RACK: "r9"}
        found["status"]["allocatable"] = resources
        load(hosted, r.NODES, found)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("rack"), fill) as found:
        yield found


def test_fleet_names_the_rack_above_the_table(kubectl: Kubectl) -> None:
    code, out, _ = kubectl("fleet")
    assert code == 0
    assert out.splitlines()[1] == (
        "4 more nodes have GPUs that no agent has seen: mig, named, shared and 1 more"
    )
    assert out.splitlines()[2] == (
        f"ThermalSlowdown on all 8 nodes with {RACK}=r3, none elsewhere: look at what they "
        "share first"
    )


def test_of_one_rack_alone_nothing_can_be_told(kubectl: Kubectl) -> None:
    _, out, _ = kubectl("fleet", "-l", f"{RACK}=r3")
    assert "look at what they share" not in out
    assert "no agent has seen" not in out, "it has other labels"


def test_of_a_part_of_the_fleet_nothing_is_said_to_be_nowhere_else(kubectl: Kubectl) -> None:
    """What is hot in the racks that were not asked for nobody looked at."""
    _, out, _ = kubectl("fleet", "-l", f"{RACK} in (r1, r2, r3, r4, r5)")
    assert "8 degraded" in out
    assert "elsewhere" not in out


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


def cells(*, storm: bool = False, policy: str) -> Callable[[HostedServer], None]:
    """A fleet whose ill nodes share a label that only the policy knows to mean something."""

    def filled(hosted: HostedServer) -> None:
        meta = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
        load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"policy.yaml": policy}})
        for index in range(48):
            name, cell = f"n{index:02}", f"c{index // 8}"
            ill = cell == "c3"
            load(hosted, r.NODES, node(name, labels={"example.com/cell": cell, "gone": "no"}))
            load(hosted, HEALTHS, hot(name) if ill else verdict(name))
        if storm:
            waits = waiting(
                "n24", "CorrelatedCause", "x", condition("Storm", "CorrelatedCause", "x")
            )
            waits["spec"]["causes"][0]["reason"] = "ThermalSlowdown"
            load(hosted, QUARANTINES, waits)

    return filled


PER = "{mode: Enforce, budget: {per: [example.com/cell]}}"
NARROW = "{mode: Enforce, budget: {per: [example.com/cell]}, nodeSelector: gone=yes}"


@pytest.mark.parametrize(
    ("policy", "storm", "said"),
    [
        pytest.param(PER, False, True, id="the-policys-key"),
        pytest.param("mode: Enforce", False, False, id="no-key"),
        pytest.param(NARROW, False, False, id="nodes-that-the-policy-leaves-out"),
        pytest.param(PER, True, False, id="the-breaker-says-it"),
    ],
)
def test_walk_fleet_compares_what_the_page_compares(
    tmp_path: Path, policy: str, storm: bool, said: bool
) -> None:
    with cluster(tmp_path, cells(policy=policy, storm=storm)) as kubectl:
        code, out, _ = kubectl("fleet")
    assert code == 0
    assert ("ThermalSlowdown on all 8 nodes with example.com/cell=c3" in out) == said
