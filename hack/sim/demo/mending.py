"""What mends the demo's nodes besides gpuward: tests under load that end, Machines that go.

The pods of tests run on simulated kubelets, so somebody has to say what they find; and what a
Cluster API does with a Machine that is quarantined for remediation is done here, as its health
check and its set of Machines would.
"""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers.kubelet import PREFIX
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Pool, create_node, pool_nodes
from hack.sim.cluster.resource import NAMESPACES, NODES, POD_TEMPLATES, PODS, Resource
from hack.sim.demo.ledger import Ledger, is_reset
from rules.policy.policy import VALIDATE_TEMPLATE

MACHINES: Final = Resource("cluster.x-k8s.io", "v1beta2", "machines", True, "Machine")
REMEDIATE: Final = "cluster.x-k8s.io/remediate-machine"
_SPACE: Final = "machines"
_TEST_S: Final = 2.0
"""How long a test takes here; on a node of eight GPUs it is some minutes."""
_LOOK_S: Final = 0.1
_RESET: Final = {"finish-after": "1", "exit-code": "0"}
_RESET_TEMPLATE: Final = "gpuward-reset-gpu"
_PASSES: Final = {"verdict": "pass", "message": "Every check passed."}
_FAILS: Final = {
    "verdict": "fail",
    "message": "GPU 4 reads back 3 wrong values from its memory.",
    "checks": [
        {"id": "memory", "gpu": "4", "verdict": "fail", "value": 3, "unit": "wrong values"}
    ],
}


class TestBench:
    """Pods of tests and resets: each ends with a scripted result."""

    __test__ = False

    def __init__(self, client: Client, ledger: Ledger, namespace: str) -> None:
        self._client = client
        self._ledger = ledger
        self._namespace = namespace
        self._reported: set[str] = set()
        self.bad: set[str] = set()
        """Nodes whose next test finds something."""

    async def install(self) -> None:
        """The PodTemplates of components `validate` and `repair-reset-gpu-job`; their pods run
        until they are reported.
        """
        pod = {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "validate", "image": "registry.example/gpuward:demo"}],
            }
        }
        for name in (VALIDATE_TEMPLATE, _RESET_TEMPLATE):
            body = {"metadata": {"name": name}, "template": pod}
            await self._client.create(POD_TEMPLATES, body, self._namespace)

    async def run(self) -> None:
        """Tell each pod how it ends, for ever."""
        while True:
            for (space, name), pod in list(self._ledger.pods.items()):
                node = pod["spec"].get("nodeName", "")
                if space != self._namespace or not node or name in self._reported:
                    continue
                self._reported.add(name)
                await self._tell(name, _RESET if is_reset(pod) else self._tested(node))
            await asyncio.sleep(_LOOK_S)

    def _tested(self, node: str) -> dict[str, str]:
        found = _FAILS if node in self.bad else {**_PASSES, "checks": [_check(8)]}
        self.bad.discard(node)
        return {
            "finish-after": str(_TEST_S),
            "exit-code": "0" if found["verdict"] == "pass" else "2",
            "message": json.dumps(found),
        }

    async def _tell(self, pod: str, ends: Mapping[str, str]) -> None:
        notes = {"annotations": {f"{PREFIX}{key}": value for key, value in ends.items()}}
        try:
            await self._client.patch(PODS, pod, {"metadata": notes}, self._namespace)
        except ApiError as error:
            if error.code != 404:
                raise


def _check(gpus: int) -> dict[str, Any]:
    return {"id": "memory", "verdict": "pass", "value": gpus, "unit": "GPUs"}


class Machines:
    """The Machines behind some nodes, and what becomes of one that is quarantined."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def back(self, node: Mapping[str, Any]) -> None:
        """From now on this node belongs to a Machine, and both report it."""
        name, machine = node["metadata"]["name"], _machine_of(node["metadata"]["name"])
        try:
            await self._client.create(NAMESPACES, {"metadata": {"name": _SPACE}})
        except ApiError as error:
            if error.code != 409:
                raise
        spec = {"clusterName": "demo", "providerID": node["spec"].get("providerID", "")}
        head = {"apiVersion": f"{MACHINES.group}/{MACHINES.version}", "kind": MACHINES.kind}
        body = {**head, "metadata": {"name": machine}, "spec": spec}
        await self._client.create(MACHINES, body, _SPACE)
        status = {"status": {"nodeRef": {"name": name}, "phase": "Running"}}
        await self._client.patch(MACHINES, machine, status, _SPACE, subresource="status")
        notes = {
            "cluster.x-k8s.io/machine": machine,
            "cluster.x-k8s.io/cluster-namespace": _SPACE,
        }
        await self._client.patch(NODES, name, {"metadata": {"annotations": notes}})

    async def is_quarantined(self, node: str) -> bool:
        """Whether somebody asked for the replacement of the node's Machine."""
        found: Object = await self._client.get(MACHINES, _machine_of(node), _SPACE)
        return REMEDIATE in (found["metadata"].get("annotations") or {})

    async def replace(self, node: str, pool: Pool) -> str:
        """The Machine goes with its node, and a spare of the pool joins; the spare's name."""
        await self._client.delete(MACHINES, _machine_of(node), _SPACE)
        await self._client.delete(NODES, node)
        spare = pool_nodes(pool, datetime.now(UTC))[-1]
        await create_node(self._client, spare)
        await self.back(spare)
        return str(spare["metadata"]["name"])


def _machine_of(node: str) -> str:
    return f"machine-{node}"
