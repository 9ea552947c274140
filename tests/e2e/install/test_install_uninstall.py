"""Install, a storm, and the two commands of the uninstallation: every node is as it was before."""

from __future__ import annotations

import asyncio
import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.clients.client import ApiError, Object
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES
from hack.sim.driver import NODES as DESCRIPTIONS
from hack.sim.manifests import known_resources, post_manifests, read_manifests
from tests.support.agent.agent_process import XID79, AgentProcess
from tests.support.agent.agent_process import running as agent_running
from tests.support.cluster.either_cluster import Cluster, a_cluster
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    phase,
    running,
    sessions,
)

REPOSITORY = Path(__file__).parents[3]
FLEET = [f"gpu-000{n}" for n in range(6)]
CORDONED_BEFORE = "gpu-0002"
AGENT_ON = "gpu-0001"
STORM = ["gpu-0001", "gpu-0002", "gpu-0003"]

pytestmark = pytest.mark.slow  # a whole life of an installation


def lasting(node: Object) -> dict[str, Any]:
    """What of a node outlives heartbeats: everything a person or a tool could have set."""
    node = copy.deepcopy(node)
    metadata = node["metadata"]
    return {
        "labels": metadata.get("labels", {}),
        "annotations": metadata.get("annotations", {}),
        "finalizers": metadata.get("finalizers", []),
        "owners": metadata.get("ownerReferences", []),
        "spec": {key: value for key, value in node["spec"].items() if value},
        "conditions": {c["type"]: c["status"] for c in node["status"].get("conditions", ())},
        "capacity": node["status"].get("capacity"),
    }


async def look(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {name: lasting(await cluster.node(name)) for name in FLEET}


async def delete(cluster: Cluster, objects: list[Object]) -> None:
    """As `kubectl delete -k`: the namespace and the definitions first, all else after."""
    known = known_resources(objects)
    first = {NAMESPACES.kind, CUSTOM_RESOURCE_DEFINITIONS.kind}
    for obj in sorted(objects, key=lambda o: o["kind"] not in first):
        resource = known[obj["apiVersion"], obj["kind"]]
        place = obj["metadata"].get("namespace", "gpuward") if resource.namespaced else None
        try:
            await cluster.client.delete(resource, obj["metadata"]["name"], place)
        except ApiError as error:
            if error.code != 404:
                raise
    for obj in objects:
        resource = known[obj["apiVersion"], obj["kind"]]
        place = obj["metadata"].get("namespace", "gpuward") if resource.namespaced else None
        await cluster.gone(resource, obj["metadata"]["name"], place)


async def uninstall(cluster: Cluster) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "remediator.kubectl.cli", "uninstall", "--yes",
        f"--kubeconfig={cluster.plane.kubeconfig}",
        cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_after_a_storm_every_node_is_as_before_the_installation(tmp_path: Path) -> None:
    objects = read_manifests(REPOSITORY / "daemonset")
    async with a_cluster(secure=True) as cluster:
        await cluster.add(pool=Pool(name="gpu", nodes=len(FLEET)))
        await cluster.settled(*FLEET)
        await cluster.client.patch(NODES, CORDONED_BEFORE, {"spec": {"unschedulable": True}})
        prior = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}
        await cluster.client.patch(NODES, "gpu-0003", prior)

        async def tainted() -> bool:
            return bool((await cluster.node(CORDONED_BEFORE))["spec"].get("taints"))

        await cluster.until(tainted, "the taint that Kubernetes adds to a cordoned node")
        before = await look(cluster)

        await post_manifests(cluster.client, objects, namespace="gpuward")
        # The scripted agents of a fleet carry their verdict's labels, as real ones would.
        await cluster.health.all_healthy([name for name in FLEET if name != AGENT_ON])
        boot = tmp_path / "boot-id"
        boot.write_text((await cluster.node(AGENT_ON))["status"]["nodeInfo"]["bootID"])
        senses = {"nvml": f"sim:{DESCRIPTIONS / 'h100-8-nvswitch.yaml'}", "boot-id": str(boot)}
        agent = AgentProcess(tmp_path, cluster.plane.kubeconfig, AGENT_ON, **senses)
        one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
        with agent_running(agent), running(one):
            await leads(cluster, "one")
            await cluster.health.fail("gpu-0003", XID_79)
            await phase(cluster, "gpu-0003", "Quarantined")
            agent.kernel_line(XID79.format(pci="0000:1b:00"))
            await cluster.health.fail(CORDONED_BEFORE, XID_79)

            async def all_in_session() -> bool:
                # Some of them wait: the same fault on three alike nodes opens the breaker.
                return all([await sessions(cluster, name) for name in STORM])

            await cluster.until(all_in_session, "a session for every node of the storm")
        during = await look(cluster)
        assert all(during[name] != before[name] for name in STORM)

        status, said = await uninstall(cluster)
        assert status == 0, said
        await delete(cluster, objects)

        async def restored() -> bool:
            return await look(cluster) == before

        await cluster.until(restored, "every node as it was before the installation")
