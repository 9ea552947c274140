"""Workload and node controllers, kubelet, placement: one look at the state, the right writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hack.sim.cluster.controllers.caches import Cache
from hack.sim.cluster.controllers.garbage_collector import judge
from hack.sim.cluster.controllers.nodes.kubelet import KubeletSettings, PodMemory, act
from hack.sim.cluster.controllers.nodes.node_lifecycle import (
    reconcile_orphan,
    reconcile_taints,
)
from hack.sim.cluster.controllers.nodes.placement import NodeRoom, refusal
from hack.sim.cluster.controllers.pods import resource_requests
from hack.sim.cluster.controllers.workloads import daemonset, replicaset
from hack.sim.cluster.controllers.writes import Outcome
from hack.sim.cluster.resource import NODES, PODS
from tests.support.cluster.controller_objects import (
    NOW,
    ago,
    created,
    deleted,
    meta,
    node,
    owner,
    patched,
    pod,
    status,
)


@pytest.mark.parametrize(
    ("replicas", "there", "makes", "ends"),
    [
        pytest.param(3, [], 3, [], id="from nothing"),
        pytest.param(2, [{}, {}], 0, [], id="enough"),
        pytest.param(2, [{}, {"terminating": True}], 1, [], id="terminating is replaced at once"),
        pytest.param(2, [{}, {"phase": "Failed"}], 1, [], id="failed is replaced"),
        pytest.param(1, [{}, {"ready": False}], 0, ["p1"], id="unready goes first"),
        pytest.param(1, [{}, {"node": "", "ready": False}], 0, ["p1"], id="unbound goes first"),
        pytest.param(0, [{}, {}], 0, ["p0", "p1"], id="to nothing"),
    ],
)
def test_replica_set_keeps_its_count(
    replicas: int, there: list[dict[str, Any]], makes: int, ends: list[str]
) -> None:
    rs = owner("ReplicaSet", replicas=replicas)
    outcome = replicaset.reconcile(
        rs, [pod(f"p{i}", rs, **entry) for i, entry in enumerate(there)], NOW
    )
    assert len(created(outcome)) == makes
    assert sorted(deleted(outcome)) == ends
    for body in created(outcome):
        assert body["metadata"]["ownerReferences"][0]["uid"] == rs["metadata"]["uid"]
        assert body["metadata"]["generateName"] == "web-"


GPU_ONLY = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
OUR_TAINT = {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def daemon_set(tolerations: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    ds = owner("DaemonSet", updateStrategy={"type": "OnDelete"})
    ds["spec"]["template"]["spec"] |= {"tolerations": tolerations, **spec}
    return ds


@pytest.mark.parametrize(
    ("spec", "comes", "stays"),
    [
        pytest.param({}, True, True, id="free node"),
        pytest.param({"unschedulable": True, "taints": [CORDON]}, True, True, id="cordoned"),
        pytest.param({"taints": [OUR_TAINT]}, False, True, id="our taint keeps new pods away"),
        pytest.param(
            {"taints": [{**OUR_TAINT, "effect": "NoExecute"}]},
            False,
            False,
            id="NoExecute ends it",
        ),
        pytest.param(
            {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            True,
            True,
            id="tolerated",
        ),
        pytest.param(
            {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
            True,
            True,
            id="unreachable is tolerated by every DaemonSet",
        ),
    ],
)
def test_daemon_set_and_taints(spec: dict[str, Any], comes: bool, stays: bool) -> None:
    ds = daemon_set(GPU_ONLY)
    assert bool(created(daemonset.reconcile(ds, [], [node(**spec)], NOW))) == comes
    running = pod("here", ds, labels={daemonset.REVISION_LABEL: "any"})
    ends = deleted(daemonset.reconcile(ds, [running], [node(**spec)], NOW))
    assert ends == ([] if stays else ["here"])


def test_rolling_daemon_set_replaces_one_node_at_a_time() -> None:
    ds = owner("DaemonSet")
    pods = [
        pod(f"p{i}", ds, node=f"n{i}", labels={daemonset.REVISION_LABEL: "old"}) for i in (1, 2)
    ]
    assert deleted(daemonset.reconcile(ds, pods, [node("n1"), node("n2")], NOW)) == ["p1"]


SETTINGS = KubeletSettings(start_s=2.0, stop_s=1.0)
STARTED = PodMemory(seen_at=NOW - timedelta(seconds=60), boot=0)


def sim(**annotations: str) -> dict[str, str]:
    return {f"sim.gpuward.io/{key.replace('_', '-')}": value for key, value in annotations.items()}


def running(**more: Any) -> dict[str, Any]:
    return pod("a", startTime=ago(60), **more)


@pytest.mark.parametrize(
    ("stop_s", "stops_in_s"),
    [
        pytest.param(1.0, 1.0, id="by itself"),
        pytest.param(600.0, 30.0, id="killed when the grace period ends"),
    ],
)
def test_stopping(stop_s: float, stops_in_s: float) -> None:
    going = running(terminating=True)
    going["metadata"]["deletionGracePeriodSeconds"] = 30
    settings = KubeletSettings(stop_s=stop_s)
    waiting, memory = act(going, STARTED, 0, settings, NOW)
    assert (waiting.writes, waiting.again_in_s) == ((), stops_in_s)
    outcome, _ = act(going, memory, 0, settings, NOW + timedelta(seconds=stops_in_s))
    assert deleted(outcome) == ["a"]
    (gone,) = outcome.writes
    assert getattr(gone, "grace_s", None) == 0


def test_a_job_pod_ends_failed_before_it_goes() -> None:
    going = pod("a", owner("Job", api="batch/v1"), terminating=True)
    memory = replace(STARTED, stopping_since=NOW - timedelta(seconds=5))
    outcome, _ = act(going, memory, 0, SETTINGS, NOW)
    found = status(outcome)
    assert found["phase"] == "Failed"
    assert found["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert deleted(outcome) == ["a"]


@pytest.mark.parametrize(
    ("code", "phase"),
    [pytest.param("0", "Succeeded", id="success"), pytest.param("42", "Failed", id="failure")],
)
def test_a_pod_that_ends_by_itself(code: str, phase: str) -> None:
    busy = running(annotations=sim(finish_after="90s", exit_code=code))
    waiting, memory = act(busy, STARTED, 0, SETTINGS, NOW)
    assert waiting.again_in_s == 30
    outcome, _ = act(busy, memory, 0, SETTINGS, NOW + timedelta(seconds=30))
    assert status(outcome)["phase"] == phase
    assert deleted(outcome) == []


def test_after_a_reboot_containers_start_again() -> None:
    outcome, memory = act(running(), STARTED, 1, SETTINGS, NOW)
    assert status(outcome)["containerStatuses"][0]["restartCount"] == 1
    assert memory.boot == 1


TAINT = {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"}


def gpu_pod(name: str, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return pod(name, node="", spec={"containers": [container], **spec})


def affinity(**term: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [term]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("spec", "node_spec", "want"),
    [
        pytest.param({}, {}, None, id="fits"),
        pytest.param({}, {"unschedulable": True}, "node(s) were unschedulable", id="cordoned"),
        pytest.param(
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            {"unschedulable": True},
            None,
            id="tolerates the cordon",
        ),
        pytest.param(
            {},
            {"taints": [TAINT]},
            "node(s) had untolerated taint {gpuward.io/quarantine: Xid79}",
            id="tainted",
        ),
        pytest.param(
            {}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, None, id="a preference only"
        ),
        pytest.param({"nodeSelector": {"zone": "b"}}, {}, NOT_SELECTED, id="selector"),
        pytest.param(
            affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n1"]}]),
            {},
            None,
            id="this node by name",
        ),
        pytest.param(
            affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n2"]}]),
            {},
            NOT_SELECTED,
            id="another node by name",
        ),
        pytest.param(
            affinity(
                matchExpressions=[
                    {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
                ]
            ),
            {},
            NOT_SELECTED,
            id="affinity expression",
        ),
    ],
)
def test_may_a_pod_go_there(
    spec: dict[str, Any], node_spec: dict[str, Any], want: str | None
) -> None:
    candidate = gpu_pod("a", **spec)
    room = NodeRoom.of(node("n1", **node_spec))
    assert refusal(candidate["spec"], resource_requests(candidate), room) == want


def test_gpus_are_counted_against_other_pods_and_given_back() -> None:
    room = NodeRoom.of(node())
    running = gpu_pod("a", 6)
    running["spec"]["nodeName"] = "n1"
    room.take(running)
    wants = gpu_pod("b", 4)
    assert refusal(wants["spec"], resource_requests(wants), room) == "Insufficient nvidia.com/gpu"
    running["status"]["phase"] = "Succeeded"
    room.take(running)
    assert refusal(wants["spec"], resource_requests(wants), room) is None


def owned(*uids: str, **more: Any) -> dict[str, Any]:
    owners = [{"kind": "Node", "apiVersion": "v1", "name": uid, "uid": uid} for uid in uids]
    return {"metadata": meta("thing", ownerReferences=owners, **more)}


@pytest.mark.parametrize(
    ("uids", "goes", "kept"),
    [
        pytest.param(("dead",), True, None, id="its only owner is dead"),
        pytest.param(("alive",), False, None, id="alive"),
        pytest.param(("dead", "alive"), False, ["alive"], id="one of two"),
        pytest.param(("unknown",), False, None, id="a kind nobody knows keeps it"),
        pytest.param((), False, None, id="no owner"),
    ],
)
def test_dead_owners(uids: tuple[str, ...], goes: bool, kept: list[str] | None) -> None:
    states = {"dead": False, "alive": True, "unknown": None}
    outcome = Outcome(writes=tuple(judge(NODES, owned(*uids), lambda ref: states[ref["uid"]])))
    assert deleted(outcome) == (["thing"] if goes else [])
    left = [
        [ref["uid"] for ref in patch["metadata"]["ownerReferences"]]
        for _, patch in patched(outcome)
    ]
    assert left == ([kept] if kept else [])


FOREIGN = {"key": "example.com/mine", "effect": "NoSchedule"}
CORDON_KEY = "node.kubernetes.io/unschedulable"


def keys(outcome: Outcome) -> list[str] | None:
    for _, patch in patched(outcome):
        return [taint["key"] for taint in patch["spec"]["taints"] or []]
    return None


@pytest.mark.parametrize(
    ("spec", "ready", "want"),
    [
        pytest.param({}, "True", None, id="nothing to do"),
        pytest.param({"unschedulable": True}, "True", [CORDON_KEY], id="cordon"),
        pytest.param(
            {"taints": [FOREIGN, {"key": CORDON_KEY, "effect": "NoSchedule"}]},
            "True",
            ["example.com/mine"],
            id="uncordon leaves a foreign taint",
        ),
        pytest.param(
            {}, "Unknown", ["node.kubernetes.io/unreachable"] * 2, id="unreachable, two effects"
        ),
        pytest.param({}, "False", ["node.kubernetes.io/not-ready"] * 2, id="not ready"),
    ],
)
def test_taints_follow_the_state(spec: dict[str, Any], ready: str, want: list[str] | None) -> None:
    machine = node(**spec)
    machine["status"]["conditions"][0]["status"] = ready
    assert keys(reconcile_taints(machine, NOW)) == want


def test_a_pod_without_its_node_ends_failed_as_a_disruption() -> None:
    outcome = reconcile_orphan(pod("a"), NOW)
    found = status(outcome)
    assert found["phase"] == "Failed"
    assert found["conditions"][-1]["reason"] == "DeletionByPodGC"
    assert deleted(outcome) == ["a"]


def at(obj: dict[str, Any], version: int, **more: Any) -> dict[str, Any]:
    return {**obj, **more, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


class TestCache:
    def test_an_older_state_never_replaces_a_newer_one(self) -> None:
        cache = Cache(PODS)
        thing = pod("a")
        cache.store(at(thing, 90_009, mark="new"))
        cache.store(at(thing, 90_008, mark="old"))
        assert (cache.get(("team", "a")) or {})["mark"] == "new"
