"""What a command that writes claims holds as things are: under Shadow, under another pause, at a
level that evicts nothing, on a node that stands still already.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, lease, load
from tests.support.remediator.kubectl_objects import (
    NOW,
    QUARANTINES,
    Object,
    condition,
    marked,
    node,
    session,
)

HUMAN = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ann"}


def labelled(name: str, key: str, value: str) -> Object:
    found = marked(name, f"{name}-s")
    found["metadata"]["labels"][key] = value
    return found


def world(
    policy: str = "mode: Enforce", *more: Object, **of_the_drain: object
) -> Callable[[HostedServer], None]:
    """`gpu-out` is being drained, `gpu-asked` waits since a person asked for it, `gpu-cordoned`
    rests at level Cordon, `gpu-left` is opted out in the middle of its drain.
    """

    def fill(hosted: HostedServer) -> None:
        load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
        load(hosted, r.LEASES, lease(NOW))
        names = ("gpu-out", "gpu-cordoned")
        load(hosted, r.NODES, *(marked(name, f"{name}-s") for name in names), node("gpu-asked"))
        left_alone = labelled("gpu-left", "gpuward.io/opt-out", "true")
        load(hosted, r.NODES, left_alone, node("gpu-well"))
        asked = session("gpu-asked-s", "gpu-asked", "Pending", "x")
        asked["spec"]["causes"].append(HUMAN)
        draining = session("gpu-out-s", "gpu-out", "Draining", "x", **of_the_drain)
        cordoned = session("gpu-cordoned-s", "gpu-cordoned", "Marked", "x")
        cordoned["spec"]["level"] = "Cordon"
        halted = [condition("Paused", "OptOut", "x")]
        left = session("gpu-left-s", "gpu-left", "Draining", "x", conditions=halted)
        load(hosted, QUARANTINES, asked, draining, cordoned, left)
        named = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.CONFIGMAPS, {"metadata": named, "data": {"policy.yaml": policy}})

    return fill


def pause(kubectl: Kubectl) -> str:
    code, out, err = kubectl("pause", "--reason", "x", "--yes")
    assert (code, err) == (0, "")
    return out


def test_a_pause_stops_what_goes_on_and_nothing_that_stands_still(tmp_path: Path) -> None:
    with cluster(tmp_path, world()) as kubectl:
        said = pause(kubectl)
    assert "it stops, too: gpu-asked (Pending), gpu-out (Draining)\n" in said


@pytest.mark.parametrize("policy", ["mode: Shadow", "{}"], ids=["Shadow", "the default"])
def test_a_pause_in_shadow_stops_nothing_and_says_so(tmp_path: Path, policy: str) -> None:
    with cluster(tmp_path, world(policy)) as kubectl:
        said = pause(kubectl)
    assert "it stops" not in said
    assert "the policy is Shadow: no node is taken out anyway; it holds once the policy" in said


def test_quarantine_in_shadow_promises_no_eviction_and_no_budget(tmp_path: Path) -> None:
    with cluster(tmp_path, world("mode: Shadow")) as kubectl:
        _, well, _ = kubectl("quarantine", "gpu-well", "--reason", "x", "--yes")
        _, _, asked = kubectl("quarantine", "gpu-cordoned", "--reason", "x")
        _, added, _ = kubectl("quarantine", "gpu-cordoned", "--reason", "x", "--yes")
    assert "the policy is Shadow, so nothing is touched" in well
    assert "exceeds the budget" not in well
    assert "nothing is evicted" in asked
    assert "what may go is evicted" not in asked
    assert "its pods are to be evicted, too; the policy is Shadow" in added


REPAIRS = "{mode: Enforce, repair: {mode: Auto, steps: {RestartNode: {adapter: NodeConditions}}}}"


def test_a_repair_of_a_held_node_waits_for_the_hold(tmp_path: Path) -> None:
    with cluster(tmp_path, world(REPAIRS)) as kubectl:
        kubectl("hold", "gpu-out", "--reason", "x")
        _, said, _ = kubectl("repair", "gpu-out", "--step", "RestartNode", "--yes")
    assert "; it is held, nothing is repaired before: kubectl gpuward unhold gpu-out" in said
