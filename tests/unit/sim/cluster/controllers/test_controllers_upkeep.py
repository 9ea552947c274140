"""Garbage collection, namespaces, node taints, silent kubelets, orphaned pods, the cache."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.controllers.caches import Cache
from hack.sim.cluster.controllers.garbage_collector import judge
from hack.sim.cluster.controllers.nodes.node_lifecycle import (
    reconcile_orphan,
    reconcile_taints,
)
from hack.sim.cluster.controllers.writes import Outcome
from hack.sim.cluster.resource import NODES, PODS
from tests.support.cluster.controller_objects import (
    NOW,
    deleted,
    meta,
    node,
    patched,
    pod,
    status,
)


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
