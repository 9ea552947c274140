"""Real remediator processes for end-to-end tests, and what tests ask of their sessions."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hack.sim.cluster.client import Object
from hack.sim.cluster.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LEASES,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    Resource,
)
from tests.support.cluster.made import made
from tests.support.run.warm_start import WarmProcess

REPOSITORY = Path(__file__).parents[3]
QUARANTINES = Resource("gpuward.io", "v1alpha1", "gpuquarantines", False, "GPUQuarantine")
PAUSES = Resource("gpuward.io", "v1alpha1", "gpuwardpauses", False, "GPUWardPause")
QUICK = """
mode: Enforce
budget:
  maxUnavailable: {percent: 50, atMost: 50}
  maxNew: {count: 50, window: 1m}
drain: {settle: 1s, gangWindow: 1s}
release: {healthyFor: 1s}
"""
END_WITHIN_S = 20


class RemediatorProcess:
    """`gpuward-remediator run` against one cluster."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        name: str = "one",
        policy: str = QUICK,
        isolated: bool = False,
    ) -> None:
        """Start it; `isolated` in its own interpreter, as in a container."""
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._isolated = isolated
        self.log = folder / f"remediator-{name}.log"
        self.policy = folder / f"policy-{name}.yaml"
        self.policy.write_text(policy)
        self.flags = [
            f"--kubeconfig={kubeconfig}",
            f"--policy={self.policy}",
            f"--identity={name}",
            "--listen=127.0.0.1:0",
            "--page-listen=127.0.0.1:0",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again after `stop` or `kill`."""
        environ = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("GPUWARD_", "POD_", "KUBE"))
        }
        with self.log.open("ab") as log:
            start = subprocess.Popen[bytes] if self._isolated else WarmProcess
            self._process = start(
                [sys.executable, "-m", "remediator.cli", "run", *self.flags],
                cwd=REPOSITORY,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environ,
            )

    def new_policy(self, text: str) -> None:
        """Replace the policy file atomically, as a ConfigMap volume does."""
        partial = self.policy.with_suffix(".partial")
        partial.write_text(text)
        partial.rename(self.policy)

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a goodbye."""
        self._end(signal.SIGKILL)

    def revive(self) -> None:
        """Start it again if it is dead."""
        if not self.runs:
            self.start()

    @property
    def runs(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does; it does not notice the time that passes."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def exit_status(self) -> int:
        """Wait until it ends by itself."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, END_WITHIN_S)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(END_WITHIN_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """What it logged so far."""
        text = self.log.read_text() if self.log.exists() else ""
        # Hostile names may hold what else ends a line; the last one may be half written.
        complete = text.split("\n")[:-1]
        return [json.loads(line) for line in complete if line.startswith("{")]

    def logged(self, pattern: str) -> bool:
        """Whether any log line matches."""
        return any(re.search(pattern, json.dumps(line)) for line in self.lines())

    @property
    def port(self) -> int:
        """Where its probes and metrics are."""
        return next(int(line["port"]) for line in self.lines() if line.get("event") == "started")


@contextmanager
def running(*processes: RemediatorProcess) -> Iterator[None]:
    """Started, and ended whatever happens."""
    for process in processes:
        process.start()
    try:
        yield
    finally:
        # The cluster may live in this very thread and cannot answer a goodbye now.
        for process in processes:
            process.kill()


async def prepare(cluster: Any) -> None:
    """The namespace of the lease."""
    await made(cluster.client, NAMESPACES, "gpuward")


async def may_do_everything(cluster: Any, *accounts: str) -> None:
    """Service accounts in our namespace that are administrators, so that calls have names."""
    subjects = [{"kind": "ServiceAccount", "namespace": "gpuward", "name": n} for n in accounts]
    for name in accounts:
        await made(cluster.client, SERVICE_ACCOUNTS, name, "gpuward")
    api = "rbac.authorization.k8s.io"
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    await made(cluster.client, CLUSTER_ROLES, "everything", rules=[every])
    role = {"apiGroup": api, "kind": "ClusterRole", "name": "everything"}
    await made(cluster.client, CLUSTER_ROLE_BINDINGS, "replicas", roleRef=role, subjects=subjects)


async def leads(cluster: Any, name: str) -> None:
    """Wait until this replica holds the lease."""

    async def holds() -> bool:
        leases, _ = await cluster.client.list(LEASES, "gpuward")
        return any(lease["spec"].get("holderIdentity") == name for lease in leases)

    await cluster.until(holds, f"{name} holding the lease")


async def sessions(cluster: Any, node: str) -> list[Object]:
    """All sessions of a node, oldest first; of those of one second the open one last."""
    found, _ = await cluster.client.list(QUARANTINES)
    mine = [item for item in found if item["spec"]["nodeName"] == node]

    def age(item: Object) -> tuple[str, bool]:
        over = item.get("status", {}).get("phase") in {"Released", "Cancelled", "NodeGone"}
        return str(item["metadata"]["creationTimestamp"]), not over

    return sorted(mine, key=age)


async def phase(cluster: Any, node: str, wanted: str) -> Object:
    """Wait until the node's latest session is in that phase; an error has its status."""
    last: Object = {}

    async def there() -> Object | None:
        nonlocal last
        last = next(reversed(await sessions(cluster, node)), {})
        return last if last.get("status", {}).get("phase") == wanted else None

    try:
        found: Object = await cluster.until(there, f"session of {node} in phase {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; its status is {last.get('status')}") from None
    return found


async def not_quarantined(cluster: Any, node: str) -> None:
    """Wait until the node carries no quarantine."""

    async def clean() -> bool:
        return taints_of(await cluster.node(node)) == UNTAINTED

    await cluster.until(clean, f"the taint and cordon gone from {node}")


def condition_of(session: Object, kind: str) -> Object:
    """A condition of a session; empty when it is absent."""
    conditions = session.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item["type"] == kind), {})


def steps(session: Object) -> list[str]:
    """The steps of a session's timeline."""
    return [entry["step"] for entry in session["status"]["timeline"]]


def taints_of(node: Object) -> dict[str, Any]:
    """What of gpuward is on a node."""
    metadata, spec = node["metadata"], node["spec"]
    return {
        "unschedulable": spec.get("unschedulable", False),
        "taints": [t["value"] for t in spec.get("taints", []) if t["key"].startswith("gpuward")],
        "label": metadata.get("labels", {}).get("gpuward.io/quarantine"),
        "session": "gpuward.io/session" in metadata.get("annotations", {}),
    }


UNTAINTED = {"unschedulable": False, "taints": [], "label": None, "session": False}
