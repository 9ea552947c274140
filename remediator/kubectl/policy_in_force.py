"""The policy that the cluster's remediator goes by, as far as a person may see it."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Final

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.leading import leadership
from remediator.view.acts import resume_command
from rules.api.leaders_word import LeadersWord
from rules.api.names import LABEL_OPT_OUT
from rules.api.nodes import NodeView
from rules.api.quarantine import Mode
from rules.api.selectors import parse_selector
from rules.policy.policy import Policy
from rules.policy.shadow import UnreadPolicy, by_accident, shadow_of
from rules.session.observation import opted_out, pause_covers
from rules.session.owners import working_owner
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
        if (await leadership(cluster, namespace)).word.unread:
            return UnreadPolicy()
        return await cluster.policy(namespace)

    return await cluster.once(f"policy {namespace}", in_force)


def unread_said(word: LeadersWord) -> str:
    """That Shadow is an accident, and what to do; "" where it is none."""
    words = shadow_of(UnreadPolicy())
    if not word.unread or words is None:
        return ""
    return (
        f"{words.said} ({word.unread}): nothing is done for nodes that fail; kubectl gpuward "
        "preflight looks at the policy, kubectl cordon NODE keeps new work off one"
    )


async def unusable(error: CommandError, cluster: Cluster, namespace: str) -> str:
    """The policy says what this version cannot take; what holds meanwhile."""
    word = (await leadership(cluster, namespace)).word
    words = shadow_of(UnreadPolicy()) if word.unread else None
    meanwhile = words.said if words else _LAST_GOOD if word.last_good else _EITHER
    return f"the policy cannot be used ({error}): {meanwhile}"


async def judged_by(cluster: Cluster, options: argparse.Namespace) -> tuple[Policy | None, str]:
    """The policy that `--policy` names, else the cluster's, and where it is from; None where the
    cluster has none: the defaults hold. CommandError `unusable` for one that is wrong.
    """
    if options.policy:
        # Imported here: only a plan reads a file.
        from remediator.policy_file import given_policy

        found = given_policy(options.policy)
        if isinstance(found, Policy):
            return found, f"policy {options.policy}"
        raise CommandError("; ".join(found), exit_code=64)
    namespace = options.namespace
    try:
        in_cluster = await cluster.policy(namespace)
    except CommandError as error:
        if not error.unusable:
            raise
        text = f"{await unusable(error, cluster, namespace)}; --policy FILE judges by another"
        raise CommandError(text, unusable=True) from error
    if in_cluster is not None:
        return in_cluster, f"policy of ConfigMap {namespace}/gpuward-policy"
    return None, f"default policy (there is no ConfigMap {namespace}/gpuward-policy)"


async def readable_policy(cluster: Cluster, namespace: str) -> tuple[Policy | None, list[str]]:
    """The policy in force, None where there is none or it may not be read; and what to say where
    it is wrong, or may not be read.
    """
    if said := unread_said((await leadership(cluster, namespace)).word):
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
    said = [_IN_SHADOW] if policy.mode == Mode.SHADOW else []
    # A selector that was narrowed by mistake looks like a fleet that is well.
    selects = parse_selector(policy.node_selector)
    if left := sum(not selects(node.labels) for node in nodes):
        selector, among = policy.node_selector, count(len(nodes), "GPU node")
        said.append(
            f"the policy's nodeSelector ({selector}) leaves out {left} of {among}: no detector "
            "takes one of those"
        )
    return said


async def in_the_way(cluster: Cluster, options: argparse.Namespace, node: NodeView) -> str:
    """What keeps a request about the node from being carried out: Shadow, an opt-out, another
    owner, a pause; a clause, "" where nothing is known to stand in its way.
    """
    unsure = ""
    try:
        policy = await policy_of(cluster, options.namespace)
    except CommandError as error:
        if error.forbidden:
            unsure = "; whether the policy enforces is not known, you may not get its configmap"
        elif error.unusable:
            last_good = (await leadership(cluster, options.namespace)).word.last_good
            unsure = (
                "; the policy cannot be used, and the remediator goes on by the last good one"
                if last_good
                else "; the policy cannot be used: a remediator that began with it touches nothing"
            )
    else:
        if policy is None:
            unsure = (
                f"; there is no policy in namespace {options.namespace} (-n says where gpuward is "
                "installed): nothing is touched, unless a remediator read one before"
            )
        elif (words := shadow_of(policy)) is not None and by_accident(policy):
            return (
                f"; {words.said}: nothing is touched before it can, and until then kubectl cordon "
                f"{node.name} keeps new work off"
            )
        elif words is not None:
            # before all else: the end of that would change nothing
            return f"; {words.said}, so nothing is touched"
    if opted_out(node):
        command = f"kubectl label node {node.name} {LABEL_OPT_OUT}-"
        return f"; the node is opted out, nothing is done to it before: {command}"
    if owner := working_owner(node, None, cluster.now()):
        return f"; {owner}, nothing is done before that is over"
    try:
        paused = await cluster.once("pauses", cluster.pauses)
    except CommandError as error:
        hidden = "; whether it is paused is not known, you may not list gpuwardpauses"
        return unsure + hidden if error.forbidden else unsure
    if pauses := [p for p in paused if pause_covers(p, node, cluster.now())]:
        return f"; it is paused, nothing is done before: {resume_command(pauses)}"
    return unsure
