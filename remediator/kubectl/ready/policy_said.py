"""What a command over the whole fleet says of the policy in the cluster, above its table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.leading import leaders_word_of
from rules.api.leaders_word import LeadersWord
from rules.api.nodes import NodeView
from rules.api.quarantine import Mode
from rules.api.selectors import parse_selector
from rules.policy.policy import Policy
from rules.policy.shadow import UnreadPolicy, by_accident, shadow_of
from rules.text.counted import count

_LAST_GOOD: Final = "the remediator that leads goes on by the last good one"
_EITHER: Final = (
    "a remediator that runs goes on by the last good one, one that starts now is in Shadow"
)
_IN_SHADOW: Final = (
    "the policy is Shadow: no node is taken out of service; kubectl gpuward plan says what "
    "Enforce would do, and mode: Enforce in the policy of your overlay makes it so"
)

_HIDDEN: Final = "you may not get the policy's configmap: whether it takes nodes out is not known"


async def policy_of(cluster: Cluster, namespace: str) -> Policy | None:
    """The policy in force, the same for every node that a command is about: that of the namespace,
    or what is left to a remediator that could read none.
    """

    async def in_force() -> Policy | None:
        if (await leaders_word_of(cluster, namespace)).unread:
            return UnreadPolicy()
        return await cluster.policy(namespace)

    return await cluster.once(f"policy {namespace}", in_force)


def unread_said(word: LeadersWord) -> str:
    """That Shadow is an accident, and what to do; "" where it is none."""
    if not word.unread:
        return ""
    words = shadow_of(UnreadPolicy())
    assert words is not None
    return (
        f"{words.said} ({word.unread}): nothing is done for nodes that fail; kubectl gpuward "
        "preflight looks at the policy, kubectl cordon NODE keeps new work off one"
    )


async def unusable(error: CommandError, cluster: Cluster, namespace: str) -> str:
    """The policy says what this version cannot take; what holds meanwhile."""
    word = await leaders_word_of(cluster, namespace)
    words = shadow_of(UnreadPolicy()) if word.unread else None
    meanwhile = words.said if words else _LAST_GOOD if word.last_good else _EITHER
    return f"the policy cannot be used ({error}): {meanwhile}"


async def readable_policy(cluster: Cluster, namespace: str) -> tuple[Policy | None, list[str]]:
    """The policy in force, None where there is none or it may not be read; and what to say where
    it is wrong, or may not be read.
    """
    if said := unread_said(await leaders_word_of(cluster, namespace)):
        return UnreadPolicy(), [said]
    try:
        return await cluster.policy(namespace), []
    except CommandError as error:
        if error.forbidden:
            return None, [_HIDDEN]
        return None, [await unusable(error, cluster, namespace)] if error.unusable else []


def of_policy(policy: Policy | None, nodes: Collection[NodeView]) -> list[str]:
    """That somebody chose Shadow, or that it leaves some of these nodes out."""
    if policy is None or by_accident(policy):
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
