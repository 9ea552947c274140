"""The control plane: starting and stopping the real programs, the simulator, failures."""

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack.sim.control_plane import (
    ASSETS,
    Setup,
    control_plane,
    control_plane_in_thread,
)
from hack.sim.real_control_plane import (
    ControlPlaneError,
    Layout,
    RealControlPlane,
    find_binaries,
    free_ports,
)


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ASSETS, raising=False)


def binaries(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        pytest.param(("kube-apiserver",), "etcd", id="no etcd"),
        pytest.param(("etcd",), "kube-apiserver", id="no API server"),
    ],
)
def test_an_incomplete_assets_folder_is_named(
    tmp_path: Path, names: tuple[str, ...], missing: str
) -> None:
    with pytest.raises(ControlPlaneError, match=f"no executable {missing} in it"):
        find_binaries(binaries(tmp_path, *names))


def running(tmp_path: Path) -> RealControlPlane:
    ports = free_ports(4)
    return RealControlPlane(
        Layout(
            folder=tmp_path,
            etcd_client_port=ports[0],
            etcd_peer_port=ports[1],
            api_port=ports[2],
            controller_manager_port=ports[3],
        )
    )


def test_stopping_takes_the_children_of_a_stubborn_program_along(tmp_path: Path) -> None:
    plane = running(tmp_path)
    child_file = tmp_path / "child"
    script = f"sleep 600 & echo $! > {shlex.quote(str(child_file))}; wait"
    plane.start("etcd", ["/bin/sh", "-c", script])
    program = plane.programs[0][1]
    for _ in range(1000):
        if child_file.exists() and child_file.read_text().strip():
            break
        time.sleep(0.01)
    child = int(child_file.read_text())
    plane.stop()
    assert program.returncode is not None
    assert gone(child)


def gone(pid: int) -> bool:
    """Whether the process ends (or waits for its parent) soon: signals take a moment."""
    state = Path(f"/proc/{pid}/status")
    for _ in range(1000):
        try:
            if "State:\tZ" in state.read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


async def test_a_simulated_cluster_leaves_no_folder() -> None:
    async with control_plane() as plane:
        assert not plane.is_real
        folder = plane.folder
        assert plane.url in plane.kubeconfig.read_text()
    assert not folder.exists()


def test_a_failure_to_start_reaches_the_synchronous_caller(tmp_path: Path) -> None:
    with (
        pytest.raises(ControlPlaneError, match="no executable etcd"),
        control_plane_in_thread(Setup(assets=tmp_path)),
    ):
        raise AssertionError("never reached")


REPOSITORY = Path(__file__).parents[3]


CUT = """
import pathlib, sys
sys.path.insert(0, {repository!r})
from hack.sim.real_control_plane import Layout, RealControlPlane

layout = Layout(
    folder=pathlib.Path(sys.argv[1]), etcd_client_port=1, etcd_peer_port=2, api_port=3,
    controller_manager_port=4,
)
plane = RealControlPlane(layout)
plane.start("sleep", ["sleep", "600"])
pid = plane.programs[0][1].pid
while pathlib.Path(f"/proc/{{pid}}/comm").read_text() != "sleep\\n":
    pass
print(pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not here")
def test_a_run_that_is_killed_leaves_no_program_behind(tmp_path: Path) -> None:
    source = CUT.format(repository=str(REPOSITORY))
    cut = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with cut:
        assert cut.stdout is not None
        program = int(cut.stdout.readline())
        ended = os.pidfd_open(program)
        try:
            cut.kill()
            assert select.select([ended], [], [], 20)[0], "it lives on without its run"
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(ended, signal.SIGKILL)
            os.close(ended)
