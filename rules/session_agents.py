"""Nodes whose agent fell silent: the remediator says Unknown in its place, and nothing more.

Sensor loss is not GPU failure: nothing here opens, drains or releases. Called by the remediator
about once a minute; its own downtime is not held against an agent.
"""

from collections import defaultdict
from collections.abc import Mapping

from rules.decision import SetNodeUnknown
from rules.fleet_breaker import FleetFinding
from rules.names import CONDITION_HEALTHY, LABEL_HEALTH
from rules.policy_selector import parse_selector
from rules.quarantine_object import Mode
from rules.sentence import some
from rules.session_observation import AGENT_GONE_S, HEARTBEAT_FRESH_S
from rules.session_time import clock, parse_time
from rules.snapshot import AgentPod, FleetSnapshot, NodeView

SEVERAL = 3
"""So many silent agents at once are one fleet finding, about the agents and not about GPUs."""


def silent_nodes(
    snapshot: FleetSnapshot, gone_since: Mapping[str, float]
) -> Mapping[str, tuple[float, str]]:
    """Selected nodes with a silent agent: since when, and why it counts as silent.

    ``gone_since``: when the node's last agent pod vanished, for nodes that had one.
    """
    selects = parse_selector(snapshot.policy.node_selector)
    pods: defaultdict[str, list[AgentPod]] = defaultdict(list)
    for pod in snapshot.agents.values():
        pods[pod.node].append(pod)
    found: dict[str, tuple[float, str]] = {}
    for name, node in snapshot.nodes.items():
        if not selects(node.labels):
            continue
        silence = _silence(name, pods.get(name, []), gone_since, snapshot)
        if silence is not None:
            found[name] = silence
    return found


def _silence(
    name: str, pods: list[AgentPod], gone_since: Mapping[str, float], snapshot: FleetSnapshot
) -> tuple[float, str] | None:
    if any(pod.ready for pod in pods):
        return None
    heard, limit_s, why = 0.0, AGENT_GONE_S, ""
    if pods:
        heard = max(pod.ready_changed_at for pod in pods)
        why = "its pod is not Ready"
    elif name in gone_since:
        heard, why = gone_since[name], "its pod is gone"
    else:
        health = snapshot.healths.get(name)
        heartbeat = parse_time(health.status.publisher.heartbeat) if health else None
        if heartbeat is None:
            return None
        heard, limit_s, why = heartbeat, HEARTBEAT_FRESH_S, "its heartbeat stopped"
    if snapshot.now - max(heard, snapshot.observing_since) <= limit_s:
        return None
    return heard, why


def say_unknown(
    snapshot: FleetSnapshot, silent: Mapping[str, tuple[float, str]]
) -> tuple[SetNodeUnknown, ...]:
    """GPUHealthy=Unknown for the silent, where it does not say so yet. Nothing in Shadow."""
    if snapshot.policy.mode == Mode.SHADOW:
        return ()
    return tuple(
        SetNodeUnknown(
            node=name,
            node_uid=snapshot.nodes[name].uid,
            resource_version=snapshot.nodes[name].metadata.resource_version,
            at=snapshot.now,
            message=f"The agent is silent since {clock(since)}, {why}; the GPUs are not judged.",
        )
        for name, (since, why) in sorted(silent.items())
        if not _says_unknown(snapshot.nodes[name])
    )


def _says_unknown(node: NodeView) -> bool:
    condition = node.condition(CONDITION_HEALTHY)
    if condition is None:
        return True  # No agent ever spoke for this node; there is nothing to correct.
    return condition.status == "Unknown" and node.labels.get(LABEL_HEALTH) == "unknown"


def silence_finding(silent: Mapping[str, tuple[float, str]]) -> FleetFinding | None:
    """One finding when several agents are silent: look at the agents, not at the nodes."""
    if len(silent) < SEVERAL:
        return None
    nodes = tuple(sorted(silent))
    return FleetFinding(
        kind="AgentsSilent",
        reason="AgentStale",
        shared="agent",
        nodes=nodes,
        at=min(since for since, _ in silent.values()),
        message=f"{len(nodes)} agents are silent ({some(nodes)}); their nodes are left as they are",
    )
