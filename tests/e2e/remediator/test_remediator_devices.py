"""One GPU of eight is isolated by a real scheduler: seven are allocated, the bad one never.

Needs etcd, kube-apiserver, kube-scheduler and kube-controller-manager of Kubernetes 1.36.3 in
KUBEBUILDER_ASSETS. The remediator has the rights of component devices only.
"""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers.suite import Parts, utc_now
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet_health import Fault, FleetHealth, gpu_uuid
from hack.sim.cluster.resource import (
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from hack.sim.control_plane import Setup, control_plane
from hack.sim.manifests import post_manifests
from rules.api import device_taints
from rules.catalog.reason import Action
from tests.support.cluster.either_cluster import DEFINITIONS, Cluster
from tests.support.cluster.made import made
from tests.support.cluster.manifest_builds import build
from tests.support.cluster.slices import gpu_device, slice_spec
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    running,
)

NODE = "gpu-node-1"
GPUS = 8
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", False, "DeviceClass")
NOT_POSTED = {"CustomResourceDefinition", "DaemonSet", "Deployment"}
POLICY = f"{QUICK}\nisolate: Device\n".replace("drain: {", "drain: {unmanaged: Evict, ")
ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere"))


def _unusable() -> str:
    """Why the programs cannot be used; "" if they can."""
    programs = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
    if missing := [name for name in programs if shutil.which(name, path=ASSETS) is None]:
        return f"no {missing[0]} in KUBEBUILDER_ASSETS"
    found = subprocess.run(
        [ASSETS / "kube-apiserver", "--version"], capture_output=True, text=True, check=True
    )
    return device_taints.broken(found.stdout.split()[-1])


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_unusable()), reason=_unusable() or "-")]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """One node of eight GPUs behind NVIDIA's DRA driver."""
    setup = Setup(
        manifests=(DEFINITIONS,), secure=True, device_taints=True, parts=Parts(scheduler=False)
    )
    async with control_plane(setup) as plane:
        found = Cluster(plane, FleetHealth(plane.client, utc_now))
        objects = [each for each in build("devices") if each["kind"] not in NOT_POSTED]
        await post_manifests(plane.client, objects, namespace="gpuward")
        # The others offer no devices: gpuward quarantines no only node of a pool.
        nodes = [NODE, "gpu-node-2", "gpu-node-3", "gpu-node-4"]
        await found.add_nodes(*nodes, gpus=GPUS)
        await found.settled(*nodes)
        await plane.client.patch(
            NODES,
            NODE,
            {"status": {"allocatable": {"nvidia.com/gpu": None}}},
            subresource="status",
        )
        expression = "device.driver == 'gpu.nvidia.com'"
        await made(plane.client, DEVICE_CLASSES, "gpu", spec={
            "selectors": [{"cel": {"expression": expression}}]
        })  # fmt: skip
        devices = [gpu_device(number, gpu_uuid(NODE, number)) for number in range(GPUS)]
        await made(plane.client, RESOURCE_SLICES, NODE, spec=slice_spec(NODE, *devices))
        await found.health.all_healthy(nodes)
        yield found


async def add_gpu_pod(cluster: Cluster, name: str, app: str) -> None:
    """A pod that claims one GPU."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    await made(
        cluster.client, RESOURCE_CLAIMS, name, "default", spec={"devices": {"requests": requests}}
    )
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    await made(cluster.client, PODS, name, "default", meta={"labels": {"app": app}}, spec={
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    })  # fmt: skip


async def device_of(cluster: Cluster, name: str) -> str:
    """The device that the claim of the pod has; "" without one."""
    try:
        claim: Object = await cluster.client.get(RESOURCE_CLAIMS, name, "default")
    except ApiError:
        return ""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return str(results[0]["device"]) if results else ""


async def allocated(cluster: Cluster) -> dict[str, str]:
    """The device of each claim that has one."""
    claims, _ = await cluster.client.list(RESOURCE_CLAIMS, "default")
    names = [claim["metadata"]["name"] for claim in claims]
    found = {name: await device_of(cluster, name) for name in names}
    return {name: device for name, device in found.items() if device}


async def test_seven_gpus_are_scheduled_and_the_bad_one_never(cluster: Cluster, tmp_path: Path):
    for name in ("holder-1", "holder-2"):
        await add_gpu_pod(cluster, name, "holder")
    await cluster.ready_pods("holder", 2)
    await cluster.add_budget("holder", minAvailable=2)
    bad = await device_of(cluster, "holder-1")
    kubeconfig = await cluster.plane.service_account_kubeconfig("gpuward", "gpuward-remediator")
    one = RemediatorProcess(tmp_path, kubeconfig, policy=POLICY)
    with running(one):
        await leads(cluster, "one")
        fault = Fault(
            reason="Xid48DoubleBitECCError",
            gpu=int(bad.removeprefix("gpu-")),
            action=Action.RESET_GPU,
            xids=(48,),
        )
        await cluster.health.fail(NODE, fault)

        async def rule() -> str:
            rules, _ = await cluster.client.list(DEVICE_TAINT_RULES)
            return str(rules[0]["spec"]["deviceSelector"]["device"]) if rules else ""

        assert await cluster.until(rule, "a DeviceTaintRule") == bad
        session = await phase(cluster, NODE, "Draining")
        assert session["status"]["drain"]["scope"] == "Holders"
        assert len(await cluster.ready_pods("holder", 2)) == 2, "the budget allows no eviction"

        # The budget allows one disruption from now on: the holder leaves, the other one stays.
        await cluster.client.patch(
            Resource("policy", "v1", "poddisruptionbudgets", True, "PodDisruptionBudget"),
            "holder", {"spec": {"minAvailable": 1}}, "default",
        )  # fmt: skip
        await phase(cluster, NODE, "Quarantined")
        (stays,) = await cluster.ready_pods("holder", 1)
        assert stays["metadata"]["name"] == "holder-2"
        node = await cluster.node(NODE)
        assert not node["spec"].get("unschedulable")
        await cluster.client.delete(RESOURCE_CLAIMS, "holder-1", "default")

        for number in range(GPUS - 1):
            await add_gpu_pod(cluster, f"work-{number}", "work")

        async def seven() -> bool:
            return len(await allocated(cluster)) == GPUS - 1

        await cluster.until(seven, "seven allocated GPUs")
        assert bad not in (await allocated(cluster)).values()

        await cluster.health.healthy(NODE)
        await phase(cluster, NODE, "Released")

        async def eight() -> bool:
            return bad in (await allocated(cluster)).values()

        await cluster.until(eight, f"{bad} allocated again")
        rules, _ = await cluster.client.list(DEVICE_TAINT_RULES)
        assert rules == []
