"""The cluster's authority is rotated while programs run: all go on without a restart."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from hack.sim.cluster.resource import NAMESPACES, NODES, Caller
from hack.sim.cluster.server import HostedServer, run_in_thread
from hack.sim.manifests import post_manifests, read_manifests
from tests.support.agent.agent_process import REPOSITORY, AgentProcess
from tests.support.agent.agent_process import running as running_agent
from tests.support.remediator.remediator_process import RemediatorProcess, running

NODE = "gpu-1"
WITHIN_S = 60.0
"""From the moment the files are right."""
TIMEOUT_S = 120.0


@pytest.fixture
def hosted() -> Iterator[HostedServer]:
    tokens = {"program": Caller(name="program", groups=("system:masters",))}
    with run_in_thread(tls=True, tokens=tokens) as server:
        client = server.server.client
        server.run(post_manifests(client, read_manifests(REPOSITORY / "daemonset" / "crds")))
        for resource, kind, name in ((NODES, "Node", NODE), (NAMESPACES, "Namespace", "gpuward")):
            body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
            server.run(client.create(resource, body))
        yield server


def kubeconfig(hosted: HostedServer, folder: Path, token: str) -> Path:
    """A kubeconfig that names `ca.crt` in its folder, as a pod's files are mounted."""
    config = yaml.safe_load(hosted.server.kubeconfig_text(token))
    for entry in config["clusters"]:
        del entry["cluster"]["certificate-authority-data"]
        entry["cluster"]["certificate-authority"] = "ca.crt"
    path = folder / f"config-{token}"
    path.write_text(yaml.safe_dump(config))
    return path


def put(folder: Path, *authorities: bytes | None) -> None:
    """The CA file, replaced at once as kubelet replaces a volume's files."""
    partial = folder / "ca.partial"
    partial.write_bytes(b"".join(one or b"" for one in authorities))
    partial.rename(folder / "ca.crt")


def until(check: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(0.1)


def served(hosted: HostedServer, *, agent: str = "", user: str = "", verb: str = "") -> int:
    """How many calls of one program or operator the server answered."""
    return sum(
        one.agent.startswith(agent) and user in one.user and verb in one.verb and one.code < 300
        for one in tuple(hosted.server.requests.all)
    )


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return int(answer.status) == 200
    except urllib.error.URLError:
        return False


@pytest.mark.parametrize(
    "bundle_first",
    [
        pytest.param(True, id="bundle first", marks=pytest.mark.slow),
        pytest.param(False, id="file comes late"),
    ],
)
def test_a_rotated_authority_is_taken_up_without_a_restart(
    hosted: HostedServer, tmp_path: Path, bundle_first: bool
) -> None:
    old = hosted.server.ca_pem
    put(tmp_path, old)
    program = kubeconfig(hosted, tmp_path, "program")
    remediator = RemediatorProcess(tmp_path, program)
    agent = AgentProcess(tmp_path, program, NODE)
    with (
        running(remediator),
        running_agent(agent),
    ):
        until(lambda: remediator.logged('"leading"'), "a leader")
        until(lambda: ready(remediator.port), "a ready remediator")
        until(lambda: served(hosted, agent="gpuward-agent", verb="update"), "a health object")
        before = remediator.pid

        hosted.run(hosted.server.stop())
        hosted.call(hosted.server.rotate_authority)
        if bundle_first:
            put(tmp_path, old, hosted.server.ca_pem)
        hosted.call(hosted.server.requests.all.clear)
        hosted.run(hosted.server.start())
        if not bundle_first:
            until(lambda: not ready(remediator.port), "a remediator that cannot go on")
            assert not served(hosted, verb="")
            put(tmp_path, hosted.server.ca_pem)

        deadline = time.monotonic() + WITHIN_S
        for who, there in {
            "the agent": lambda: served(hosted, agent="gpuward-agent"),
            "the remediator's lease": lambda: served(
                hosted, agent="gpuward-remediator", user="program", verb="update"
            ),
            "the remediator's watches": lambda: ready(remediator.port),
        }.items():
            until(there, f"{who} with the new authority", deadline - time.monotonic())
        assert remediator.pid == before
