"""Start a real etcd and kube-apiserver, and the type checker of admission policies where present.

`control_plane` uses it when KUBEBUILDER_ASSETS names a folder with the binaries (the convention of
envtest, whose settings this follows). Everything listens on loopback, lives in one temporary
folder and in process groups of its own, and is gone when `stop` returns.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

READY_S = 60.0
STOP_S = 15.0
_LOOK_EVERY_S = 0.2
_LOG_TAIL_BYTES = 2000
HOST = "127.0.0.1"


class ControlPlaneError(Exception):
    """A control plane that does not come up: one sentence with the end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The programs found in the assets folder."""

    etcd: Path
    api_server: Path
    controller_manager: Path | None
    scheduler: Path | None = None


def find_binaries(folder: Path) -> Binaries:
    """The binaries of a folder; ControlPlaneError names what is missing."""

    def program(name: str) -> Path | None:
        path = folder / name
        return path if path.is_file() and os.access(path, os.X_OK) else None

    etcd, api_server = program("etcd"), program("kube-apiserver")
    if etcd is None or api_server is None:
        missing = "etcd" if etcd is None else "kube-apiserver"
        raise ControlPlaneError(
            f"KUBEBUILDER_ASSETS is {folder}, but there is no executable {missing} in it: unset "
            "it to use the simulator, or point it at an envtest folder"
        )
    return Binaries(
        etcd=etcd,
        api_server=api_server,
        controller_manager=program("kube-controller-manager"),
        scheduler=program("kube-scheduler"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the files of one control plane lie and on which ports it listens."""

    folder: Path
    etcd_client_port: int
    etcd_peer_port: int
    api_port: int
    controller_manager_port: int
    scheduler_port: int = 0

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{HOST}:{self.api_port}"

    @property
    def etcd_url(self) -> str:
        """etcd's address for the API server."""
        return f"http://{HOST}:{self.etcd_client_port}"

    @property
    def tokens(self) -> Path:
        """The static tokens."""
        return self.folder / "tokens.csv"

    @property
    def signing_key(self) -> Path:
        """The private key of service account tokens."""
        return self.folder / "sa.key"

    @property
    def verifying_key(self) -> Path:
        """The public key of service account tokens."""
        return self.folder / "sa.pub"

    @property
    def certificates(self) -> Path:
        """Where the API server writes the certificate it makes for itself."""
        return self.folder / "certificates"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"


def etcd_command(binary: Path, layout: Layout) -> list[str]:
    """etcd without fsync: its data dies with the test anyway."""
    peer = f"http://{HOST}:{layout.etcd_peer_port}"
    return [
        str(binary),
        "--name=default",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync=true",
    ]


def api_server_command(binary: Path, layout: Layout) -> list[str]:
    """kube-apiserver as envtest runs it, with static tokens and RBAC.

    The ServiceAccount admission plugin is off because pods would wait for default accounts that
    no controller makes; the loopback address is advertised and no endpoints are reconciled, so
    that a machine without a default route will do.
    """
    return [
        str(binary),
        f"--etcd-servers={layout.etcd_url}",
        f"--cert-dir={layout.certificates}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={layout.api_port}",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        f"--token-auth-file={layout.tokens}",
        f"--service-account-issuer={layout.url}/",
        f"--service-account-key-file={layout.verifying_key}",
        f"--service-account-signing-key-file={layout.signing_key}",
    ]


DEVICE_TAINTS = ["--feature-gates=DRADeviceTaintRules=true"]
"""What every program of a cluster of 1.36 needs for DeviceTaintRules."""
SERVES_DEVICE_TAINTS = "--runtime-config=resource.k8s.io/v1beta2=true"


def scheduler_command(binary: Path, layout: Layout) -> list[str]:
    """kube-scheduler, which allocates ResourceClaims; ours does not."""
    return [
        str(binary),
        f"--kubeconfig={layout.kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={layout.scheduler_port}",
        f"--cert-dir={layout.folder / 'scheduler'}",
        "--leader-elect=false",
        *DEVICE_TAINTS,
    ]


def controller_manager_command(
    binary: Path, layout: Layout, *, device_taints: bool = False
) -> list[str]:
    """kube-controller-manager with the controllers that we do not have: one checks the types of
    admission policies, those of `device_taints` follow claims, rules and owners. Ours are the
    others, so that every run has the same ones.
    """
    controllers = ["validatingadmissionpolicy-status-controller"]
    if device_taints:
        controllers += ["resourceclaim-controller", "device-taint-eviction-controller"]
        controllers += ["garbage-collector-controller"]
    return [
        str(binary),
        f"--kubeconfig={layout.kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={layout.controller_manager_port}",
        f"--cert-dir={layout.folder / 'controller-manager'}",
        "--leader-elect=false",
        f"--controllers={','.join(controllers)}",
        *(DEVICE_TAINTS if device_taints else ()),
    ]


def token_file(tokens: Mapping[str, tuple[str, tuple[str, ...]]]) -> str:
    """The static token file: token, user, uid and the groups in one quoted column."""
    return "".join(
        f'{token},{user},{user},"{",".join(groups)}"\n' for token, (user, groups) in tokens.items()
    )


def free_ports(count: int) -> list[int]:
    """Ports that are free on loopback now; nothing keeps them until the programs listen."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(count):
            taken = held.enter_context(socket.socket())
            taken.bind((HOST, 0))
            ports.append(taken.getsockname()[1])
        return ports


def write_signing_keys(layout: Layout) -> None:
    """The key pair of service account tokens, in files that only we may read."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for path, content in ((layout.signing_key, private), (layout.verifying_key, public)):
        path.touch(mode=0o600)
        path.write_bytes(content)


@dataclass(slots=True)
class RealControlPlane:
    """The running programs, in the order in which they were started."""

    layout: Layout
    programs: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def start(self, name: str, command: list[str]) -> None:
        """Start a program in a process group of its own, its output in a log file.

        Where util-linux's setpriv is there, the program ends with us even when we are killed.
        """
        if (setpriv := shutil.which("setpriv")) is not None:
            command = [setpriv, "--pdeathsig=KILL", "--", *command]
        with self.log(name).open("wb") as log:
            program = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.layout.folder,
            )
        self.programs.append((name, program))

    def log(self, name: str) -> Path:
        """The log file of a program."""
        return self.layout.folder / f"{name}.log"

    async def answers(self, name: str, url: str, token: str | None = None) -> None:
        """Wait until the address answers 200; ControlPlaneError when the program ends first."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        deadline = asyncio.get_running_loop().time() + READY_S
        async with aiohttp.ClientSession(headers=headers) as session:
            while asyncio.get_running_loop().time() < deadline:
                self.check_alive()
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    # The server makes its own certificate: nobody could know it beforehand.
                    timeout = aiohttp.ClientTimeout(total=5)
                    async with session.get(url, ssl=False, timeout=timeout) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(_LOOK_EVERY_S)
        raise ControlPlaneError(f"{name} was not ready after {READY_S:.0f} s: {self.tail(name)}")

    def check_alive(self) -> None:
        """Raise ControlPlaneError for a program that ended by itself."""
        for name, program in self.programs:
            if program.poll() is not None:
                raise ControlPlaneError(
                    f"{name} ended with {program.returncode}: {self.tail(name)}"
                )

    def tail(self, name: str) -> str:
        """The end of a program's log."""
        data = self.log(name).read_bytes()[-_LOG_TAIL_BYTES:]
        return data.decode("utf-8", "backslashreplace").strip() or "its log is empty"

    def stop(self) -> None:
        """Ask each program to end, last started first; kill the group of one that does not."""
        for _, program in reversed(self.programs):
            _signal_group(program, signal.SIGTERM)
            try:
                program.wait(STOP_S)
            except subprocess.TimeoutExpired:
                _signal_group(program, signal.SIGKILL)
                program.wait()
        self.programs.clear()


def _signal_group(program: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, number)


async def start_real_control_plane(
    binaries: Binaries,
    folder: Path,
    tokens: Mapping[str, tuple[str, tuple[str, ...]]],
    admin: str,
    flags: Sequence[str] = (),
) -> RealControlPlane:
    """Start etcd and the API server with `flags`; returns when /readyz is good. `admin` is a token
    of admins.
    """
    ports = free_ports(5)
    layout = Layout(
        folder=folder,
        etcd_client_port=ports[0],
        etcd_peer_port=ports[1],
        api_port=ports[2],
        controller_manager_port=ports[3],
        scheduler_port=ports[4],
    )
    layout.tokens.touch(mode=0o600)
    layout.tokens.write_text(token_file(tokens), encoding="utf-8")
    write_signing_keys(layout)
    plane = RealControlPlane(layout)
    try:
        plane.start("etcd", etcd_command(binaries.etcd, layout))
        await plane.answers("etcd", f"{layout.etcd_url}/health")
        plane.start("kube-apiserver", [*api_server_command(binaries.api_server, layout), *flags])
        await plane.answers("kube-apiserver", f"{layout.url}/readyz", admin)
    except BaseException:
        plane.stop()
        raise
    return plane
