"""Whose process a line named: asked of a simulated API server, rarely, and never waited for."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.inbox import Log
from agent.kube.client import Kube
from agent.senses import workloads
from agent.senses.workloads import WorkloadLookup
from hack.sim.cluster.calls import Caller
from hack.sim.cluster.http.threaded import HostedServer, run_in_thread
from hack.sim.cluster.resource import NAMESPACES, PODS
from rules.api.kube_config import from_files
from rules.judge.observation import KernelLineSeen, SourceChanged, SourceState, WorkloadSeen
from rules.kernel_log.parse import parse_message

PATIENCE_S = 20.0
PATH = "/api/v1/pods"


@pytest.fixture
def hosted() -> Iterator[HostedServer]:
    reader = Caller(name="admin", groups=("system:masters",))
    tokens = {"reader": reader, "stranger": Caller(name="stranger", groups=())}
    with run_in_thread(tokens=tokens, authorization="RBAC") as running:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
        running.server.load(NAMESPACES, [namespace])
        running.server.load(
            PODS,
            [
                a_pod("train-x2b4z", "gpu-1", "Job", "train"),
                a_pod("serve-x2b4z", "gpu-1", "StatefulSet", "serve"),
                a_pod("other-x2b4z", "gpu-2", "Job", "other"),
            ],
        )
        yield running


def a_pod(name: str, node: str, kind: str, owner: str) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": f"uid-{owner}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "secret.example/x"}]},
    }


class Asked:
    """A lookup of which the test plays the main loop and the processes."""

    def __init__(self, kube: Kube, **options: Any) -> None:
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.now = 1000.0
        self.pods: dict[str, str] = {}
        self.processes: dict[int, str] = {}
        self.looked: list[int] = []
        self.lookup = WorkloadLookup(
            kube,
            "gpu-1",
            self.said.put,
            pod_of=self._pod_of,
            host_in_sight=options.get("host_in_sight", lambda: True),
            clock=lambda: self.now,
            gather_s=0.0,
        )

    def _pod_of(self, pid: int, _at: float) -> str:
        self.looked.append(pid)
        return self.processes.get(pid, "")

    def ask(self, pid: int, pod: str = "", *, xid: int = 31, pci: str = "0000:10:00") -> None:
        self.processes[pid] = self.pods.get(pod, pod)
        line = parse_message(f"NVRM: Xid (PCI:{pci}): {xid}, pid={pid}, name=x, y".encode())
        assert line is not None
        self.lookup.ask(
            KernelLineSeen(at=time.time(), sequence=pid, boot_id="b", lookback=False, line=line)
        )

    def next(self) -> Any:
        return self.said.get(timeout=PATIENCE_S)

    def looks(self, count: int) -> None:
        """Wait until so many processes were looked at."""
        wait_for(lambda: len(self.looked) >= count)


def wait_for(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def uids(hosted: HostedServer) -> dict[str, str]:
    """The UIDs that the server gave, by the first word of the pod's name."""
    pods, _ = hosted.run(hosted.server.client.list(PODS, "ml"))
    return {p["metadata"]["name"].partition("-")[0]: p["metadata"]["uid"] for p in pods}


def lists(hosted: HostedServer) -> int:
    return hosted.server.requests.count(verb="list", resource="pods")


@contextmanager
def asking(
    hosted: HostedServer, folder: Path, token: str = "reader", **options: Any
) -> Iterator[Asked]:
    path = hosted.server.write_kubeconfig(folder / "config", token)
    asked = Asked(Kube(from_files(path), user_agent="test"), **options)
    asked.pods = uids(hosted)
    asked.lookup.start()
    try:
        yield asked
    finally:
        asked.lookup.close()


def test_the_workload_comes_after_the_line_and_is_known_then(
    hosted: HostedServer, tmp_path: Path
) -> None:
    with asking(hosted, tmp_path) as asked:
        assert asked.next().state is SourceState.UP
        asked.ask(7, "train")
        found = asked.next()
        assert isinstance(found, WorkloadSeen)
        assert found.record.line.pid == 7
        assert found.workload.uid == "uid-train"
        assert found.workload.name == "Job ml/train"
        asked.ask(8, "serve")
        assert asked.next().workload.name == "StatefulSet ml/serve"
        assert lists(hosted) == 1


def test_what_pods_run_is_not_even_asked_for(hosted: HostedServer, tmp_path: Path) -> None:
    path = hosted.server.write_kubeconfig(tmp_path / "config", "reader")
    kube = Kube(from_files(path), user_agent="test")
    assert {pod.name for pod in kube.pods_on("gpu-1")} == {"train-x2b4z", "serve-x2b4z"}
    assert kube.pods_on("gpu-3") == ()
    response = kube._send(
        "GET", PATH, accept="application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    )
    assert b"train-x2b4z" in (content := response.read())
    assert b"secret.example" not in content


@pytest.mark.parametrize("pod", ["", "other", "nobody"])
def test_who_is_not_found_stays_unknown(hosted: HostedServer, tmp_path: Path, pod: str) -> None:
    with asking(hosted, tmp_path) as asked:
        asked.next()
        asked.ask(7, pod)
        asked.ask(8, "train")
        assert asked.next().record.line.pid == 8
        assert asked.said.empty()


def test_one_process_is_looked_at_once_a_minute(hosted: HostedServer, tmp_path: Path) -> None:
    with asking(hosted, tmp_path) as asked:
        for _ in range(500):
            asked.ask(7)
        asked.ask(7, pci="0000:11:00")
        asked.ask(7, xid=13)
        asked.looks(3)
        asked.now += workloads.ASK_AGAIN_S
        asked.ask(7)
        asked.looks(4)
    assert asked.looked == [7] * 4
    assert lists(hosted) == 0


def test_pods_are_read_again_half_a_minute_later_and_not_before(
    hosted: HostedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "READ_SPACING_S", 0.3)
    with asking(hosted, tmp_path) as asked:
        asked.next()
        asked.ask(7, "train")
        asked.next()
        hosted.call(lambda: hosted.server.load(PODS, [a_pod("new", "gpu-1", "Job", "new")]))
        asked.pods = uids(hosted)
        asked.ask(8, "new")
        assert asked.next().workload.name == "Job ml/new"
        assert lists(hosted) == 2


def test_without_the_permission_it_is_said_once_and_not_asked_again(
    hosted: HostedServer, tmp_path: Path
) -> None:
    with asking(hosted, tmp_path, "stranger") as asked:
        asked.next()
        asked.ask(7, "train")
        said = asked.next()
        assert isinstance(said, Log)
        assert "apply component workloads" in said.sentence
        down = asked.next()
        assert isinstance(down, SourceChanged)
        assert (down.state, down.reason) == (SourceState.DOWN, "Forbidden")
        for pid in range(20, 40):
            asked.ask(pid, "train")
        asked.looks(21)
        assert asked.said.empty()
        assert lists(hosted) == 1
        asked.now += workloads.AFTER_REFUSAL_S
        asked.ask(50, "train")
        assert isinstance(asked.next(), Log)
        assert lists(hosted) == 2


def test_a_permission_that_was_granted_is_noticed_without_another_fault(
    hosted: HostedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "AFTER_REFUSAL_S", 0.3)
    granted = Caller(name="admin", groups=("system:masters",))
    with asking(hosted, tmp_path, "stranger") as asked:
        asked.next()
        asked.ask(7, "train")
        assert isinstance(asked.next(), Log)
        assert asked.next().state is SourceState.DOWN
        hosted.call(lambda: hosted.server.authenticator.add("stranger", granted))
        while isinstance(said := asked.next(), Log):
            assert "cannot be read" in said.sentence
        assert said.state is SourceState.UP
        asked.ask(8, "train")
        assert asked.next().workload.uid == "uid-train"


def test_a_token_that_is_not_taken_is_no_missing_permission(
    hosted: HostedServer, tmp_path: Path
) -> None:
    hosted.call(lambda: hosted.server.authenticator.revoke("reader"))
    with asking(hosted, tmp_path) as asked:
        asked.next()
        asked.ask(7, "train")
        assert "tried again at a later fault" in asked.next().sentence
        granted = Caller(name="admin", groups=("system:masters",))
        hosted.call(lambda: hosted.server.authenticator.add("reader", granted))
        asked.now += workloads.AFTER_FAILURE_S
        asked.ask(8, "train")
        assert asked.next().workload.uid == "uid-train", "and never Down in between"


def test_a_server_that_fails_is_asked_at_a_later_fault(
    hosted: HostedServer, tmp_path: Path
) -> None:
    hosted.call(lambda: hosted.server.faults.throttle(path=PATH))
    with asking(hosted, tmp_path) as asked:
        asked.next()
        asked.ask(7, "train")
        said = asked.next()
        assert isinstance(said, Log)
        assert "tried again at a later fault" in said.sentence
        asked.now += workloads.AFTER_FAILURE_S
        asked.ask(7, "train")
        assert asked.next().workload.uid == "uid-train"


def test_without_the_hosts_processes_nothing_is_looked_at(
    hosted: HostedServer, tmp_path: Path
) -> None:
    with asking(hosted, tmp_path, host_in_sight=lambda: False) as asked:
        assert "component full" in asked.next().sentence
        absent = asked.next()
        assert (absent.state, absent.reason) == (SourceState.ABSENT, "NoHostProcesses")
        asked.ask(7, "train")
        assert asked.said.empty()
    assert asked.looked == []
    assert lists(hosted) == 0


def test_a_flood_of_processes_is_cut_off(hosted: HostedServer, tmp_path: Path) -> None:
    path = hosted.server.write_kubeconfig(tmp_path / "config", "reader")
    asked = Asked(Kube(from_files(path), user_agent="test"))
    asked.lookup._said = (SourceState.UP, "")  # as after a start, with threads that do not run yet
    for pid in range(1, 5000):
        asked.ask(pid)
    assert asked.lookup._records.qsize() == workloads.MAX_QUEUED
    assert len(asked.lookup._asked) <= workloads.MAX_ASKED
