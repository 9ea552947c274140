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
    HEALTHS,
    NOW,
    PAUSES,
    QUARANTINES,
    Object,
    condition,
    marked,
    node,
    session,
    sick,
)

HUMAN = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ann"}
FIRST: Object = {
    "apiVersion": "gpuward.io/v1alpha1",
    "kind": "GPUWardPause",
    "metadata": {"name": "pause-first"},
    "spec": {"scope": {"nodes": ["gpu-out", "gpu-asked"]}, "by": "ann", "reason": "drill"},
}


def labelled(name: str, key: str, value: str) -> Object:
    found = marked(name, f"{name}-s")
    found["metadata"]["labels"][key] = value
    return found


def world(
    policy: str = "mode: Enforce", *more: Object, paused: bool = False, **of_the_drain: object
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
        left = session("gpu-left-s", "gpu-left", "Draining", "x")
        load(hosted, QUARANTINES, asked, draining, cordoned, left)
        named = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.CONFIGMAPS, {"metadata": named, "data": {"policy.yaml": policy}})
        if paused:
            load(hosted, PAUSES, FIRST)

    return fill


def pause(kubectl: Kubectl) -> str:
    code, out, err = kubectl("pause", "--reason", "x", "--yes")
    assert (code, err) == (0, "")
    return out


def test_a_pause_stops_what_goes_on_and_nothing_that_stands_still(tmp_path: Path) -> None:
    with cluster(tmp_path, world()) as kubectl:
        said = pause(kubectl)
    assert "it stops, too: gpu-asked (Pending, asked for by ann), gpu-out (Draining)\n" in said


@pytest.mark.parametrize("policy", ["mode: Shadow", "{}"], ids=["Shadow", "the default"])
def test_a_pause_in_shadow_stops_nothing_and_says_so(tmp_path: Path, policy: str) -> None:
    with cluster(tmp_path, world(policy)) as kubectl:
        said = pause(kubectl)
    assert "it stops" not in said
    assert "the policy is Shadow: no node is taken out anyway; it holds once the policy" in said


def test_a_pause_stops_nothing_that_another_holds_already(tmp_path: Path) -> None:
    with cluster(tmp_path, world(paused=True)) as kubectl:
        assert "it stops" not in pause(kubectl)


def test_a_pause_stops_no_drain_that_the_policy_no_longer_asks_for(tmp_path: Path) -> None:
    lowered = "{mode: Enforce, reasons: {Xid95UncontainedMemoryError: {level: Cordon}}}"
    with cluster(tmp_path, world(lowered)) as kubectl:
        assert "it stops, too: gpu-asked (Pending, asked for by ann)\n" in pause(kubectl)


PAUSED = [condition("Paused", "Paused", "x")]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("mode: Enforce", "gpu-out goes on."),
        ("mode: Shadow", "gpu-out waits for that, and nothing is done to them: the policy is"),
    ],
)
def test_the_end_of_a_pause_says_what_goes_on(tmp_path: Path, policy: str, said: str) -> None:
    fill = world(policy, paused=True, conditions=PAUSED)
    with cluster(tmp_path, fill) as kubectl:
        _, _, err = kubectl("resume")
    assert said in err
    assert "judged afresh" not in err, "its drain has begun: it asks for no turn again"


@pytest.mark.parametrize(
    ("policy", "conditions", "said"),
    [
        ("mode: Enforce", [], "is held; a drain goes on, a release does not happen"),
        ("mode: Enforce", PAUSED, "is held; a release does not happen"),
    ],
)
def test_a_hold_says_of_a_drain_only_that_goes_on(
    tmp_path: Path, policy: str, conditions: list[Object], said: str
) -> None:
    with cluster(tmp_path, world(policy, conditions=conditions)) as kubectl:
        assert said in kubectl("hold", "gpu-out", "--reason", "x")[1]
        rests = kubectl("hold", "gpu-cordoned", "--reason", "x")[1]
    assert "is held; a release does not happen" in rests


def test_quarantine_in_shadow_promises_no_eviction_and_no_budget(tmp_path: Path) -> None:
    with cluster(tmp_path, world("mode: Shadow")) as kubectl:
        _, well, _ = kubectl("quarantine", "gpu-well", "--reason", "x", "--yes")
        _, _, asked = kubectl("quarantine", "gpu-cordoned", "--reason", "x")
        _, added, _ = kubectl("quarantine", "gpu-cordoned", "--reason", "x", "--yes")
        code, _, ends = kubectl("quarantine", "gpu-asked", "--reason", "x", "--yes")
    assert "the policy is Shadow, so nothing is touched" in well
    assert "exceeds the budget" not in well
    assert "nothing is evicted" in asked
    assert "what may go is evicted" not in asked
    assert "its pods are to be evicted, too; the policy is Shadow" in added
    assert (code, "ends, since the policy is Shadow now: what is added" in ends) == (1, True)


def test_quarantine_of_an_opted_out_node_in_shadow_blames_the_policy(tmp_path: Path) -> None:
    """Taking the label off would change nothing."""
    with cluster(tmp_path, world("mode: Shadow")) as kubectl:
        _, said, _ = kubectl("quarantine", "gpu-left", "--reason", "x", "--yes")
    assert "kubectl label" not in said


REPAIRS = "{mode: Enforce, repair: {mode: Auto, steps: {RestartNode: {adapter: NodeConditions}}}}"


def test_a_repair_of_a_held_node_waits_for_the_hold(tmp_path: Path) -> None:
    with cluster(tmp_path, world(REPAIRS)) as kubectl:
        kubectl("hold", "gpu-out", "--reason", "x")
        _, said, _ = kubectl("repair", "gpu-out", "--step", "RestartNode", "--yes")
    assert "; it is held, nothing is repaired before: kubectl gpuward unhold gpu-out" in said


def test_a_control_plane_node_is_not_said_to_be_repaired(tmp_path: Path) -> None:
    def fill(hosted: HostedServer) -> None:
        world(REPAIRS)(hosted)
        load(hosted, r.NODES, labelled("gpu-api", "node-role.kubernetes.io/control-plane", ""))
        load(hosted, QUARANTINES, session("gpu-api-s", "gpu-api", "Quarantined", "x"))

    with cluster(tmp_path, fill) as kubectl:
        code, _, err = kubectl("repair", "gpu-api", "--step", "RestartNode", "--yes")
    assert (code, "is a control-plane node: a person repairs it" in err) == (1, True)


def test_a_release_promises_nothing_of_faults_that_are_only_reported(tmp_path: Path) -> None:
    lowered = "{mode: Enforce, reasons: {Xid95UncontainedMemoryError: {level: Report}}}"

    def fill(hosted: HostedServer) -> None:
        world(lowered)(hosted)
        load(hosted, HEALTHS, sick("gpu-out"))

    with cluster(tmp_path, fill) as kubectl:
        _, _, err = kubectl("release", "gpu-out", "--reason", "x")
    assert "Still active and only reported (level Report): Xid95" in err
    assert "nothing opens for them" not in err
