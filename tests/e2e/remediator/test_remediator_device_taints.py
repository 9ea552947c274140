"""A device taint of another vendor's DRA driver is a trigger, with the rights of the base."""

from hack.sim.cluster.resource import RESOURCE_SLICES
from hack.sim.manifests import post_manifests
from tests.support.cluster.made import made
from tests.support.cluster.manifest_builds import build
from tests.support.cluster.slices import NEURON, neuron_slice, taint
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    running,
)

NODES = [f"trn-{number}" for number in range(4)]
NOT_POSTED = {"CustomResourceDefinition", "DaemonSet", "Deployment"}
POLICY = f"""{QUICK}
nodeSelector: team=trn
external: [{{match: deviceTaint {NEURON} *, reason: NeuronDeviceTainted, for: 1s}}]
"""


async def test_a_tainted_device_quarantines_its_node_until_the_taint_is_removed(
    secure_cluster, tmp_path
):
    cluster = secure_cluster
    objects = [each for each in build() if each["kind"] not in NOT_POSTED]
    await post_manifests(cluster.client, objects, namespace="gpuward")
    await cluster.add_nodes(*NODES, gpus=0, team="trn")
    for node in NODES:
        await made(cluster.client, RESOURCE_SLICES, node, spec=neuron_slice(node, {"name": "d"}))
    kubeconfig = await cluster.plane.service_account_kubeconfig("gpuward", "gpuward-remediator")
    with running(RemediatorProcess(tmp_path, kubeconfig, policy=POLICY)):
        await leads(cluster, "one")
        tainted = {"name": "d", "taints": [taint("unhealthy", "NoSchedule")]}
        spec = neuron_slice(NODES[0], tainted)
        await cluster.client.patch(RESOURCE_SLICES, NODES[0], {"spec": spec})
        session = await phase(cluster, NODES[0], "Marked")
        assert session["spec"]["causes"][0]["reason"] == "NeuronDeviceTainted"
        spec = neuron_slice(NODES[0], {"name": "d"})
        await cluster.client.patch(RESOURCE_SLICES, NODES[0], {"spec": spec})
        await phase(cluster, NODES[0], "Released")
