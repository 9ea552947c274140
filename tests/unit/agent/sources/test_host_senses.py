"""What the host shows of its services, and what a pod cannot see of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agent.sources.host import MAX_LOOKED_AT, SLICE, host_processes, host_seen
from agent.sources.machine import simulated
from hack.sim.driver import NODES, set_node
from rules.judge.observation import Service

FM, PERSISTENCED, IMEX = Service.FABRIC_MANAGER, Service.PERSISTENCED, Service.IMEX


def process(root: Path, pid: int, name: bytes, state: str = "S") -> None:
    folder = root / str(pid)
    folder.mkdir()
    stat = b"%d (%s) %s 1 1 1 0 -1 4194560 229 0 0" % (pid, name, state.encode())
    (folder / "stat").write_bytes(stat + b" 0" * 40 + b"\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A host's /proc: it has the kernel's threads."""
    process(tmp_path, 1, b"systemd")
    process(tmp_path, 2, b"kthreadd")
    (tmp_path / "meminfo").touch()
    return tmp_path


def test_services_are_known_by_the_fifteen_characters_the_kernel_keeps(proc: Path) -> None:
    process(proc, 900, b"nv-fabricmanage")
    process(proc, 901, b"nvidia-persiste", "Z")
    seen = host_processes(proc)
    assert seen is not None
    assert seen.services == {FM: True, PERSISTENCED: False, IMEX: False}, "a zombie does not run"


def test_in_a_pod_the_host_is_out_of_sight(tmp_path: Path) -> None:
    process(tmp_path, 1, b"gpuward-agent")
    process(tmp_path, 2, b"nvidia-smi", "D")
    assert host_processes(tmp_path) is None
    assert host_processes(tmp_path / "nowhere") is None


def test_one_that_ends_meanwhile_is_no_trouble(proc: Path) -> None:
    (proc / "77").mkdir()
    process(proc, 78, b"")
    (proc / "79").mkdir()
    (proc / "79" / "stat").write_bytes(b"")
    seen = host_processes(proc)
    assert seen is not None
    assert not any(seen.services.values())


def test_a_long_walk_pauses_and_an_endless_one_is_not_begun(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in range(3, 3 + 2 * SLICE):
        process(proc, pid, b"sleep")
    pauses: list[float] = []
    assert host_processes(proc, pauses.append) is not None
    assert len(pauses) == 2
    monkeypatch.setattr("agent.sources.host.MAX_LOOKED_AT", 2 * SLICE)
    assert MAX_LOOKED_AT > 5_000
    crowd = host_processes(proc, pauses.append)
    assert crowd is not None
    assert crowd.too_many
    assert not crowd.services
    assert len(pauses) == 2


def test_what_was_not_looked_at_is_none_and_not_nothing(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sources.host.MAX_LOOKED_AT", 1)
    monkeypatch.setattr("agent.sources.host.host_processes", lambda: host_processes(proc))
    seen = host_seen(5.0)
    assert seen.too_many_processes
    assert not seen.services


def test_the_real_machine_shows_what_psutil_shows() -> None:
    in_sight = psutil.pid_exists(2) and psutil.Process(2).name() == "kthreadd"
    seen = host_processes(pause=lambda _: None)
    assert (seen is not None) is in_sight
    facts = host_seen(5.0)
    assert facts.booted_at == psutil.boot_time()
    assert bool(facts.services) is in_sight


@pytest.mark.skipif(
    not (psutil.pid_exists(2) and psutil.Process(2).name() == "kthreadd"),
    reason="needs the process numbers of the host, which a container does not have",
)
def test_a_real_process_is_found_by_its_name() -> None:
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'nvidia-imex'); print(flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        seen = host_processes(pause=lambda _: None)
        child.stdin.close()
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        ended = host_processes(pause=lambda _: None)
    assert seen is not None
    assert seen.services[IMEX]
    assert ended is not None
    assert not ended.services[IMEX], "a zombie does not run"


def test_the_host_of_a_simulated_node_is_the_one_its_file_describes(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_bytes((NODES / "h100-8-nvswitch.yaml").read_bytes())
    machine = simulated(str(path))
    seen = machine.host(5.0)
    assert seen.services == {FM: True, PERSISTENCED: True, IMEX: False}
    assert [port.active for port in seen.ports] == [True] * 8
    assert seen.booted_at > 0
    set_node(path, host={"running": []})
    seen = machine.host(6.0)
    assert not any(seen.services.values())
    set_node(path, host={"running": None})
    seen = machine.host(7.0)
    assert not seen.services
