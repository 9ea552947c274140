"""`kubectl gpuward why` of a pod: people ask about what they lost, and that is a pod."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from rules.api.quarantine import Cause
from rules.api.requests import request
from rules.api.writes import EvictPod
from rules.drain.owners_told import owner_told
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, GONE, HEALTHY, NOW, Object
from tests.unit.remediator.kubectl.test_kubectl_roles import bound

FAULT = Cause(source="GPUFault", reason="Xid95UncontainedMemoryError", severity="Fatal")


def _event(pod: str, namespace: str = "training", node: str = BLOCKED) -> Object:
    """As the remediator writes it."""
    gone = EvictPod(node=node, namespace=namespace, name=pod, uid="u-gone")
    told = owner_told(gone, f"{node}-0badcafe", (FAULT,), None, NOW - 60)
    body = request(told).body
    assert body is not None
    return body


def _pod(name: str, namespace: str, node: str = "") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "solo:1"}]},
        "status": {"phase": "Running" if node else "Pending"},
    }


def _load(hosted: HostedServer) -> None:
    load_fleet(hosted)
    for name in ("training", "other"):
        load(hosted, r.NAMESPACES, {"metadata": {"name": name}})
    here = _pod("llama-1", "training", HEALTHY)
    twice = [_pod("twin-0", "training", HEALTHY), _pod("twin-0", "other")]
    load(hosted, r.PODS, here, _pod("llama-0", "training"), *twice)
    hosted.run(hosted.server.client.create(r.EVENTS, _event("llama-0"), namespace="training"))
    hosted.run(hosted.server.client.create(r.EVENTS, _event("llama-9"), namespace="training"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("pods"), _load) as kubectl:
        yield kubectl


@pytest.fixture(scope="module")
def as_viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    yield from bound("gpuward-viewer", tmp_path_factory.mktemp("viewer"))


def test_of_a_pod_that_runs_its_node_is_told_and_what_why_says_of_it(fleet) -> None:
    code, out, _ = fleet("why", "training/llama-1")
    first, _, rest = out.partition("\n")
    assert code == 0
    assert first.startswith(f"training/llama-1: a pod on node {HEALTHY}, Running, made ")
    assert rest.strip() == fleet("why", HEALTHY)[1].strip()


@pytest.mark.parametrize(
    "typed",
    [
        ("llama-9",),
        ("training/llama-9",),
        ("pod/llama-9",),
        ("po/llama-9", "-n", "training"),
        ("-n", "training", "pods/llama-9"),
    ],
)
def test_a_pod_that_was_evicted_is_told_of_however_it_is_named(fleet, typed) -> None:
    code, out, _ = fleet("why", *typed)
    said = " ".join(out.split())
    assert code == 0
    assert said.startswith("training/llama-9: there is no such pod any more evicted 2026-03-05 ")
    assert f"QuarantineEvicted: Evicted from node {BLOCKED}, which is taken out of" in said


def test_of_one_that_was_made_again_both_are_told(fleet) -> None:
    code, out, _ = fleet("why", "pod/llama-0", "-n", "training")
    said = " ".join(out.split())
    assert code == 0
    assert "training/llama-0: a pod on no node yet, Pending" in said
    assert "QuarantineEvicted, an earlier pod of this name: Evicted from node" in said
    assert "kubectl -n training describe pod llama-0" in said


def test_sessions_that_name_it_are_told_and_what_keeps_it(fleet) -> None:
    code, out, _ = fleet("why", "solo-0")
    said = " ".join(out.split())
    assert code == 0
    assert f"session {BLOCKED}-0badcafe of node {BLOCKED} names it: Draining for 14m" in said
    assert "it cannot leave: serving/solo" in said


def test_pods_of_one_name_in_several_namespaces_get_a_line_each(fleet) -> None:
    code, out, _ = fleet("why", "twin-0")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["other/twin-0", "training/twin-0"]
    assert "kubectl gpuward why other/twin-0" in out


def test_what_nobody_knows_is_neither_node_nor_pod(fleet) -> None:
    code, _, err = fleet("why", "llama-77")
    assert code == 1
    assert "there is no node llama-77, and nothing is known of a pod llama-77" in err
    code, out, _ = fleet("why", "training/llama-77")
    assert (code, out.splitlines()[0]) == (0, "training/llama-77: there is no such pod")
    assert "Events are kept an hour by default" in " ".join(out.split())


def test_a_node_is_one_still_whatever_pods_are_called(fleet) -> None:
    assert fleet("why", GONE)[1].startswith(f"{GONE}: there is no such node any more")


def test_for_programs_the_pod_and_its_node_are_one_document(fleet) -> None:
    value = json.loads(fleet("why", "training/llama-1", "-o", "json")[1])
    assert (value["pod"], value["node"], value["exists"]) == ("llama-1", HEALTHY, True)
    assert value["why"]["node"] == HEALTHY
    gone = json.loads(fleet("why", "llama-9", "-o", "json")[1])
    assert (gone["exists"], gone["events"][0]["reason"]) == (False, "QuarantineEvicted")


def test_what_may_not_be_seen_is_said(as_viewer) -> None:
    code, out, _ = as_viewer("why", "serving/solo-0")
    said = " ".join(out.split())
    assert code == 0
    assert "names it: Draining" in said
    assert "unseen pods in namespace serving (list pods)" in said
    assert "events in namespace serving (list events)" in said
    code, _, err = as_viewer("why", "llama-77")
    assert code == 1
    assert "not seen: pods of all namespaces (list pods)" in err


def test_other_commands_take_no_pod_for_a_node(fleet) -> None:
    assert fleet("hold", "pod/llama-1", "--reason", "x")[0] == 64
