"""Agents that fell silent: when a node's GPUHealthy becomes Unknown, and when it stays as it is.

Sensor loss is not GPU failure: nothing is opened, nothing is released; the condition says that
nobody looks any more. Pure; called by the remediator's sweep over all verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping

from rules.api.names import CONDITION_HEALTHY, LABEL_HEALTH
from rules.api.nodes import AgentPod, HealthView, NodeView
from rules.api.timestamps import format_time, utc
from rules.api.writes import SetNodeUnknown, SetVerdictSilent
from rules.session.observation import AGENT_GONE_S, publisher_silence


def word_of(node: NodeView) -> tuple[str, str]:
    """What the node says of its agent's verdict: whoever publishes, or gives up, changes it."""
    condition = node.condition(CONDITION_HEALTHY)
    return condition.status if condition else "", node.labels.get(LABEL_HEALTH, "")


def silent_since(
    health: HealthView, agents: Mapping[str, AgentPod], observing_since: float, now: float
) -> float | None:
    """Since when the node's agent has been silent, if for too long; what this process could not
    see does not count.
    """
    silence, since = publisher_silence(health, agents, now)
    if not silence:
        return None
    counted_from = max(since, observing_since)
    return since if now - counted_from >= AGENT_GONE_S else None


def say_silent(
    health: HealthView, agents: Mapping[str, AgentPod], observing_since: float, now: float
) -> SetVerdictSilent | None:
    """What the verdict itself is to say of its agent's silence; None where it says so already."""
    since = silent_since(health, agents, observing_since, now)
    said = health.status.silent_since
    if (since is None) == (not said):
        return None
    return SetVerdictSilent(
        node=health.metadata.name,
        resource_version=health.metadata.resource_version,
        since="" if since is None else format_time(since or now),
    )


def mark_unknown(
    node: NodeView,
    health: HealthView,
    agents: Mapping[str, AgentPod],
    observing_since: float,
    now: float,
) -> SetNodeUnknown | None:
    """The write that says so on the node, unless it says so already."""
    since = silent_since(health, agents, observing_since, now)
    if since is None or (health.status.node_uid and health.status.node_uid != node.uid):
        return None
    if word_of(node) == ("Unknown", "unknown"):
        return None
    why, _ = publisher_silence(health, agents, now)
    at = f" (since {utc(since)})" if since else ""
    return SetNodeUnknown(
        node=node.name,
        node_uid=node.uid,
        resource_version=node.metadata.resource_version,
        at=now,
        message=f"Nobody looks after the GPUs of this node: {why}{at}; check the agent's pod.",
    )
