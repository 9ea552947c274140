"""The path of a real control plane, with stand-ins for its programs.

`etcd` answers its health check; `kube-apiserver` is the simulated server behind the real one's
flags: port, token file, certificate folder. So starting, waiting, trusting, tokens and stopping
are run as they are with the real programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.clients.http_client import HttpClient
from hack.sim.cluster.controllers.pods import is_ready
from hack.sim.cluster.fleet.fleet import Fleet, Pool, Serving
from hack.sim.cluster.resource import NODES, PODS
from hack.sim.control_plane import ASSETS, Setup, control_plane
from hack.sim.real_control_plane import ControlPlaneError

REPOSITORY = Path(__file__).parents[3]

ETCD = """
import http.server, sys, urllib.parse
flags = dict(part[2:].split("=", 1) for part in sys.argv[1:])
port = urllib.parse.urlsplit(flags["listen-client-urls"]).port

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""

API_SERVER = """
import asyncio, csv, pathlib, sys
from hack.sim.cluster.calls import Caller
from hack.sim.cluster.server import SimulatedApiServer

flags = dict(part[2:].split("=", 1) for part in sys.argv[1:])
rows = csv.reader(pathlib.Path(flags["token-auth-file"]).open())
tokens = {
    token: Caller(user, (*groups.split(","), "system:authenticated"))
    for token, user, _, groups in rows
}
assert pathlib.Path(flags["service-account-signing-key-file"]).is_file()

async def serve():
    server = SimulatedApiServer(
        port=int(flags["secure-port"]), tls=True, tokens=tokens, authorization="RBAC"
    )
    async with server:
        folder = pathlib.Path(flags["cert-dir"])
        folder.mkdir(parents=True)
        (folder / "apiserver.crt").write_bytes(server.ca_pem)
        await asyncio.Event().wait()

asyncio.run(serve())
"""

DEAD = """
import sys
sys.exit("error: unknown flag")
"""


def program(folder: Path, name: str, source: str) -> None:
    path, module = folder / name, folder / f"{name}.py"
    module.write_text(source)
    # The source tree is found by the environment: the programs run from anywhere.
    words = [f"PYTHONPATH={REPOSITORY}", sys.executable, str(module)]
    path.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    program(tmp_path, "etcd", ETCD)
    program(tmp_path, "kube-apiserver", API_SERVER)
    return tmp_path


async def ask(kubeconfig: Path) -> int:
    async with HttpClient.from_kubeconfig(kubeconfig) as client:
        return len((await client.list(NODES))[0])


async def test_a_cluster_of_real_programs_runs_our_controllers_over_http(
    assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASSETS, str(assets))
    fleet = Fleet(
        pools=(Pool(name="gpu", nodes=2),),
        workloads=(Serving(name="web", replicas=2, pool="gpu"),),
    )
    async with control_plane(Setup(fleet=fleet, users={"ann": ("viewers",)})) as plane:
        assert plane.is_real
        assert plane.url.startswith("https://127.0.0.1:")
        for _ in range(500):
            pods, _version = await plane.client.list(PODS)
            if len(pods) == 2 and all(is_ready(pod) for pod in pods):
                break
            await asyncio.sleep(0.02)
        assert [is_ready(pod) for pod in pods] == [True, True]

        assert await ask(plane.kubeconfig) == 2
        with pytest.raises(ApiError) as refused:
            await ask(plane.user_kubeconfig("ann"))
        assert refused.value.code == 403
        account = await plane.service_account_kubeconfig("gpuward-system", "agent")
        with pytest.raises(ApiError, match="system:serviceaccount:gpuward-system:agent"):
            await ask(account)
        asked = [(r.user, r.verb, r.resource, r.code) for r in plane.requests.all]
        account_name = "system:serviceaccount:gpuward-system:agent"
        assert asked[0] == ("gpuward-admin", "list", "nodes", 200)
        assert asked[1] == ("ann", "list", "nodes", 403)
        assert asked[-1] == (account_name, "list", "nodes", 403)
        lost = plane.faults.fail(ApiError(503, "ServiceUnavailable", "away"), times=None)
        with pytest.raises(ApiError, match="away"):
            await ask(plane.kubeconfig)
        assert len((await plane.client.list(NODES))[0]) == 2, "the test itself is spared"
        assert lost.hits == 1


async def test_a_program_that_refuses_its_flags_is_named(assets: Path) -> None:
    program(assets, "kube-apiserver", DEAD)
    with pytest.raises(
        ControlPlaneError, match="kube-apiserver ended with 1: error: unknown flag"
    ):
        async with control_plane(Setup(assets=assets)):
            raise AssertionError("never reached")


async def test_a_controller_manager_that_dies_takes_the_rest_down_with_a_word(
    assets: Path,
) -> None:
    program(assets, "kube-controller-manager", DEAD)
    with pytest.raises(ControlPlaneError, match="kube-controller-manager ended with 1"):
        async with control_plane(Setup(assets=assets)):
            raise AssertionError("never reached")


CUT = """
import pathlib, sys
sys.path.insert(0, {repository!r})
from hack.sim.real_control_plane import Layout, RealControlPlane

layout = Layout(
    folder=pathlib.Path(sys.argv[1]), etcd_client_port=1, etcd_peer_port=2, api_port=3,
    controller_manager_port=4, scheduler_port=5,
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
