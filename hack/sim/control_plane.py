"""One way to have a cluster: simulated by default, real where KUBEBUILDER_ASSETS reports it.

`async with control_plane() as plane:` for asynchronous tests, the demo and benchmarks;
`control_plane_in_thread()` for synchronous ones. Kubelets, scheduler and controllers are ours.
"""

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hack.sim.cluster.client import Client, HttpClient, kubeconfig_text
from hack.sim.cluster.controllers.suite import ClusterControllers, Parts
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NAMESPACES, SERVICE_ACCOUNTS, Caller
from hack.sim.cluster.server import Hosted, SimulatedApiServer, in_thread
from hack.sim.manifests import post_manifests, read_manifests
from hack.sim.proxy.faults import Faults
from hack.sim.proxy.layer import RequestLog
from hack.sim.proxy.server import proxy_before
from hack.sim.real_control_plane import (
    DEVICE_TAINTS,
    SERVES_DEVICE_TAINTS,
    controller_manager_command,
    find_binaries,
    scheduler_command,
    start_real_control_plane,
)

ASSETS = "KUBEBUILDER_ASSETS"
ADMIN = "gpuward-admin"
ADMIN_GROUPS = ("system:masters",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What cluster is wanted.

    `secure` gives the simulator TLS, tokens and RBAC, which a real API server always has.
    `users` are static users with their groups; `manifests` are posted before anything runs.
    """

    parts: Parts = field(default_factory=Parts)
    secure: bool = False
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    manifests: tuple[Path, ...] = ()
    assets: Path | None = None
    device_taints: bool = False
    """A real control plane of Kubernetes 1.36 gets a scheduler and serves DeviceTaintRules."""
    flags: tuple[str, ...] = ()
    """Further flags of a real API server."""


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    """A running cluster. `client` acts as administrator; `simulator` is None for a real one.

    Clients with a kubeconfig pass the proxy: their calls are in `requests` and meet `faults`. The
    calls of `client` and of the controllers do not.
    """

    url: str
    ca_pem: bytes | None
    folder: Path
    client: Client
    controllers: ClusterControllers
    simulator: SimulatedApiServer | None
    tokens: dict[str, str]
    faults: Faults
    requests: RequestLog
    straight: Path | None = None
    """An administrator's kubeconfig that passes no proxy; None where there is no proxy."""

    @property
    def is_real(self) -> bool:
        """A real kube-apiserver answers."""
        return self.simulator is None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.user_kubeconfig(ADMIN)

    @property
    def straight_kubeconfig(self) -> Path:
        """The administrator's kubeconfig past the proxy, for benchmarks."""
        return self.straight or self.kubeconfig

    def user_kubeconfig(self, user: str) -> Path:
        """The kubeconfig of a static user."""
        return self._write(f"{user}.kubeconfig", self.tokens.get(user))

    def client_of(self, token: str | None) -> HttpClient:
        """A client with this token; its calls pass the proxy."""
        return HttpClient(self.url, token=token, tls=self._tls())

    async def service_account_token(
        self, namespace: str, name: str, *, pod: str | None = None, pod_uid: str | None = None
    ) -> str:
        """A token of a service account (made if absent), bound to a pod where one is named."""
        account = {"metadata": {"name": name, "namespace": namespace}}
        async with self.client_of(self.tokens.get(ADMIN)) as client:
            for resource, body, where in (
                (NAMESPACES, {"metadata": {"name": namespace}}, None),
                (SERVICE_ACCOUNTS, account, namespace),
            ):
                try:
                    await client.create(
                        resource,
                        {"apiVersion": "v1", "kind": resource.kind, **body},
                        where,
                    )
                except ApiError as error:
                    if error.code != 409:
                        raise
            spec: dict[str, Any] = {"expirationSeconds": 6 * 3600}
            if pod is not None:
                spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod}
                if pod_uid is not None:
                    spec["boundObjectRef"]["uid"] = pod_uid
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": spec,
            }
            answer = await client.create(
                SERVICE_ACCOUNTS, request, namespace, name=name, subresource="token"
            )
        return str(answer["status"]["token"])

    async def service_account_kubeconfig(
        self, namespace: str, name: str, *, pod: str | None = None
    ) -> Path:
        """The kubeconfig of a service account."""
        token = await self.service_account_token(namespace, name, pod=pod)
        return self._write(f"{namespace}-{name}.kubeconfig", token)

    def _write(self, name: str, token: str | None) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(kubeconfig_text(self.url, ca_pem=self.ca_pem, token=token), "utf-8")
        return path

    def _tls(self) -> Any:
        import ssl

        return ssl.create_default_context(cadata=self.ca_pem.decode()) if self.ca_pem else None


@asynccontextmanager
async def control_plane(setup: Setup | None = None) -> AsyncIterator[ControlPlane]:
    """A running cluster with its controllers and manifests; gone afterwards."""
    setup = setup or Setup()
    assets = setup.assets or (Path(os.environ[ASSETS]) if os.environ.get(ASSETS) else None)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuward-cluster-")))
        start = _real(setup, folder, assets) if assets else _simulated(setup, folder)
        plane = await stack.enter_async_context(start)
        for path in setup.manifests:
            await post_manifests(plane.client, read_manifests(path))
        await stack.enter_async_context(plane.controllers)
        yield plane


@asynccontextmanager
async def _simulated(setup: Setup, folder: Path) -> AsyncIterator[ControlPlane]:
    tokens = _tokens(setup) if setup.secure else {}
    callers = {
        token: Caller(user, (*_groups(setup)[user], "system:authenticated"))
        for user, token in tokens.items()
    }
    server = SimulatedApiServer(
        tls=setup.secure,
        tokens=callers if setup.secure else None,
        authorization="RBAC" if setup.secure else "AlwaysAllow",
    )
    async with server:
        yield ControlPlane(
            url=server.url,
            ca_pem=server.ca_pem,
            folder=folder,
            client=server.client,
            controllers=ClusterControllers(
                server.client.named("kube-controller-manager"), setup.parts
            ),
            simulator=server,
            tokens=tokens,
            faults=server.faults,
            requests=server.requests,
        )


@asynccontextmanager
async def _real(setup: Setup, folder: Path, assets: Path) -> AsyncIterator[ControlPlane]:
    binaries = find_binaries(assets)
    tokens = _tokens(setup)
    groups = _groups(setup)
    running = await start_real_control_plane(
        binaries,
        folder,
        {token: (user, groups[user]) for user, token in tokens.items()},
        tokens[ADMIN],
        (*setup.flags, *((*DEVICE_TAINTS, SERVES_DEVICE_TAINTS) if setup.device_taints else ())),
    )
    clients: list[HttpClient] = []
    try:
        ca_pem = (running.layout.certificates / "apiserver.crt").read_bytes()
        text = kubeconfig_text(running.layout.url, ca_pem=ca_pem, token=tokens[ADMIN])
        running.layout.kubeconfig.touch(mode=0o600)
        running.layout.kubeconfig.write_text(text, encoding="utf-8")
        clients.append(client := HttpClient.from_kubeconfig(running.layout.kubeconfig))
        # By the name of a program that is known to uncordon no node: it takes off the taint of
        # the cordon that an operator has just taken back.
        agent = "kube-controller-manager/0.1"
        clients.append(HttpClient.from_kubeconfig(running.layout.kubeconfig, agent))
        if binaries.controller_manager is not None:
            name = "kube-controller-manager"
            running.start(
                name,
                controller_manager_command(
                    binaries.controller_manager,
                    running.layout,
                    device_taints=setup.device_taints,
                ),
            )
            port = running.layout.controller_manager_port
            await running.answers(name, f"https://127.0.0.1:{port}/healthz")
        if setup.device_taints and binaries.scheduler is not None:
            name = "kube-scheduler"
            running.start(name, scheduler_command(binaries.scheduler, running.layout))
            await running.answers(
                name, f"https://127.0.0.1:{running.layout.scheduler_port}/healthz"
            )
        users = {token: user for user, token in tokens.items()}
        async with proxy_before(running.layout.url, ca_pem=ca_pem, users=users) as proxy:
            yield ControlPlane(
                url=proxy.url,
                ca_pem=proxy.ca_pem,
                folder=folder,
                client=client,
                controllers=ClusterControllers(clients[-1], setup.parts),
                simulator=None,
                tokens=tokens,
                faults=proxy.faults,
                requests=proxy.requests,
                straight=running.layout.kubeconfig,
            )
    finally:
        for each in clients:
            await each.close()
        await asyncio.to_thread(running.stop)


def _groups(setup: Setup) -> dict[str, tuple[str, ...]]:
    return {ADMIN: ADMIN_GROUPS, **setup.users}


def _tokens(setup: Setup) -> dict[str, str]:
    return {user: secrets.token_hex(16) for user in _groups(setup)}


@contextmanager
def control_plane_in_thread(setup: Setup | None = None) -> Iterator[Hosted[ControlPlane]]:
    """A running cluster for synchronous callers."""
    with in_thread(lambda: control_plane(setup)) as hosted:
        yield hosted
