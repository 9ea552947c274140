"""Check what actions on single GPUs depend on.

`isolate: Device` needs a served version, GPU UUIDs in slices, and nodes without the device plugin.
Drain scope Holders needs to know which pod uses which GPU.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.preflight_policies import Finding
from rules.api import device_taints, messages, resource_slices
from rules.api.nodes import NodeView
from rules.catalog.reason import DrainScope
from rules.policy import components
from rules.policy.policy import Policy
from rules.session import isolation

_HOLDERS: Final = "pod-resources"
"""The source of `holders` in the status of a GPUNodeHealth."""


def asked(policy: Policy) -> tuple[bool, bool]:
    """Return whether the policy isolates single GPUs, and whether it uses drain scope Holders."""
    scopes = {policy.drain.scope, *(one.drain_scope for one in policy.reasons.values())}
    return components.asks(policy, components.DEVICES), DrainScope.HOLDERS in scopes


async def device_checks(
    cluster: Cluster, user: str, policy: Policy, nodes: Sequence[NodeView]
) -> list[Finding]:
    """Return the findings about what the policy asks for on these nodes. With a bad one gpuward
    isolates the node, or all GPU pods leave. `user` is the remediator's.
    """
    isolates, holders = asked(policy)
    found = await _isolation_checks(cluster, user, nodes) if isolates else []
    return [*found, await _holder_check(cluster, nodes)] if holders else found


async def _isolation_checks(
    cluster: Cluster, user: str, nodes: Sequence[NodeView]
) -> list[Finding]:
    group, resource = device_taints.GROUP, device_taints.RESOURCE
    if await cluster.may(user, group, resource, "create", "") is False:
        why = f"{user} may not create {resource}; add component devices"
        return [("device taints", why, False)]
    served = [version for version in device_taints.VERSIONS if await _serves(cluster, version)]
    server = str((await cluster.get("/version") or {}).get("gitVersion", ""))
    why = device_taints.broken(server)
    if not served:
        why = (
            "DeviceTaintRules are not served; use Kubernetes 1.37, or 1.36.3 with feature "
            "gate DRADeviceTaintRules and --runtime-config=resource.k8s.io/v1beta2=true"
        )
    found = [("device taints", why or f"{served[0]} is served", not why)]
    if not served:
        return found
    query = {"fieldSelector": resource_slices.fields_of(resource_slices.GPU_DRIVER)}
    shown = {
        str((each.get("spec") or {}).get("nodeName"))
        for each in await cluster.everything(resource_slices.PATH, query)
        if any(
            ((device.get("attributes") or {}).get("uuid") or {}).get("string")
            for device in (each.get("spec") or {}).get("devices") or ()
        )
    }
    return [*found, *_of_nodes(nodes, shown)]


async def _holder_check(cluster: Cluster, nodes: Sequence[NodeView]) -> Finding:
    known = {
        health.metadata.name
        for health in await cluster.healths()
        for source in health.status.sources
        if source.name == _HOLDERS and source.state == "Up"
    }
    unknown = sorted(
        node.name for node in nodes if node.name not in known and isolation.has_plugin(node)
    )
    why = (
        f"on {messages.name_list(unknown)} it is not known which pod uses which GPU, so all GPU "
        "pods leave; add component pod-resources"
    )
    return "drain scope Holders", why if unknown else "every node reports them", not unknown


def _of_nodes(nodes: Sequence[NodeView], shown: set[str]) -> Iterator[Finding]:
    missing = sorted(node.name for node in nodes if node.name not in shown)
    why = f"no ResourceSlice with attribute uuid for {messages.name_list(missing)}"
    yield "device UUIDs", why if missing else "every node publishes its GPUs", not missing
    classic = sorted(node.name for node in nodes if isolation.has_plugin(node))
    why = f"{messages.name_list(classic)} offer nvidia.com/gpu through the device plugin"
    yield "device plugin", why if classic else "no node uses it", not classic


async def _serves(cluster: Cluster, version: str) -> bool:
    group = await cluster.get(f"/apis/{version}") or {}
    return any(each.get("name") == device_taints.RESOURCE for each in group.get("resources", ()))
