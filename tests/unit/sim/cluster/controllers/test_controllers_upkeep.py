"""Garbage collection, namespaces, node taints, silent kubelets, orphaned pods, the cache."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.controllers.caches import Cache
from hack.sim.cluster.controllers.garbage_collector import finish_deletion, judge
from hack.sim.cluster.controllers.garbage_collector import reconcile as reconcile_namespace
from hack.sim.cluster.controllers.nodes.node_lifecycle import (
    reconcile_orphan,
    reconcile_taints,
)
from hack.sim.cluster.controllers.writes import Outcome
from hack.sim.cluster.resource import CONFIGMAPS, NODES, PODS
from tests.support.cluster.controller_objects import (
    NOW,
    ago,
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


def test_an_orphaning_owner_lets_go_of_its_dependents_first() -> None:
    owner = {"metadata": meta("o", finalizers=["orphan"], deletionTimestamp=ago(1))}
    dependent = owned(owner["metadata"]["uid"])
    outcome = Outcome(writes=tuple(finish_deletion(NODES, owner, [(CONFIGMAPS, dependent)])))
    assert patched(outcome) == [
        ("thing", {"metadata": {"ownerReferences": None}}),
        ("o", {"metadata": {"finalizers": None}}),
    ]


def test_a_foreground_owner_goes_after_its_dependents() -> None:
    owner = {"metadata": meta("o", finalizers=["foregroundDeletion"], deletionTimestamp=ago(1))}
    dependent = owned(owner["metadata"]["uid"])
    dependent["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True
    waiting = Outcome(writes=tuple(finish_deletion(NODES, owner, [(CONFIGMAPS, dependent)])))
    assert (deleted(waiting), patched(waiting)) == (["thing"], [])
    done = Outcome(writes=tuple(finish_deletion(NODES, owner, [])))
    assert patched(done) == [("o", {"metadata": {"finalizers": None}})]


def test_a_terminating_namespace_is_emptied_then_let_go() -> None:
    namespace = {
        "metadata": meta("team", deletionTimestamp=ago(1)),
        "spec": {"finalizers": ["kubernetes"]},
    }
    emptying = reconcile_namespace(
        namespace, [(PODS, pod("a")), (PODS, pod("b", terminating=True))]
    )
    assert deleted(emptying) == ["a"]
    (last,) = reconcile_namespace(namespace, []).writes
    assert getattr(last, "body", {})["spec"]["finalizers"] == []


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

    def test_a_full_list_drops_what_is_gone_and_tells(self) -> None:
        cache = Cache(PODS)
        told: list[tuple[bool, bool]] = []
        cache.subscribe(lambda old, new: told.append((old is not None, new is not None)))
        cache.replace([pod("a"), pod("b")])
        cache.replace([pod("b")])
        assert [entry["metadata"]["name"] for entry in cache] == ["b"]
        assert told.count((True, False)) == 2, "b came back under its name with another UID"

    def test_pods_are_found_by_node_owner_and_namespace(self) -> None:
        cache = Cache(PODS)
        thing = pod("a", node="n1")
        cache.store(thing)
        assert cache.on_node("n1") == [thing]
        moved = at(thing, 99_999, spec={"nodeName": "n2"})
        cache.store(moved)
        assert (cache.on_node("n1"), cache.on_node("n2")) == ([], [moved])
        cache.forget(moved)
        assert (cache.on_node("n2"), cache.in_namespace("team")) == ([], [])

    def test_pods_are_found_by_their_rarest_label(self) -> None:
        cache = Cache(PODS)
        gold, plain = pod("a", labels={"tier": "gold"}), pod("b")
        cache.replace([gold, plain])
        assert cache.labelled("team", {"app": "web", "tier": "gold"}) == [gold]
        assert cache.labelled("team", {"tier": "tin"}) == []
        assert cache.labelled("team", {}) == [gold, plain]
        assert cache.labelled("other", {"app": "web"}) == []

    def test_deleting_the_old_namesake_keeps_the_new(self) -> None:
        cache = Cache(PODS)
        old, new = pod("a"), pod("a")
        cache.store(new)
        cache.forget(old)
        assert cache.get(("team", "a")) == new

    def test_after_our_delete_an_object_counts_as_terminating(self) -> None:
        cache = Cache(PODS)
        thing = pod("a")
        cache.store(thing)
        cache.expect_deletion(thing, NOW)
        assert (cache.get(("team", "a")) or {})["metadata"]["deletionTimestamp"]
