"""What stands in the way of what a person asks of a node, told before and after it is asked."""

from __future__ import annotations

import argparse

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.leading import leaders_word_of
from remediator.kubectl.ready.policy_said import policy_of
from remediator.view.acts import resume_command
from rules.api.names import LABEL_OPT_OUT
from rules.api.nodes import NodeView
from rules.policy.shadow import by_accident, shadow_of
from rules.session.observation import opted_out, pause_covers
from rules.session.owners import working_owner


async def in_the_way(cluster: Cluster, options: argparse.Namespace, node: NodeView) -> str:
    """People should know when their request will only be played, or waits for the word of others;
    a clause, "" where nothing is known to stand in its way.
    """
    unsure = ""
    try:
        policy = await policy_of(cluster, options.namespace)
    except CommandError as error:
        if error.forbidden:
            unsure = "; whether the policy enforces is not known, you may not get its configmap"
        elif error.unusable:
            unsure = await _by_which(cluster, options.namespace)
    else:
        if policy is None:
            unsure = (
                f"; there is no policy in namespace {options.namespace} (-n says where gpuward is "
                "installed): nothing is touched, unless a remediator read one before"
            )
        elif by_accident(policy) and (words := shadow_of(policy)) is not None:
            return (
                f"; {words.said}: nothing is touched before it can, and until then kubectl cordon "
                f"{node.name} keeps new work off"
            )
        elif (words := shadow_of(policy)) is not None:
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


async def _by_which(cluster: Cluster, namespace: str) -> str:
    """What a request meets under a policy that cannot be used, as `in_the_way`."""
    if (await leaders_word_of(cluster, namespace)).last_good:
        return "; the policy cannot be used, and the remediator goes on by the last good one"
    return "; the policy cannot be used: a remediator that began with it touches nothing"
