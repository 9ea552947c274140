"""What stands on nodes and does not do what people believe: unheard labels, marks left behind."""

from __future__ import annotations

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.leading import lease_of
from remediator.kubectl.ready.check import WARN, Check
from remediator.kubectl.ready.installation import Installation
from rules.api.mark import marked
from rules.api.names import LABEL_OPT_OUT
from rules.api.sentences import some
from rules.session.halts import opt_out_unheard


async def unheard_checks(cluster: Cluster) -> list[Check]:
    """Nodes that somebody meant to opt out, by another word than the one that does."""
    nodes = [node for node in await cluster.nodes(LABEL_OPT_OUT) if opt_out_unheard(node)]
    if not nodes:
        return []
    first = nodes[0]
    among = f"{some(sorted(node.name for node in nodes))}: {opt_out_unheard(first)}"
    remedy = f"kubectl label node {first.name} {LABEL_OPT_OUT}=true --overwrite"
    return [Check(verdict=WARN, name="opt-out", found=f"{among}; {remedy}")]


async def left_checks(cluster: Cluster, here: Installation) -> list[Check]:
    """Nodes that stay out of service because gpuward was deleted and not uninstalled."""
    if here.spaces != frozenset() or await lease_of(cluster, here.namespace) is not None:
        return []
    nodes = sorted(node.name for node in await cluster.nodes() if marked(node))
    if not nodes:
        return []
    found = (
        f"{some(nodes)}: gpuward took them out of service and is not there to give them back; an "
        "installation takes up from there, kubectl gpuward uninstall takes the marks off"
    )
    return [Check(verdict=WARN, name="marks left behind", found=found)]
