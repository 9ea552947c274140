"""Every command of kubectl gpuward under exactly the ClusterRoles that ship for people."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.resource import PODS
from hack.sim.cluster.server import HostedServer
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kubectl.command import COMMANDS
from tests.support.remediator.kubectl_cluster import (
    REPOSITORY,
    Kubectl,
    cluster,
    load,
    may,
    viewer,
)
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, HEALTHY

BASE = REPOSITORY / "daemonset" / "base"
BECAUSE = ("--reason", "tested")
# The arguments of each command; in an order in which one prepares the next.
LINES = {
    "fleet": (),
    "why": (BLOCKED,),
    "plan": (),
    "preflight": (),
    "quarantine": (HEALTHY, *BECAUSE, "--yes"),
    "hold": (BLOCKED, *BECAUSE),
    "unhold": ("gpu-held",),
    "approve": (BLOCKED, "--step", "RestartNode", "--yes"),
    "mark-replaced": (BLOCKED, *BECAUSE),
    "release": (BLOCKED, *BECAUSE, "--yes"),
    "pause": BECAUSE,
    "resume": ("--yes",),
    "uninstall": ("--yes",),
    "evidence": (BLOCKED,),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that write a file or a folder do it here."""
    monkeypatch.chdir(tmp_path)


LOOKS = {"fleet", "why", "evidence"}
PLANS = {"plan", "preflight"}
FOR_ADMINISTRATORS = {"uninstall"}
LACKS = (
    "not allowed",
    "you may not",
    "not permitted",
    "\nunknown  ",
    "failed to run",
    "forbidden",
)


OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "w",
    "uid": "u",
    "controller": True,
}
# On a draining node, and nothing blocks it: plan has to ask about it.
EVICTABLE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "w-1", "namespace": "default", "ownerReferences": [OWNER]},
    "spec": {"nodeName": BLOCKED, "containers": [{"name": "main", "image": "w:1"}]},
    "status": {"phase": "Running"},
}


def bound(role: str, folder: Path) -> Iterator[Kubectl]:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        load(hosted, PODS, EVICTABLE)
        objects = may(role, BASE / "remediator-rbac.yaml")
        hosted.run(post_manifests(hosted.server.client, objects, namespace="gpuward"))

    options: dict[str, Any] = {"authorization": "RBAC", "tokens": {"secret": viewer()}}
    with cluster(folder, fill, **options) as kubectl:
        yield kubectl


@pytest.fixture(scope="module")
def as_viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    yield from bound("gpuward-viewer", tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def as_operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    yield from bound("gpuward-operator", tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def as_planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    yield from bound("gpuward-planner", tmp_path_factory.mktemp("planner"))


def test_every_command_is_in_the_table() -> None:
    assert set(LINES) == {command.name for command in COMMANDS}


@pytest.mark.parametrize(
    "name", [name for name in LINES if name not in FOR_ADMINISTRATORS | PLANS]
)
def test_an_operator_lacks_nothing(as_operator: Kubectl, name: str) -> None:
    code, out, err = as_operator(name, *LINES[name])
    assert (code, err) == (0, ""), out + err
    assert [one for one in LACKS if one in out] == [], out


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_planner_lacks_nothing(as_planner: Kubectl, name: str) -> None:
    code, out, err = as_planner(name, *LINES[name])
    assert (code, err) == (0, ""), out + err
    assert [one for one in LACKS if one in out] == [], out


@pytest.mark.parametrize("name", [name for name in LINES if name not in LOOKS | PLANS])
def test_a_planner_acts_on_nothing(as_planner: Kubectl, name: str) -> None:
    code, out, err = as_planner(name, *LINES[name])
    assert (code, out) == (1, "")
    assert "not allowed" in err


@pytest.mark.parametrize("role", ["gpuward-viewer", "gpuward-operator"])
def test_only_planning_can_evict_or_ask_about_other_accounts(role: str) -> None:
    granted = {
        (resource, verb)
        for found in read_manifests(BASE / "viewer-operator-roles.yaml")
        if found["metadata"]["name"] == role
        for rule in found["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ("nodes", "get") in granted
    assert not granted & {
        ("pods/eviction", "create"),
        ("subjectaccessreviews", "create"),
        ("deployments", "list"),
    }


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_a_viewer_sees_health_and_sessions(as_viewer: Kubectl, name: str) -> None:
    code, out, err = as_viewer(name, *LINES[name])
    assert (code, err) == (0, "")
    assert out


@pytest.mark.parametrize("name", [name for name in LINES if name not in LOOKS | {"preflight"}])
def test_a_viewer_acts_on_nothing(as_viewer: Kubectl, name: str) -> None:
    code, out, err = as_viewer(name, *LINES[name])
    assert (code, out) == (1, "")
    assert "not allowed" in err
    role = "ClusterRole gpuward-planner" if name in PLANS else "ClusterRole gpuward-operator"
    asks = "cluster administrators" if name in FOR_ADMINISTRATORS else role
    assert asks in err
    assert err.count("\n") == 1
