"""What a command over the whole fleet says of the policy in the cluster, above its table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.view.text import count
from rules.api.nodes import NodeView
from rules.api.quarantine import Mode
from rules.api.selectors import parse_selector
from rules.policy.policy import Policy

_LAST_GOOD: Final = (
    "a remediator that runs goes on by the last good one, one that starts now is in Shadow"
)
_IN_SHADOW: Final = (
    "the policy is Shadow: no node is taken out of service; kubectl gpuward plan says what "
    "Enforce would do, and mode: Enforce in the policy of your overlay makes it so"
)

_HIDDEN: Final = "you may not get the policy's configmap: whether it takes nodes out is not known"


def unusable(error: CommandError) -> str:
    """The policy says what this version cannot take; what holds meanwhile."""
    return f"the policy cannot be used ({error}): {_LAST_GOOD}"


async def readable_policy(cluster: Cluster, namespace: str) -> tuple[Policy | None, list[str]]:
    """The policy, None where there is none or it may not be read; and what to say where it is
    wrong, or may not be read.
    """
    try:
        return await cluster.policy(namespace), []
    except CommandError as error:
        if error.forbidden:
            return None, [_HIDDEN]
        return None, [unusable(error)] if error.unusable else []


def of_policy(policy: Policy | None, nodes: Collection[NodeView]) -> list[str]:
    """That it is Shadow, or leaves some of these nodes out."""
    if policy is None:
        return []
    shadow = [_IN_SHADOW] if policy.mode == Mode.SHADOW else []
    return [*shadow, *_left_out(policy, nodes)]


def _left_out(policy: Policy, nodes: Collection[NodeView]) -> list[str]:
    """A selector that was narrowed by mistake looks like a fleet that is well."""
    selects = parse_selector(policy.node_selector)
    left = sum(not selects(node.labels) for node in nodes)
    if not left:
        return []
    whole = count(len(nodes), "GPU node")
    what = f"the policy's nodeSelector ({policy.node_selector}) leaves out {left} of {whole}"
    return [f"{what}: no detector takes one of those"]
