"""Read the device taints that are triggers of the policy, for commands."""

from collections import defaultdict
from collections.abc import Mapping

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from rules.api import resource_slices
from rules.api.resource_slices import NodeTaints, ResourceSliceView
from rules.policy.policy import Policy


async def by_node(
    cluster: Cluster, policy: Policy, node: str = ""
) -> dict[str, Mapping[str, NodeTaints]]:
    """Return the taints by node and driver, of one node if it is named. Print a line for each
    driver whose slices cannot be read, and leave it out.
    """
    found: defaultdict[str, dict[str, NodeTaints]] = defaultdict(dict)
    for driver in sorted(policy.taint_drivers):
        slices: defaultdict[str, list[ResourceSliceView]] = defaultdict(list)
        query = {"fieldSelector": resource_slices.fields_of(driver, node)}
        try:
            for each in await cluster.items(resource_slices.PATH, ResourceSliceView, query):
                slices[each.spec.node_name].append(each)
        except CommandError as error:
            cluster.say(f"device taints of {driver} are unknown: {error}")
        for name, of_node in slices.items():
            found[name][driver] = resource_slices.node_taints(of_node)
    return {**found}
