"""The remediator process that benchmarks measure, and the cluster of `hack.bench.remediator`."""

import asyncio
import contextlib
import gc
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from hack.bench.agent_processes import cpu_ns, memory
from hack.sim.cluster.controllers.suite import utc_now
from hack.sim.cluster.fleet.fleet import Fleet, apply_fleet
from hack.sim.cluster.fleet.fleet_health import FleetHealth
from hack.sim.cluster.resource import LEASES, NAMESPACES
from hack.sim.control_plane import ControlPlane, Setup, control_plane

ROOT = Path(__file__).resolve().parents[2]
LIFTED = """
mode: Enforce
budget:
  maxUnavailable: {percent: 100, atMost: 100000}
  maxNew: {count: 100000, window: 1m}
  perReason: {count: 100000, window: 1m}
drain: {settle: 1s, gangWindow: 1s}
release: {healthyFor: 1s}
"""
PROFILE = "GPUWARD_BENCH_PROFILE"
"""Environment variable: the file that the remediator's profile goes to (`pstats`)."""
_GOODBYE_S = 30.0


@asynccontextmanager
async def bench_cluster(fleet: Fleet) -> AsyncIterator[ControlPlane]:
    """A cluster with that fleet, controllers, scheduler and kubelets."""
    async with control_plane(Setup(manifests=(ROOT / "daemonset" / "crds",))) as plane:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}}
        await plane.client.create(NAMESPACES, namespace)
        await apply_fleet(plane.client, fleet, utc_now())
        gc.freeze()  # the fleet lives as long as the plane: no collection need look at it
        try:
            yield plane
        finally:
            gc.unfreeze()


async def assessments_of(plane: ControlPlane, names: list[str]) -> FleetHealth:
    """Healthy health statuses of those nodes, published; nothing is shown on the Node objects."""
    found = FleetHealth(plane.client, utc_now, shown=False)
    await found.all_healthy(names)
    return found


class Replica:
    """One remediator process."""

    def __init__(self, kubeconfig: Path, policy: str = LIFTED, *, identity: str = "bench") -> None:
        self._stack = contextlib.ExitStack()
        self._kubeconfig, self._policy, self._identity = kubeconfig, policy, identity
        self._profile = os.environ.get(PROFILE, "")
        self.log = Path()

    def __enter__(self) -> Self:
        folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuward-bench-"))
        )
        (folder / "policy.yaml").write_text(self._policy)
        self.log = folder / "remediator.log"
        profiled = ("-m", "cProfile", "-o", self._profile) if self._profile else ()
        command = [
            *(sys.executable, *profiled, "-m", "remediator.cli", "run"),
            f"--kubeconfig={self._kubeconfig}",
            f"--policy={folder / 'policy.yaml'}",
            "--listen=127.0.0.1:0",
            "--page-listen=127.0.0.1:0",
            f"--identity={self._identity}",
            "--namespace=gpuward",
        ]
        log = self._stack.enter_context(self.log.open("wb"))
        self._process = subprocess.Popen(command, cwd=ROOT, stderr=log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._profile:
            # It is written at the end only.
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GOODBYE_S)
        # The cluster may live in this very process and cannot answer a goodbye now.
        self.kill()
        self._stack.close()

    async def leads(self, plane: ControlPlane) -> None:
        """Wait until it holds the lease."""
        async with asyncio.timeout(120):
            while True:
                leases, _ = await plane.client.list(LEASES, "gpuward")
                if any(lease["spec"].get("holderIdentity") == self._identity for lease in leases):
                    return
                if self._process.poll() is not None:
                    raise RuntimeError(f"the remediator ended: {self.log.read_text()[-2000:]}")
                await asyncio.sleep(0.05)

    def kill(self) -> None:
        """End it with SIGKILL: it does not release the lease."""
        self._process.kill()
        self._process.wait()

    async def ready(self) -> None:
        """Wait until /readyz reports it."""
        async with asyncio.timeout(120):
            while await asyncio.to_thread(self._status, "/readyz") != 200:  # noqa: ASYNC110 - no event of another process
                await asyncio.sleep(0.1)

    async def page(self) -> str:
        """The metrics."""
        url = f"http://127.0.0.1:{self._port()}/metrics"
        return await asyncio.to_thread(
            lambda: urllib.request.urlopen(url, timeout=30).read().decode()
        )

    def calls(self, page: str) -> dict[str, int]:
        """Calls so far, by method and queue."""
        found: dict[str, int] = {}
        pattern = r'gpuward_api_requests_total\{code="\d+",method="(\w+)",queue="(\w+)"\} (\S+)'
        for method, call_queue, count in re.findall(pattern, page):
            key = f"{method} {call_queue}"
            found[key] = found.get(key, 0) + int(float(count))
        return found

    def cpu_s(self) -> float:
        """CPU time so far."""
        return cpu_ns(self._process.pid) / 1e9

    def memory_mib(self) -> float:
        """Proportional set size."""
        return sum(part.pss_kib for part in memory(self._process.pid)) / 1024

    def _port(self) -> int:
        found = re.search(r'"port": (\d+)', self.log.read_text())
        return int(found[1]) if found else 0

    def _status(self, path: str) -> int:
        port = self._port()
        if not port:
            return 0
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0
