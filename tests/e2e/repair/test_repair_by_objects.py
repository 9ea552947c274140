"""A real remediator climbs its ladder through objects of others: made, marked, deleted (issue 13).

With the service account of the manifests and the components of exactly these adapters, on a server
that enforces RBAC (and, where it is a real one, the admission policies).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.sim.cluster.clients.client import ApiError, Object
from hack.sim.cluster.controllers.nodes.node_objects import node_object
from hack.sim.cluster.controllers.pods import is_ready
from hack.sim.cluster.controllers.suite import utc_now
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health_objects import XID_79, Fault
from hack.sim.cluster.fleet.fleet_load import create_node
from hack.sim.cluster.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)
from hack.sim.manifests import post_manifests
from rules.catalog.reason import Action
from tests.support.cluster.either_cluster import Cluster
from tests.support.cluster.manifest_builds import build
from tests.support.cluster.provider_definitions import DEFINITIONS
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    condition_of,
    leads,
    phase,
    running,
    sessions,
)

REBOOTS = Resource("janitor.dgxc.nvidia.com", "v1alpha1", "rebootnodes", False, "RebootNode")
HOSTS = Resource("metal3.io", "v1alpha1", "baremetalhosts", True, "BareMetalHost")
MACHINES = Resource("cluster.x-k8s.io", "v1beta2", "machines", True, "Machine")
CLAIMS = Resource("karpenter.sh", "v1", "nodeclaims", False, "NodeClaim")


def ladder(*, over: tuple[str, ...] = ()) -> str:
    """Three steps, each with time enough, and no more time for those that are `over`."""
    steps = {"RestartNode": "NVSentinel", "PowerCycle": "Metal3", "ReplaceNode": "Karpenter"}
    lines = [
        f"    {step}: {{adapter: {adapter}, timeout: {'1s' if step in over else '5m'}}}"
        for step, adapter in steps.items()
    ]
    return "\n".join(["", "repair:", "  mode: Auto", "  steps:", *lines, ""])


LADDER = ladder()
COMPONENTS = ("repair-nv-sentinel", "repair-metal3", "repair-karpenter")
KEPT_OUT = {"Deployment", "DaemonSet", "CustomResourceDefinition", "NetworkPolicy", "Service"}
KEY = "reboot.metal3.io/gpuward"
NODE = "gpu-0000"


async def define(cluster: Cluster, *groups: str) -> None:
    """The definitions of these API groups, served."""
    for one in DEFINITIONS:
        if one["spec"]["group"] in groups:
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, one)
    for resource in (REBOOTS, HOSTS, MACHINES, CLAIMS):
        if resource.group in groups:
            await cluster.until(served(cluster, resource), f"{resource.plural} served")


def served(cluster: Cluster, resource: Resource) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        try:
            await cluster.client.list(resource)
        except ApiError:
            return False
        return True

    return there


async def standing(
    cluster: Cluster, components: tuple[str, ...] = COMPONENTS, policy: str = LADDER
) -> RemediatorProcess:
    """Our manifests, GPU nodes, and what Metal3 and Karpenter know of one of them."""
    objects = [o for o in build(*components) if o["kind"] not in KEPT_OUT]
    await post_manifests(cluster.client, objects, namespace="gpuward")
    await define(cluster, HOSTS.group, MACHINES.group, CLAIMS.group)
    await cluster.add(pool=Pool(name="other", nodes=2))
    machine = node_object(NODE, now=utc_now(), gpus=8, labels={})
    machine["spec"]["providerID"] = "metal3://metal/host-0/m3m-0"
    await create_node(cluster.client, machine)
    await cluster.health.all_healthy([NODE, "other-0000", "other-0001"])
    await cluster.client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metal"}}
    )
    host = {
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {"name": "host-0", "annotations": {"baremetalhost.metal3.io/paused": ""}},
        "spec": {
            "online": True,
            "consumerRef": {"kind": "Metal3Machine", "name": "m3m-0", "namespace": "metal"},
        },
    }
    await cluster.client.create(HOSTS, host, "metal")
    machine_of = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": "machine-0"},
        "spec": {
            "clusterName": "metal",
            "infrastructureRef": {"kind": "Metal3Machine", "name": "m3m-0"},
        },
    }
    await cluster.client.create(MACHINES, machine_of, "metal")
    refers = {"status": {"nodeRef": {"name": NODE}}}
    await cluster.client.patch(MACHINES, "machine-0", refers, "metal", subresource="status")
    await host_shows(cluster, poweredOn=True, operationalStatus="OK")
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "claim-0", "finalizers": ["karpenter.sh/termination"]},
        "spec": {},
    }
    await cluster.client.create(CLAIMS, claim)
    await cluster.client.patch(
        CLAIMS, "claim-0", {"status": {"nodeName": NODE}}, subresource="status"
    )
    kubeconfig = await cluster.plane.service_account_kubeconfig("gpuward", "gpuward-remediator")
    return RemediatorProcess(cluster.plane.folder / "one", kubeconfig, policy=QUICK + policy)


async def host_shows(cluster: Cluster, **status: Any) -> None:
    await cluster.client.patch(HOSTS, "host-0", {"status": status}, "metal", subresource="status")


async def host_notes(cluster: Cluster) -> dict[str, str]:
    found = await cluster.client.get(HOSTS, "host-0", "metal")
    notes: dict[str, str] = found["metadata"].get("annotations") or {}
    return notes


def said(cluster: Cluster, reason: str, words: str) -> Callable[[], Awaitable[Object | None]]:
    async def there() -> Object | None:
        found = await sessions(cluster, NODE)
        blocked = condition_of(found[-1], "Blocked") if found else {}
        fits = blocked.get("status") == "True" and blocked["reason"] == reason
        return found[-1] if fits and words in blocked["message"] else None

    return there


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_s39_the_ladder_is_climbed_through_objects_each_asked_once(
    secure_cluster: Cluster, dies: bool
) -> None:
    cluster = secure_cluster
    one = await standing(cluster)
    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)

        async def kept() -> str:
            return await cluster.health.keep_evidence(NODE)

        await cluster.until(kept, "the mark that an agent keeps evidence for")

        # Made: nobody serves it at first; then it is there, under the session's name, and lies.
        await cluster.until(
            said(cluster, "RepairRefused", "nobody serves rebootnodes"), "what is not installed"
        )
        await define(cluster, REBOOTS.group)
        session = await phase(cluster, NODE, "Repairing")
        name = f"{session['metadata']['name']}-restartnode-1"

        async def made() -> Object | None:
            found, _ = await cluster.client.list(REBOOTS)
            return found[0] if found else None

        reboot = await cluster.until(made, "the RebootNode")
        assert (reboot["metadata"]["name"], reboot["spec"]) == (name, {"nodeName": NODE})
        assert reboot["metadata"]["ownerReferences"][0]["uid"] == session["metadata"]["uid"]
        lie = [
            {"type": "NodeReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
        await cluster.client.patch(
            REBOOTS, name, {"status": {"conditions": lie}}, subresource="status"
        )
        one.new_policy(QUICK + ladder(over=("RestartNode",)))
        if dies:
            one.kill()
            one.start()
        await cluster.gone(REBOOTS, name)

        # Marked: not while the host is paused; off, confirmed, and the mark comes off again.
        await cluster.until(said(cluster, "RepairRefused", "paused"), "the paused host")
        assert KEY not in await host_notes(cluster)
        await cluster.client.patch(
            HOSTS,
            "host-0",
            {"metadata": {"annotations": {"baremetalhost.metal3.io/paused": None}}},
            "metal",
        )

        async def kept_off() -> bool:
            return KEY in await host_notes(cluster)

        await cluster.until(kept_off, "the mark on the host")
        await host_shows(cluster, poweredOn=False)

        async def may_come_on() -> bool:
            notes = await host_notes(cluster)
            return KEY not in notes and "gpuward.io/repair" not in notes

        await cluster.until(may_come_on, "the mark taken off the host")
        one.new_policy(QUICK + ladder(over=("RestartNode", "PowerCycle")))

        # Deleted: with its finalizer the claim stays until the node is gone.
        async def deleting() -> bool:
            claim = await cluster.client.get(CLAIMS, "claim-0")
            return "deletionTimestamp" in claim["metadata"]

        await cluster.until(deleting, "the NodeClaim deleted")
        session = (await sessions(cluster, NODE))[-1]
        target = session["status"]["repair"][-1]["target"]
        assert (target["resource"], target["name"]) == ("nodeclaims", "claim-0")
        await cluster.client.delete(NODES, NODE)
        session = await phase(cluster, NODE, "NodeGone")

    climbed = [(a["step"], a["state"]) for a in session["status"]["repair"]]
    assert climbed == [
        ("RestartNode", "Failed"),
        ("PowerCycle", "Failed"),
        ("ReplaceNode", "Proven"),
    ]
    writes = [
        (r.verb, r.resource, r.code)
        for r in cluster.plane.requests.all
        if r.user.endswith(":gpuward-remediator")
        and r.resource in {"rebootnodes", "baremetalhosts", "nodeclaims"}
        and r.verb not in {"get", "list"}
    ]
    assert writes == [
        ("create", "rebootnodes", 201),
        ("delete", "rebootnodes", 200),
        ("patch", "baremetalhosts", 200),
        ("patch", "baremetalhosts", 200),
        ("delete", "nodeclaims", 200),
    ]


DRIVER = {"app.kubernetes.io/component": "nvidia-driver"}
OPERATION = "oke.oraclecloud.com/node_operation"
FABRIC = Fault(
    reason="Xid79GPUFallenOffBus",
    xids=(79,),
    gpu=3,
    action=Action.RESTART_FABRIC_MANAGER,
    evidence="NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.",
)
ON_THE_NODE = """
repair:
  mode: Auto
  steps:
    RestartDriver: {adapter: GPUOperator, timeout: 1s}
    RestartNode: {adapter: OKE, timeout: 5m}
"""


async def test_a_driver_pod_is_evicted_and_a_label_asks_for_the_reboot(
    secure_cluster: Cluster,
) -> None:
    cluster = secure_cluster
    objects = [o for o in build("repair-oke") if o["kind"] not in KEPT_OUT]
    await post_manifests(cluster.client, objects, namespace="gpuward")
    await cluster.add(pool=Pool(name="gpu", nodes=3))
    await cluster.health.all_healthy([f"gpu-000{n}" for n in range(3)])
    await cluster.add_namespace("gpu-operator")
    template = {
        "metadata": {"labels": DRIVER},
        "spec": {
            "containers": [{"name": "driver", "image": "registry.example/driver:1"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-driver"},
        "spec": {"selector": {"matchLabels": DRIVER}, "template": template},
    }
    await cluster.client.create(DAEMON_SETS, daemon_set, "gpu-operator")

    async def driver_pod() -> str:
        pods, _ = await cluster.client.list(PODS, "gpu-operator")
        mine = [p for p in pods if p["spec"].get("nodeName") == NODE and is_ready(p)]
        return str(mine[0]["metadata"]["uid"]) if mine else ""

    async def labelled() -> bool:
        return OPERATION in (await cluster.node(NODE))["metadata"]["labels"]

    async def another() -> bool:
        return (await driver_pod()) not in {"", before}

    before = await cluster.until(driver_pod, "the driver's pod")
    kubeconfig = await cluster.plane.service_account_kubeconfig("gpuward", "gpuward-remediator")
    one = RemediatorProcess(cluster.plane.folder / "one", kubeconfig, policy=QUICK + ON_THE_NODE)
    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, FABRIC)

        async def kept() -> str:
            return await cluster.health.keep_evidence(NODE)

        await cluster.until(kept, "the mark that an agent keeps evidence for")
        await cluster.until(another, "another pod of the driver")
        await cluster.until(labelled, "the label that asks for a reboot")
        notes = (await cluster.node(NODE))["metadata"]["annotations"]
        assert notes["gpuward.io/repair"].endswith("-restartnode-1 RestartNode OKE")
        await cluster.plane.controllers.kubelets.reboot(NODE)
        await cluster.health.recreated(NODE)
        session = await phase(cluster, NODE, "Released")
    climbed = [(a["step"], a["state"]) for a in session["status"]["repair"]]
    assert climbed == [("RestartDriver", "Failed"), ("RestartNode", "Proven")]
    assert not await labelled()
    assert "gpuward.io/repair" not in (await cluster.node(NODE))["metadata"]["annotations"]
    asked = [r for r in cluster.plane.requests.all if r.user.endswith(":gpuward-remediator")]
    assert [r.code for r in asked if r.subresource == "eviction"] == [201]
    assert not [r for r in asked if r.code == 403]
