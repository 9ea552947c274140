"""Commands that steer a node: what they ask, write, and say of what failed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.resource import NODES
from hack.sim.cluster.server import HostedServer, run_in_thread
from hack.sim.manifests import post_manifests
from remediator.kubectl.cluster import GROUP_PATH, Cluster, connect
from remediator.kubectl.command import CommandError
from remediator.kubectl.parser import make_parser
from remediator.kubectl.quarantine import join
from rules.api.names import ANNOTATION_HOLD
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load, viewer
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, QUARANTINES, node, session
from tests.support.standard_input import standard_input


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param("y\n", 0, id="y"),
        pytest.param("YES\n", 0, id="YES"),
        pytest.param("\n", 1, id="return"),
        pytest.param("n\n", 1, id="n"),
        pytest.param("", 1, id="end of input"),
    ],
)
def test_it_asks_before_it_takes_capacity(tmp_path, line, code):
    with cluster(tmp_path, load_fleet) as kubectl, standard_input(line):
        found, _, err = kubectl("quarantine", BLOCKED, "--reason", "x")
        causes = kubectl.get(QUARANTINES, f"{BLOCKED}-0badcafe")["spec"]["causes"]
    assert found == code
    assert f"{BLOCKED} already has an open session (Draining): your reason is added" in err
    assert len(causes) == (1 if code else 2)


JOINED = "gpu-7-0a1b2c3d"
PATH = f"{GROUP_PATH}/gpuquarantines/{JOINED}"
ANN = Cause(source="Human", reason="Requested", message="noise", by="ann")
BOB = {"source": "Human", "reason": "Requested", "message": "smoke", "by": "bob"}


def joined(folder: Path, meanwhile: dict[str, Any], level: str, *, stops: bool) -> tuple[Any, str]:
    """The session's spec after ann joined, while somebody else wrote `meanwhile`; the output
    for her.
    """

    async def help_text(kubectl: Kubectl) -> str:
        arguments = ["--kubeconfig", str(kubectl.kubeconfig), "fleet"]
        async with connect(make_parser().parse_args(arguments), print) as one:
            seen = await one.session(JOINED)
            assert seen is not None
            await one.patch(PATH, meanwhile)
            return await answer(one, seen)

    async def answer(one: Cluster, seen: QuarantineView) -> str:
        try:
            return await join(one, seen, ANN, level, stops=stops)
        except CommandError as error:
            return f"refused: {error}"

    quarantined = session(JOINED, "gpu-7", "Marked", "m", spec={"level": "Cordon"})
    with cluster(folder, lambda hosted: load(hosted, QUARANTINES, quarantined)) as found:
        output = asyncio.run(help_text(found))
        return found.get(QUARANTINES, JOINED)["spec"], output


def test_what_a_detector_added_meanwhile_stays(tmp_path: Path) -> None:
    detector = {"source": "Detector", "reason": "Xid95UncontainedMemoryError"}
    spec, output = joined(tmp_path, {"spec": {"causes": [detector]}}, "Cordon", stops=False)
    assert [cause["reason"] for cause in spec["causes"]] == [detector["reason"], "Requested"]
    assert "was added" in output


@pytest.mark.parametrize("level", ["Cordon", "Drain"])
def test_a_concurrent_request_is_not_overwritten(tmp_path: Path, level: str) -> None:
    """Ann confirmed a state that has changed since."""
    bobs = {"spec": {"causes": [BOB], "level": "Drain"}}
    spec, output = joined(tmp_path, bobs, level, stops=True)
    assert spec["level"] == "Drain"
    assert [cause["by"] for cause in spec["causes"]] == ["bob"]
    assert output.startswith("refused:")
    assert "try again" in output


BECAUSE = ("--reason", "tested")
OURS = "gpuward.io"
# Who may steer nodes and only look at sessions.
NODES_ONLY = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "nodes-only"},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
            {"apiGroups": [OURS], "resources": ["*"], "verbs": ["get", "list"]},
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "nodes-only"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "nodes-only"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
    },
]  # fmt: skip


@pytest.mark.parametrize("command", ["hold", "mark-replaced", "unhold"])
def test_walk_what_cannot_be_read_keeps_a_command_from_writing(
    tmp_path: Path, command: str
) -> None:
    """Before the definitions are installed: an error that had written all the same would lie."""
    kept = {ANNOTATION_HOLD: "vendor"}
    with run_in_thread() as hosted:
        load(hosted, NODES, node("gpu-7", annotations=kept))
        kubectl = Kubectl(hosted, tmp_path)
        code, out, err = kubectl(command, "gpu-7", *(() if command == "unhold" else BECAUSE))
        found = kubectl.get(NODES, "gpu-7")["metadata"]["annotations"]
    assert (code, out) == (1, "")
    assert "does not know gpuward's objects" in err
    assert found == kept


@pytest.fixture(scope="module")
def nodes_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        hosted.run(post_manifests(hosted.server.client, NODES_ONLY, namespace="gpuward"))

    folder = tmp_path_factory.mktemp("nodes-only")
    rights: dict[str, Any] = {"authorization": "RBAC", "tokens": {"secret": viewer()}}
    with cluster(folder, fill, **rights) as kubectl:
        yield kubectl


def test_a_hold_that_fails_between_its_writes_names_the_first(nodes_only: Kubectl) -> None:
    code, out, err = nodes_only("hold", BLOCKED, *BECAUSE)
    assert (code, out) == (1, "")
    assert "the node is held, but its session could not be updated: not allowed" in err
    assert "run the command again" in err


def test_a_second_hold_names_the_one_it_replaces(tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        kubectl("hold", BLOCKED, "--reason", "vendor is on the way")
        code, out, _ = kubectl("hold", BLOCKED, "--reason", "second thought")
    assert code == 0
    assert "replaces the hold: vendor is on the way (" in out
