"""A real remediator climbs its ladder through objects of others: made, deleted, labelled.

With the service account of the manifests and the components of exactly these adapters, on a server
that enforces RBAC (and, where it is a real one, the admission policies).
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from hack.sim.cluster.client import Object
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, NODES, Resource
from hack.sim.manifests import post_manifests
from rules.policy.components import repair_needs
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.cluster.either_cluster import Cluster
from tests.support.cluster.made import made
from tests.support.cluster.manifest_builds import build, one
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
CLAIMS = Resource("karpenter.sh", "v1", "nodeclaims", False, "NodeClaim")
REBOOT: dict[str, Any] = {
    "object": {
        "apiVersion": "janitor.dgxc.nvidia.com/v1alpha1",
        "kind": "RebootNode",
        "spec": {"nodeName": "{node}"},
    },
    "resource": "rebootnodes",
}


def ladder(*, over: tuple[str, ...] = ()) -> str:
    """Two steps, each with time enough, and no more time for those that are `over`."""
    steps = {
        step: {"adapter": adapter, "timeout": "1s" if step in over else "5m"}
        for step, adapter in (("RestartNode", "Reboots"), ("ReplaceNode", "Karpenter"))
    }
    repair = {"mode": "Auto", "adapters": {"Reboots": REBOOT}, "steps": steps}
    return f"\nrepair: {json.dumps(repair)}\n"


KEPT_OUT = {"Deployment", "DaemonSet", "CustomResourceDefinition", "NetworkPolicy", "Service"}
NODE = "gpu-0000"


async def define(cluster: Cluster, *groups: str) -> None:
    """The definitions of these API groups, served."""
    for each in DEFINITIONS:
        if each["spec"]["group"] in groups:
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, each)
    for resource in (REBOOTS, CLAIMS):
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


def granted(policy: str) -> list[Object]:
    """The rules that the component of the policy's own adapters adds to the ClusterRole."""
    loaded = load_policy(yaml.safe_load(policy))
    assert isinstance(loaded, Policy)
    built = yaml.safe_load(repair_needs(loaded.repair).own["kustomization.yaml"])
    roles = [each for each in built["patches"] if each["target"]["kind"] == "ClusterRole"]
    return [op["value"] for each in roles for op in yaml.safe_load(each["patch"])]


async def standing(cluster: Cluster) -> RemediatorProcess:
    """Our manifests, GPU nodes, and what Karpenter knows of one of them."""
    objects = [o for o in build("repair-karpenter") if o["kind"] not in KEPT_OUT]
    one(objects, "ClusterRole", "gpuward-remediator")["rules"] += granted(ladder())
    await post_manifests(cluster.client, objects, namespace="gpuward")
    await define(cluster, CLAIMS.group)
    await cluster.add(pool=Pool(name="gpu", nodes=3))
    await cluster.health.all_healthy([f"gpu-000{n}" for n in range(3)])
    meta, status = {"finalizers": ["karpenter.sh/termination"]}, {"nodeName": NODE}
    await made(cluster.client, CLAIMS, "claim-0", meta=meta, spec={}, status=status)
    kubeconfig = await cluster.plane.service_account_kubeconfig("gpuward", "gpuward-remediator")
    return RemediatorProcess(cluster.plane.folder / "one", kubeconfig, policy=QUICK + ladder())


def blocked_with(
    cluster: Cluster, reason: str, message: str
) -> Callable[[], Awaitable[Object | None]]:
    async def there() -> Object | None:
        found = await sessions(cluster, NODE)
        blocked = condition_of(found[-1], "Blocked") if found else {}
        fits = blocked.get("status") == "True" and blocked["reason"] == reason
        return found[-1] if fits and message in blocked["message"] else None

    return there


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_s39_the_ladder_is_climbed_through_objects_each_asked_once(
    secure_cluster: Cluster, dies: bool
) -> None:
    cluster = secure_cluster
    leader = await standing(cluster)
    with running(leader):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await cluster.until(
            lambda: cluster.health.keep_evidence(NODE), "evidence of its taint and cordon"
        )

        # Made: not served at first; then it is there, under the session's name, and lies.
        await cluster.until(
            blocked_with(cluster, "RepairRefused", "does not serve rebootnodes"),
            "what is not installed",
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
        leader.new_policy(QUICK + ladder(over=("RestartNode",)))
        if dies:
            leader.kill()
            leader.start()
        await cluster.gone(REBOOTS, name)

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
        ("ReplaceNode", "Proven"),
    ]
    writes = [
        (r.verb, r.resource, r.code)
        for r in cluster.plane.requests.all
        if r.user.endswith(":gpuward-remediator")
        and r.resource in {"rebootnodes", "nodeclaims"}
        and r.verb not in {"get", "list"}
    ]
    assert writes == [
        ("create", "rebootnodes", 201),
        ("delete", "rebootnodes", 200),
        ("delete", "nodeclaims", 200),
    ]
