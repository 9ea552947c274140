"""A real agent process against a cluster: from the kernel line to the Kubernetes objects."""

from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.cluster.resource import MERGE_PATCH, NODES
from hack.sim.driver import NODES as DESCRIPTIONS
from hack.sim.driver import set_gpu
from tests.support.agent.agent_process import XID79, AgentProcess, AgentRestarted, running
from tests.support.agent.kubelet import Kubelet, pod

NODE = "gpu-1"
PCI = "0000:3b:00"
LOST = "Xid79GPUFallenOffBus"


def condition(node: dict[str, Any], kind: str) -> tuple[str, str]:
    for found in node["status"].get("conditions") or ():
        if found["type"] == kind:
            return found["status"], found["reason"]
    return "", ""


class Seen:
    """The objects of the node in the cluster."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    async def condition(self, kind: str, status: str, reason: str) -> dict[str, Any]:
        async def there() -> dict[str, Any] | None:
            node = await self._cluster.node(NODE)
            return node if condition(node, kind) == (status, reason) else None

        return await self._cluster.until(there, f"{kind} {status} {reason}")

    async def quiet(self) -> dict[str, Any]:
        """With the kernel log only, the health is unknown."""

        async def there() -> dict[str, Any] | None:
            node = await self._cluster.node(NODE)
            seen = condition(node, "GPUHealthy")
            return node if seen in {("Unknown", "NoGPU"), ("Unknown", "OnlyKernelLog")} else None

        return await self._cluster.until(there, "a node that has only its kernel log")

    async def health(self, health: str) -> dict[str, Any]:
        async def there() -> dict[str, Any] | None:
            try:
                found = await self._cluster.client.get(GPU_NODE_HEALTHS, NODE)
            except ApiError:
                return None
            return found if found.get("status", {}).get("health") == health else None

        return await self._cluster.until(there, f"GPUNodeHealth {health}")

    async def source(self, name: str, state: str) -> None:
        async def there() -> bool:
            try:
                found = await self._cluster.client.get(GPU_NODE_HEALTHS, NODE)
            except ApiError:
                return False
            sources = found.get("status", {}).get("sources", ())
            return (name, state) in {(each["name"], each["state"]) for each in sources}

        await self._cluster.until(there, f"source {name} {state}")

    async def label(self, name: str, value: str) -> dict[str, Any]:
        async def there() -> dict[str, Any] | None:
            node = await self._cluster.node(NODE)
            return node if node["metadata"]["labels"].get(name) == value else None

        return await self._cluster.until(there, f"label {name}={value}")


@pytest.fixture
async def seen(cluster) -> Seen:
    await cluster.add_nodes(NODE)
    return Seen(cluster)


@pytest.fixture
def agent(cluster, seen: Seen, tmp_path: Path) -> AgentProcess:
    return AgentProcess(tmp_path, cluster.plane.kubeconfig, NODE)


async def test_xid_79_reaches_condition_label_and_health_object(
    cluster, seen: Seen, agent: AgentProcess
) -> None:
    with running(agent):
        await seen.quiet()
        agent.kernel_line(XID79.format(pci=PCI))
        node = await seen.condition("GPUHealthy", "False", LOST)
        health = await seen.health("Unhealthy")
        await seen.label("gpuward.io/health", "unhealthy")
    assert condition(node, "GPUDegraded") == ("False", "NotDegraded")
    (incident,) = health["status"]["incidents"]
    assert (incident["reason"], incident["xids"], incident["level"]) == (LOST, [79], "Drain")
    assert XID79.format(pci=PCI) in incident["evidence"][0]
    (owner,) = health["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
    assert health["status"]["nodeUID"] == node["metadata"]["uid"]


async def test_a_recreated_node_gets_its_health_status(
    cluster, seen: Seen, agent: AgentProcess
) -> None:
    with running(agent):
        first = await seen.label("gpuward.io/health", "unknown")
        agent.kernel_line(XID79.format(pci=PCI))
        await seen.health("Unhealthy")
        await cluster.client.delete(NODES, NODE)
        await cluster.gone(NODES, NODE)
        await cluster.add_nodes(NODE)
        second = await seen.condition("GPUHealthy", "False", LOST)

        async def adopted() -> bool:
            health = await seen.health("Unhealthy")
            return health["metadata"]["ownerReferences"][0]["uid"] == second["metadata"]["uid"]

        await cluster.until(adopted, "the new node owns the GPUNodeHealth")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_a_fault_that_only_nvml_sees_reaches_the_node(
    cluster, seen: Seen, tmp_path: Path
) -> None:
    description = tmp_path / "node.yaml"
    description.write_bytes((DESCRIPTIONS / "h100-8-nvswitch.yaml").read_bytes())
    agent = AgentRestarted(
        tmp_path, cluster.plane.kubeconfig, NODE, nvml=f"sim:{description}", poll="1"
    )
    with running(agent):
        await seen.condition("GPUHealthy", "True", "AllChecksPassing")
        await seen.label("gpuward.io/gpus-healthy", "8")
        set_gpu(description, 2, remap={"failure": True})
        await seen.condition("GPUHealthy", "False", "RowRemapFailure")
        health = await seen.health("Unhealthy")
        assert health["status"]["gpusHealthy"] == "7/8"


async def test_the_holders_and_readings_of_a_faulty_gpu_are_published(
    cluster, seen: Seen, tmp_path: Path
) -> None:
    description = tmp_path / "node.yaml"
    description.write_bytes((DESCRIPTIONS / "h100-8-mig.yaml").read_bytes())
    first, second = (f"GPU-7c4b2e3{n}-8c1e-4b57-9f60-1b52d3e8f20{n}" for n in (0, 3))
    agent = AgentProcess(
        tmp_path,
        cluster.plane.kubeconfig,
        NODE,
        **{"nvml": f"sim:{description}", "poll": "1", "pod-resources": f"{tmp_path}/kubelet.sock"},
    )

    async def held() -> dict[str, Any] | None:
        status = (await seen.health("Unhealthy"))["status"]
        return status if status.get("holders", {}).get("complete") else None

    with Kubelet(tmp_path / "kubelet.sock") as kubelet, running(agent):
        kubelet.pods = [
            pod(
                "mig",
                "MIG-0a000002-2f1e-5c7d-8a90-b0c1d2e30002",
                resource="nvidia.com/mig-1g.10gb",
            ),
            pod("entire", second),
        ]
        await seen.source("pod-resources", "Up")
        await seen.condition("GPUHealthy", "True", "AllChecksPassing")
        agent.kernel_line(XID79.format(pci="0000:1b:00"))
        status = await cluster.until(held, "holders")
    assert [(each["pod"], each["gpus"]) for each in status["holders"]["pods"]] == [
        ("mig", [first]),
        ("entire", [second]),
    ]
    read = {gpu["uuid"]: gpu["readings"] for gpu in status["gpus"] if "readings" in gpu}
    assert (read.keys(), read[first]["temperatureCelsius"]) == ({first}, 36)


async def test_the_driver_is_released_on_an_operator_request(
    cluster, seen: Seen, tmp_path: Path
) -> None:
    description = tmp_path / "node.yaml"
    description.write_bytes((DESCRIPTIONS / "h100-1.yaml").read_bytes())
    agent = AgentProcess(tmp_path, cluster.plane.kubeconfig, NODE, nvml=f"sim:{description}")
    label = "nvidia.com/gpu.deploy.device-plugin"

    async def set_label(value: str | None) -> None:
        patch = {"metadata": {"labels": {label: value}}}
        await cluster.client.patch(NODES, NODE, patch, MERGE_PATCH)

    with running(agent):
        await seen.source("nvml", "Up")
        await set_label("paused-for-driver-upgrade")
        await seen.source("nvml", "Released")
        await seen.condition("GPUHealthy", "True", "AllChecksPassing")
        await set_label("true")
        await seen.source("nvml", "Up")


async def test_a_node_that_does_not_exist_is_wrong_use(cluster, tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path, cluster.plane.kubeconfig, "nobody")
    with running(agent):
        assert await agent.exit_status() == 64
    assert "Node nobody does not exist" in agent.log.read_text()
    assert "--node-name" in agent.log.read_text()
