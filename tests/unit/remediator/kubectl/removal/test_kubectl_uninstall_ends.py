"""`kubectl gpuward uninstall`: what still works on a node ends before the node is given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import Caller
from hack.sim.cluster.http.threaded import HostedServer
from remediator.kubectl.removal import jobs
from tests.support.cluster.provider_definitions import DEFINITIONS
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_objects import QUARANTINES, ago, marked, session

Object = dict[str, Any]
HOSTS = r.Resource("metal3.io", "v1alpha1", "baremetalhosts", True, "BareMetalHost")
TEST, RESET, BY_HAND = "tested-0badcafe-validate-1", "reset-0badcafe-resetgpu-1", "by-hand"
ASKED = "asked-0badcafe-restartnode-1"
REBOOT = "reboot.metal3.io"
DONE = {"type": "Complete", "status": "True"}


def labels(component: str) -> Object:
    return {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": component}


def job(name: str, node: str, component: str, note: str, *, over: bool = False) -> Object:
    template = {
        "metadata": {"labels": labels(component)},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "gpuward-agent:1"}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name, "namespace": "gpuward",
            "labels": labels(component),
            "annotations": {note: f"{name} ResetGPU ResetGPUJob"} if note else {},
        },
        "spec": {"template": template},
        "status": {"conditions": [DONE]} if over else {},
    }  # fmt: skip


def pod(of: Object) -> Object:
    """The pod that the Job controller made."""
    meta = of["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-x", "namespace": "gpuward", "labels": meta["labels"],
            "ownerReferences": [{**owner, "name": meta["name"], "uid": meta["uid"]}],
        },
        "spec": of["spec"]["template"]["spec"],
        "status": {"phase": "Running"},
    }  # fmt: skip


RUNNING = (
    job(TEST, "tested", "validate", "gpuward.io/test-of"),
    job(RESET, "reset", "reset-gpu", "gpuward.io/repair"),
)
LEFT_ALONE = (
    job("reset-0badcafe-validate-1", "reset", "validate", "gpuward.io/test-of", over=True),
    job(BY_HAND, "free", "validate", ""),
)


def fill(hosted: HostedServer) -> None:
    load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}}, {"metadata": {"name": "metal3"}})
    names = ("tested", "reset", "free", "asked")
    load(hosted, r.NODES, *(marked(name, f"{name}-0badcafe") for name in names))
    load(hosted, r.JOBS, *RUNNING, *LEFT_ALONE)
    made = (made_as(hosted, r.JOBS, each["metadata"]["name"], "gpuward") for each in RUNNING)
    load(hosted, r.PODS, *(pod(each) for each in made))


def made_as(hosted: HostedServer, resource: r.Resource, name: str, namespace: str) -> Object:
    """With the UID that the API server gave it."""
    found: Object = hosted.run(hosted.server.client.get(resource, name, namespace))
    return found


def a_host_is_asked(hosted: HostedServer) -> None:
    """A session asked for a restart through the machine of its node."""
    fill(hosted)
    for definition in DEFINITIONS:
        hosted.run(hosted.server.client.create(r.CUSTOM_RESOURCE_DEFINITIONS, definition))
    notes = {
        REBOOT: '{"mode":"soft"}',
        "gpuward.io/repair": f"{ASKED} RestartNode Metal3",
        "example.com/mine": "stays",
    }
    host = {
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {
            "name": "h", "namespace": "metal3", "annotations": notes,
        },
        "spec": {"online": True},
    }  # fmt: skip
    load(hosted, HOSTS, host)
    target = {
        "apiVersion": "metal3.io/v1alpha1", "resource": "baremetalhosts", "namespace": "metal3",
        "name": "h", "uid": made_as(hosted, HOSTS, "h", "metal3")["metadata"]["uid"],
    }  # fmt: skip
    step = {
        "step": "RestartNode", "adapter": "Metal3", "attempt": 1, "object": ASKED,
        "startedAt": ago(5), "askedAt": ago(5), "state": "Asked", "target": target,
    }  # fmt: skip
    asked = session("asked-0badcafe", "asked", "Repairing", "m", repair=[step])
    load(hosted, QUARANTINES, asked)


def leave(kubectl: Kubectl, pod: str, grace_s: int) -> None:
    client = kubectl.hosted.server.client
    kubectl.hosted.run(client.delete(r.PODS, pod, "gpuward", grace=grace_s))


@contextmanager
def garbage_collected(kubectl: Kubectl, after: threading.Event) -> Iterator[None]:
    """Once `after` is set the pods of the Jobs that are gone end, as their kubelets say."""

    def end() -> None:
        assert after.wait(30)
        for each in RUNNING:
            name = each["metadata"]["name"]
            leave(kubectl, f"{name}-x", 0)

    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield
    finally:
        after.set()
        thread.join()


def named(kubectl: Kubectl, resource: r.Resource) -> set[str]:
    found, _ = kubectl.hosted.run(kubectl.hosted.server.client.list(resource, "gpuward"))
    return {each["metadata"]["name"] for each in found}


def is_marked(kubectl: Kubectl, name: str) -> bool:
    notes = kubectl.get(r.NODES, name)["metadata"].get("annotations", {})
    return "gpuward.io/session" in notes


def test_jobs_of_ours_end_with_their_pods_before_any_node_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Job that is over stays for people to read, and one that a person made is theirs."""
    waits, seen = threading.Event(), []
    real = jobs._leaving

    async def looks(*args: Any) -> dict[str, list[str]]:
        found = await real(*args)
        seen.append(sorted(found))
        if found:
            waits.set()
        return found

    monkeypatch.setattr(jobs, "_leaving", looks)
    monkeypatch.setattr(jobs, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(jobs, "END_WITHIN_S", 30.0)
    with cluster(tmp_path, fill) as kubectl, garbage_collected(kubectl, waits):
        code, out, err = kubectl("uninstall", "--yes")
        assert code == 0, err
        assert named(kubectl, r.JOBS) == {each["metadata"]["name"] for each in LEFT_ALONE}
        assert not any(is_marked(kubectl, name) for name in ("tested", "reset", "free"))
    lines = err.splitlines()
    assert lines[:2] == [f"reset: Job {RESET} ended", f"tested: Job {TEST} ended"]
    assert lines[2].startswith("waiting for 2 pods of our Jobs on reset, tested to end (up to")
    assert seen[0] == ["reset", "tested"]
    assert seen[-1] == []
    assert "4 nodes cleaned" in out


def test_a_node_keeps_its_mark_while_the_pod_of_a_job_of_ours_is_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the first try was ended by a person, and the Job is gone."""
    monkeypatch.setattr(jobs, "END_WITHIN_S", 0.0)
    with cluster(tmp_path, fill) as kubectl:
        code, _, err = kubectl("uninstall", "--yes")
        assert code == 1
        assert is_marked(kubectl, "tested")
        assert is_marked(kubectl, "reset")
        assert not is_marked(kubectl, "free")
        leave(kubectl, f"{RESET}-x", 300)
        assert kubectl("uninstall", "--yes")[0] == 1
        assert is_marked(kubectl, "reset")
        assert not is_marked(kubectl, "tested")
    assert f"reset: not given back: pod gpuward/{RESET}-x of a Job of ours does not end" in err
    assert f"kubectl -n gpuward describe pod {RESET}-x says why" in err
    assert "2 nodes could not be cleaned: reset, tested" in err


def test_a_dry_run_says_which_jobs_would_end_and_ends_none(tmp_path: Path) -> None:
    with cluster(tmp_path, fill) as kubectl:
        code, out, err = kubectl("uninstall", "--dry-run")
        assert code == 0, err
        assert len(named(kubectl, r.JOBS)) == 4
    assert f"reset: Job {RESET} ended" in err
    assert f"tested: Job {TEST} ended" in err
    assert "4 nodes cleaned" in out
    assert "waiting" not in err


def test_what_was_asked_of_another_system_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a release does it: ours off, theirs untouched."""
    monkeypatch.setattr(jobs, "END_WITHIN_S", 0.0)
    with cluster(tmp_path, a_host_is_asked) as kubectl:
        _, out, err = kubectl("uninstall", "--yes")
        host = made_as(kubectl.hosted, HOSTS, "h", "metal3")
        assert host["metadata"]["annotations"] == {"example.com/mine": "stays"}
        assert not is_marked(kubectl, "asked")
        assert kubectl("uninstall", "--yes")[2].count("asked") == 0
    words = "baremetalhosts.metal3.io metal3/h"
    assert f"asked: request for a RestartNode taken off {words}" in err
    assert "may still ask" not in out + err


def without(*lacks: tuple[str, str]) -> list[Object]:
    """Everything that uninstall asks for but these (resource, verb), for ann."""
    every = [
        ("", "nodes", ("get", "list", "patch")), ("", "nodes/status", ("patch",)),
        ("", "pods", ("list",)), ("", "configmaps", ("get",)),
        ("apps", "deployments", ("get", "delete")), ("apps", "daemonsets", ("get", "delete")),
        ("coordination.k8s.io", "leases", ("get",)), ("batch", "jobs", ("list", "delete")),
        ("gpuward.io", "*", ("list",)), ("metal3.io", "baremetalhosts", ("get", "patch")),
    ]  # fmt: skip
    rules = [
        {
            "apiGroups": [group],
            "resources": [kind],
            "verbs": [verb for verb in verbs if (kind, verb) not in lacks],
        }
        for group, kind, verbs in every
    ]
    api = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": {"name": "most"}}
    return [
        {**role, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "ann"},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "most"},
            "subjects": [{"kind": "User", "name": "ann", "apiGroup": api}],
        },
    ]


@contextmanager
def as_ann(tmp_path: Path, *lacks: tuple[str, str]) -> Iterator[Kubectl]:
    def filled(hosted: HostedServer) -> None:
        a_host_is_asked(hosted)
        role, binding = without(*lacks)
        load(hosted, r.CLUSTER_ROLES, role)
        load(hosted, r.CLUSTER_ROLE_BINDINGS, binding)

    tokens = {"secret": Caller("ann", ("system:authenticated",))}
    with cluster(tmp_path, filled, authorization="RBAC", tokens=tokens) as kubectl:
        yield kubectl


def test_who_may_not_see_jobs_stops_nothing(tmp_path: Path) -> None:
    with as_ann(tmp_path, ("jobs", "list")) as kubectl:
        code, _, err = kubectl("uninstall", "--yes")
        asked = {one.verb for one in kubectl.hosted.server.requests.all}
    assert code == 1
    assert "not allowed" in err
    assert "this is for cluster administrators" in err
    assert asked <= {"get", "list", "create"}


@pytest.mark.parametrize(
    ("lacks", "node", "said"),
    [
        (("jobs", "delete"), "reset", f"its Job {RESET} could not be ended: not allowed"),
        (("baremetalhosts", "get"), "asked", "a request may still stand: baremetalhosts"),
        (("baremetalhosts", "patch"), "asked", "what was asked for it still stands: not allowed"),
    ],
)
def test_a_right_that_is_missing_is_said_and_the_node_keeps_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: tuple[str, str], node: str, said: str
) -> None:
    monkeypatch.setattr(jobs, "END_WITHIN_S", 0.0)
    with as_ann(tmp_path, lacks) as kubectl:
        code, _, err = kubectl("uninstall", "--yes")
        assert code == 1
        assert is_marked(kubectl, node)
        assert not is_marked(kubectl, "free")
    assert f"{node}: not given back: {said}" in err
