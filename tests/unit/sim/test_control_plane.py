"""The control plane: command lines of the real programs, the simulator, threads, failures."""

from __future__ import annotations

import csv
import io
import shlex
import stat
import time
from pathlib import Path

import pytest

from hack.sim.cluster.controllers.suite import Parts
from hack.sim.cluster.fleet.fleet import Fleet, Pool, Serving
from hack.sim.cluster.resource import NODES, PODS
from hack.sim.control_plane import (
    ASSETS,
    Setup,
    control_plane,
    control_plane_in_thread,
    real_parts,
)
from hack.sim.real_control_plane import (
    Binaries,
    ControlPlaneError,
    Layout,
    RealControlPlane,
    api_server_command,
    controller_manager_command,
    etcd_command,
    find_binaries,
    free_ports,
    scheduler_command,
    token_file,
    write_signing_keys,
)

LAYOUT = Layout(
    folder=Path("/run/cp"),
    etcd_client_port=1001,
    etcd_peer_port=1002,
    api_port=1003,
    controller_manager_port=1004,
    scheduler_port=1005,
)


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ASSETS, raising=False)


def flags(command: list[str]) -> dict[str, str]:
    return dict(part.removeprefix("--").split("=", 1) for part in command[1:])


def test_etcd_listens_on_loopback_only() -> None:
    found = flags(etcd_command(Path("/assets/etcd"), LAYOUT))
    assert found["listen-client-urls"] == found["advertise-client-urls"] == "http://127.0.0.1:1001"
    assert found["listen-peer-urls"] == found["initial-advertise-peer-urls"]
    assert found["initial-cluster"] == f"{found['name']}={found['listen-peer-urls']}"
    assert found["data-dir"] == "/run/cp/etcd"


def test_api_server_as_envtest_runs_it() -> None:
    command = api_server_command(Path("/assets/kube-apiserver"), LAYOUT)
    assert command[0] == "/assets/kube-apiserver"
    assert flags(command) == {
        "etcd-servers": "http://127.0.0.1:1001",
        "cert-dir": "/run/cp/certificates",
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": "1003",
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.0.0.0/24",
        "allow-privileged": "true",
        "authorization-mode": "RBAC",
        "disable-admission-plugins": "ServiceAccount",
        "token-auth-file": "/run/cp/tokens.csv",
        "service-account-issuer": "https://127.0.0.1:1003/",
        "service-account-key-file": "/run/cp/sa.pub",
        "service-account-signing-key-file": "/run/cp/sa.key",
    }


@pytest.mark.parametrize(
    ("command", "port"),
    [
        pytest.param(controller_manager_command(Path("kcm"), LAYOUT), "1004", id="controllers"),
        pytest.param(scheduler_command(Path("ks"), LAYOUT), "1005", id="scheduler"),
    ],
)
def test_controllers_run_alone_on_loopback(command: list[str], port: str) -> None:
    found = flags(command)
    assert found["leader-elect"] == "false"
    assert (found["bind-address"], found["secure-port"]) == ("127.0.0.1", port)
    assert found["kubeconfig"] == "/run/cp/admin.kubeconfig"


def test_tokens_are_one_csv_line_each_with_the_groups_in_one_column() -> None:
    text = token_file({"t1": ("admin", ("system:masters",)), "t2": ("ann", ("a", "b"))})
    assert list(csv.reader(io.StringIO(text))) == [
        ["t1", "admin", "admin", "system:masters"],
        ["t2", "ann", "ann", "a,b"],
    ]


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


@pytest.mark.parametrize(
    ("names", "controllers", "scheduler", "heartbeat_s"),
    [
        pytest.param((), True, True, None, id="ours beside a bare API server"),
        pytest.param(("kube-controller-manager",), False, True, 10.0, id="real controllers"),
        pytest.param(
            ("kube-controller-manager", "kube-scheduler"), False, False, 10.0, id="all real"
        ),
    ],
)
def test_real_programs_replace_ours_but_never_the_kubelets(
    tmp_path: Path,
    names: tuple[str, ...],
    controllers: bool,
    scheduler: bool,
    heartbeat_s: float | None,
) -> None:
    found: Binaries = find_binaries(binaries(tmp_path, "etcd", "kube-apiserver", *names))
    parts = real_parts(Parts(), found)
    assert (parts.controllers, parts.scheduler, parts.kubelets) == (controllers, scheduler, True)
    assert parts.heartbeat_s == heartbeat_s


def test_signing_keys_are_for_us_only(tmp_path: Path) -> None:
    layout = Layout(
        folder=tmp_path,
        etcd_client_port=1,
        etcd_peer_port=2,
        api_port=3,
        controller_manager_port=4,
        scheduler_port=5,
    )
    write_signing_keys(layout)
    assert b"BEGIN RSA PRIVATE KEY" in layout.signing_key.read_bytes()
    assert b"BEGIN PUBLIC KEY" in layout.verifying_key.read_bytes()
    assert stat.S_IMODE(layout.signing_key.stat().st_mode) == 0o600


def running(tmp_path: Path) -> RealControlPlane:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    return RealControlPlane(
        Layout(
            folder=tmp_path,
            etcd_client_port=ports[0],
            etcd_peer_port=ports[1],
            api_port=ports[2],
            controller_manager_port=ports[3],
            scheduler_port=ports[4],
        )
    )


async def test_a_program_that_dies_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    plane = running(tmp_path)
    plane.start("etcd", ["/bin/sh", "-c", "echo no space left; exit 3"])
    with pytest.raises(ControlPlaneError, match="etcd ended with 3: no space left"):
        await plane.answers("etcd", f"{plane.layout.etcd_url}/health")
    plane.stop()


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


async def test_a_simulated_cluster_comes_with_its_fleet() -> None:
    fleet = Fleet(
        pools=(Pool(name="gpu", nodes=2),),
        workloads=(Serving(name="web", replicas=2, pool="gpu"),),
    )
    async with control_plane(Setup(fleet=fleet)) as plane:
        assert not plane.is_real
        assert len((await plane.client.list(NODES))[0]) == 2
        pods, _ = await plane.client.list(PODS)
        assert [pod["status"]["phase"] for pod in pods] == ["Running", "Running"]
        folder = plane.folder
        assert plane.url in plane.kubeconfig.read_text()
    assert not folder.exists()


def test_a_synchronous_caller_gets_a_cluster_in_a_thread() -> None:
    with control_plane_in_thread(Setup(fleet=Fleet(pools=(Pool(name="gpu", nodes=1),)))) as found:
        nodes, _ = found.call(found.plane.client.list(NODES))
        assert [node["metadata"]["name"] for node in nodes] == ["gpu-0000"]


def test_a_failure_to_start_reaches_the_synchronous_caller(tmp_path: Path) -> None:
    with (
        pytest.raises(ControlPlaneError, match="no executable etcd"),
        control_plane_in_thread(Setup(assets=tmp_path)),
    ):
        raise AssertionError("never reached")
