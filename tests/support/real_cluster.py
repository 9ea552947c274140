"""A cluster with real kubelets for the suite in tests/node, driven by kubectl and one hook.

The kubeconfig comes from GPUWARD_NODE_KUBECONFIG. What no API can do (stop a kubelet, boot a node)
is done by the program in GPUWARD_NODE_CONTROL, called as `PROGRAM NODE ACTION`.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.sim.driver import NODES

Object = dict[str, Any]
REPOSITORY = Path(__file__).parents[2]
GPU_LABEL = "nvidia.com/gpu.present"
WATCHED_EVERY_S = 0.2
KUBECONFIG = os.environ.get("GPUWARD_NODE_KUBECONFIG", "")
CONTROL = os.environ.get("GPUWARD_NODE_CONTROL", "")
TAG = os.environ.get("GPUWARD_NODE_TAG", "0.1.0")
SIMULATED = "h100-8-nvswitch.yaml"
POLICY = {
    "apiVersion": "gpuward.io/v1alpha1",
    "kind": "QuarantinePolicy",
    "mode": "Enforce",
    "budget": {
        "maxUnavailable": {"percent": 50},
        "maxNew": {"count": 50, "window": "10m"},
        "perReason": {"count": 50, "window": "24h"},
    },
    "drain": {"settle": "1s", "gangWindow": "1s"},
    "release": {"healthyFor": "10s", "replaceAfter": 50},
}
"""Limits that a cluster of two nodes would meet at once are lifted; waits are short."""

ENDED = frozenset({"Released", "Cancelled"})

_RECORD = """
import json, sys, time
path = "/gpuward-test/kmsg"
number = sum(1 for _ in open(path)) + 1
with open(path, "a") as log:
    log.write(f"4,{number},{time.monotonic_ns() // 1000},-;{sys.argv[1]}\\n")
print(time.time())
"""
_KILL = """
import os, pathlib, signal, sys
uid, number, program = sys.argv[1], int(sys.argv[2]), sys.argv[3]
hit = 0
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        group = (folder / "cgroup").read_text()
        command = (folder / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        continue
    if uid in group.replace("_", "-") and any(one.endswith(program.encode()) for one in command):
        os.kill(int(folder.name), number)
        hit += 1
print(hit)
"""


class ClusterError(Exception):
    """A command failed or something did not happen in time."""


@dataclass(slots=True)
class RealCluster:
    """The cluster and what the suite installed in it."""

    nodes: tuple[str, ...] = ()
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gpuward-node-")))

    def run(self, *command: str, stdin: bytes = b"", timeout_s: float = 180) -> str:
        """Standard output of a command with this cluster's kubeconfig. ClusterError on failure."""
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            cwd=REPOSITORY,
            env={**os.environ, "KUBECONFIG": KUBECONFIG, "PYTHONPATH": str(REPOSITORY)},
        )
        if done.returncode:
            output = (done.stderr + done.stdout).decode(errors="replace")
            raise ClusterError(f"{' '.join(command)[:300]} ended with {done.returncode}: {output}")
        return done.stdout.decode(errors="replace")

    def kubectl(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl."""
        return self.run("kubectl", *arguments, stdin=stdin)

    def gpuward(self, *arguments: str) -> str:
        """Run `kubectl gpuward` from this checkout."""
        return self.run(sys.executable, "-m", "remediator.kubectl.cli", *arguments)

    def get(self, *arguments: str) -> Object:
        """An object or list as JSON."""
        found: Object = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def items(self, *arguments: str) -> list[Object]:
        """The objects of a list."""
        found: list[Object] = self.get(*arguments)["items"]
        return found

    def node(self, name: str) -> Object:
        """A Node."""
        return self.get("node", name)

    def until(self, holds: Callable[[], Any], what: str, within_s: float = 90) -> float:
        """Seconds until it holds. ClusterError when it does not in time."""
        begin = time.monotonic()
        while True:
            try:
                if holds():
                    return time.monotonic() - begin
                error = ""
            except ClusterError as caught:
                error = f" ({caught})"
            if time.monotonic() - begin > within_s:
                raise ClusterError(f"{what}: not within {within_s:.0f} s{error}")
            time.sleep(WATCHED_EVERY_S)

    def control(self, node: str, action: str) -> None:
        """What only the machine's owner can do: kubelet-stop, kubelet-start, containerd-stop,
        containerd-start, boot.
        """
        subprocess.run([CONTROL, node, action], check=True, timeout=180, stdout=subprocess.DEVNULL)

    def boots(self) -> bool:
        """Whether the hook can boot a node."""
        command = [CONTROL, self.nodes[0], "boots"]
        return bool(CONTROL) and subprocess.run(command, check=False).returncode == 0

    # The simulated hardware of a node.

    def host_pod(self, node: str) -> str:
        """The running pod that stands for the node's hardware."""
        for pod in self.items("pods", "-n", "gpuward-test", "-l", "app=gpuward-test-host"):
            status = pod["status"].get("containerStatuses") or [{}]
            if pod["spec"].get("nodeName") == node and status[0].get("ready"):
                name: str = pod["metadata"]["name"]
                return name
        raise ClusterError(f"{node} has no running gpuward-test-host")

    def on_host(self, node: str, *command: str, stdin: bytes = b"") -> str:
        """Run a command in that pod."""
        stdin_flag = ["-i"] if stdin else []
        exec_ = ["exec", *stdin_flag, "-n", "gpuward-test", self.host_pod(node), "--"]
        return self.kubectl(*exec_, *command, stdin=stdin)

    def power_on(self, node: str, simulated: str = SIMULATED) -> None:
        """Give the node healthy simulated GPUs and an empty kernel log, in its present boot."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path in sorted((REPOSITORY / "hack" / "sim" / "driver").glob("*.py")):
                tar.add(path, f"simulator/hack/sim/driver/{path.name}")
            for package in ("hack", "hack/sim"):
                tar.add(REPOSITORY / package / "__init__.py", f"simulator/{package}/__init__.py")
            tar.add(NODES / simulated, "node.yaml")
            boot = self.node(node)["status"]["nodeInfo"]["bootID"].encode()
            for name, content in (("boot_id", boot), ("kmsg", b""), ("ready", b"")):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        fill = ("tar", "-x", "-C", "/gpuward-test")

        def filled() -> bool:
            # Right after a boot the API server still shows the pod as it was before.
            self.on_host(node, *fill, stdin=archive.getvalue())
            return True

        self.until(filled, f"simulated GPUs on {node}")

    def boot(self, node: str) -> None:
        """Boot the node with healthy GPUs; returns in the new boot."""
        self.on_host(node, "rm", "-f", "/gpuward-test/ready")
        before = self.node(node)["status"]["nodeInfo"]["bootID"]
        self.control(node, "boot")
        self.until(
            lambda: self.node(node)["status"]["nodeInfo"]["bootID"] != before, "a new boot", 60
        )
        self.power_on(node)

    def kernel_line(self, node: str, text: str) -> float:
        """Print a line to the node's kernel log; the time of the node then."""
        return float(self.on_host(node, "python", "-c", _RECORD, text))

    def signal(self, pod: Object, number: int, program: str) -> None:
        """Send a signal to the processes of a pod with an argument that ends like this."""
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        hit = self.on_host(node, "python", "-c", _KILL, uid, str(int(number)), program)
        if int(hit) == 0:
            raise ClusterError(f"no process {program} in pod {pod['metadata']['name']}")

    # Installing gpuward.

    def overlay(self, *components: str, policy: Mapping[str, Any] | None = None) -> Path:
        """An overlay as docs/install.md describes, with the simulated hardware."""
        folder = self.folder / f"overlay-{time.monotonic_ns()}"
        folder.mkdir()
        up = "../" * len(folder.parents)
        base = f"{up.rstrip('/')}{REPOSITORY}"
        changed = {"policy.yaml": yaml.safe_dump({**POLICY, **(policy or {})})}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpuward-policy"}}
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{base}/daemonset"],
            "components": [
                *(f"{base}/daemonset/components/{name}" for name in components),
                f"{base}/tests/node/cluster",
            ],
            "images": [
                {"name": name, "newTag": TAG} for name in ("gpuward-agent", "gpuward-remediator")
            ],
            "patches": [
                {
                    "target": {"kind": "ConfigMap", "name": "gpuward-policy"},
                    "patch": yaml.safe_dump({**config, "data": changed}),
                }
            ],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return folder

    def apply(self, overlay: Path) -> None:
        """`kubectl apply -k`, as in docs/install.md, after the remains of a removal are gone."""
        self.until(
            lambda: all(ns["status"]["phase"] == "Active" for ns in self.items("namespaces")),
            "deleted namespaces gone",
            120,
        )
        self.kubectl("apply", "-k", str(overlay))

    def pods(self, component: str) -> list[Object]:
        """gpuward's pods of this component that are not on their way out."""
        selector = f"app.kubernetes.io/name=gpuward,app.kubernetes.io/component={component}"
        found = self.items("pods", "-n", "gpuward", "-l", selector)
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def agent(self, node: str) -> Object:
        """The agent's pod on the node."""
        return next(pod for pod in self.pods("agent") if pod["spec"].get("nodeName") == node)

    def ready(self) -> bool:
        """Whether agents and replicas are ready, and every node is healthy and in service."""
        agents, replicas = self.pods("agent"), self.pods("remediator")
        return (
            len(agents) == len(self.nodes)
            and len(replicas) == 2
            and all(map(is_ready, (*agents, *replicas)))
            and all(self.health(node) == "Healthy" for node in self.nodes)
            and not any(self.node(node)["spec"].get("unschedulable") for node in self.nodes)
            and all(self.phase(node) in {"", *ENDED} for node in self.nodes)
        )

    def health(self, node: str) -> str:
        """What the node's agent reports now."""
        found = (
            self.get("gpunodehealths", "--ignore-not-found", node) if self._exists(node) else {}
        )
        state: str = found.get("status", {}).get("health", "")
        return state

    def _exists(self, node: str) -> bool:
        return bool(
            self.kubectl("get", "gpunodehealths", node, "--ignore-not-found", "-o", "name")
        )

    def sessions(self, node: str) -> list[Object]:
        """The node's sessions, the oldest first."""
        found = [s for s in self.items("gpuquarantines") if s["spec"].get("nodeName") == node]
        return sorted(
            found, key=lambda s: (s["metadata"]["creationTimestamp"], s["metadata"]["name"])
        )

    def phase(self, node: str) -> str:
        """The phase of the node's latest session; "" without one."""
        found = self.sessions(node)
        return str(found[-1].get("status", {}).get("phase", "")) if found else ""

    def quarantined(self, node: str) -> bool:
        """Whether the node has our taint and is cordoned."""
        spec = self.node(node)["spec"]
        taints = {taint["key"] for taint in spec.get("taints", ())}
        return bool(spec.get("unschedulable")) and "gpuward.io/quarantine" in taints


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition holds."""
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
