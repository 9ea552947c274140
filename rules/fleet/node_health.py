"""Report the current health of a node, which depends on whether its agent is alive.

If the agent is silent or the node has rebooted, the node is Unknown, even if its health status or
label has another value. The remediator updates those only after
`rules.session.observation.AGENT_GONE_S`. Missing data opens no session and releases no node.

Agent and kubelet use the node's clock. The API server records by its own clock when the kubelet's
report arrived, so the difference of the two clocks is known. Without that record (no right to read
nodes, another kubelet name, cached nodes without managers), a future time shows a clock that is
ahead, and a clock that is behind is not detected.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rules.api import names, timestamps
from rules.api.nodes import AgentPod, HealthView, NodeView, TimedNode
from rules.api.writes import SetHealthSilent, SetNodeUnknown
from rules.session import observation
from rules.session.observation import Staleness

UNKNOWN: Final = "Unknown"
VALUES: Final = ("Healthy", "Degraded", "Unhealthy", UNKNOWN)
_ILL: Final = ("Degraded", "Unhealthy")
_CODES: Final = {
    Staleness.NO_HEALTH_STATUS: "NoVerdict",
    Staleness.OTHER_NODE: "OtherNode",
    Staleness.OTHER_BOOT: "OtherBoot",
    Staleness.NO_DATA: "AgentBlind",
}


@dataclass(frozen=True, slots=True)
class HealthNow:
    """The current health: one of `VALUES`, and `why` it is Unknown or not current, a clause."""

    value: str
    why: str = ""

    @property
    def code(self) -> str:
        """`why` as a CamelCase reason; "" without one."""
        known = next((code for why, code in _CODES.items() if why == self.why), "")
        silent = "AgentSilent" if self.why in list(Staleness) else "VerdictUnreadable"
        return (known or silent) if self.why else ""


def health_now(
    node: NodeView | None,
    health: HealthView | None,
    agents: Mapping[str, AgentPod] | None,
    now: float,
) -> HealthNow:
    """Return the health by the node's health status.

    `health` is None without a status. `node` and `agents` are None if they may not be read.
    """
    if health is None:
        return HealthNow(UNKNOWN, Staleness.NO_HEALTH_STATUS)
    if node is None:
        why, _ = observation.publisher_silence(health, agents, now)
    else:
        why = observation.staleness(health, node, agents, now)
    value = health.status.health if health.status.health in VALUES else UNKNOWN
    if why == Staleness.NO_DATA and value in _ILL:
        # The agent is alive and saw the fault before it lost its data.
        return HealthNow(value, why)
    return HealthNow(UNKNOWN, why) if why else HealthNow(value)


def health_unread(node: NodeView, agents: Iterable[AgentPod]) -> HealthNow:
    """Return the health of a node by its label; Unknown if none of its agent pods is Ready."""
    pods = list(agents)
    if pods and not any(pod.ready for pod in pods):
        return HealthNow(UNKNOWN, Staleness.POD_NOT_READY)
    value = node.labels.get(names.LABEL_HEALTH, "").capitalize()
    return HealthNow(value if value in VALUES else UNKNOWN)


def published_health(node: NodeView) -> tuple[str, str]:
    """Return the node's GPUHealthy condition and health label."""
    condition = node.condition(names.CONDITION_HEALTHY)
    return condition.status if condition else "", node.labels.get(names.LABEL_HEALTH, "")


def silent_since(
    health: HealthView, agents: Mapping[str, AgentPod], observing_since: float, now: float
) -> float | None:
    """Return since when the node's agent is silent, if for too long. Time before this process
    started does not count.
    """
    silence, since = observation.publisher_silence(health, agents, now)
    if not silence:
        return None
    counted_from = max(since, observing_since)
    return since if now - counted_from >= observation.AGENT_GONE_S else None


def set_silent(
    health: HealthView, agents: Mapping[str, AgentPod], observing_since: float, now: float
) -> SetHealthSilent | None:
    """Return the write of `silentSince` to the health status; None if it is up to date."""
    since = silent_since(health, agents, observing_since, now)
    if (since is None) == (not health.status.silent_since):
        return None
    return SetHealthSilent(
        node=health.metadata.name,
        resource_version=health.metadata.resource_version,
        since="" if since is None else timestamps.format_time(since or now),
    )


def set_unknown(
    node: NodeView,
    health: HealthView,
    agents: Mapping[str, AgentPod],
    observing_since: float,
    now: float,
) -> SetNodeUnknown | None:
    """Return the write that sets the node to Unknown; None if it is already."""
    since = silent_since(health, agents, observing_since, now)
    if since is None or (health.status.node_uid and health.status.node_uid != node.uid):
        return None
    if published_health(node) == ("Unknown", "unknown"):
        return None
    why, _ = observation.publisher_silence(health, agents, now)
    at = f" (since {timestamps.utc(since)})" if since else ""
    return SetNodeUnknown(
        node=node.name,
        node_uid=node.uid,
        resource_version=node.metadata.resource_version,
        at=now,
        message=f"Nobody looks after the GPUs of this node: {why}{at}; check the agent's pod.",
    )


FEWEST: Final = 3
"""Fewer agents that fall silent are each a node of its own."""
LEAST_SHARE: Final = 0.5
"""Of all agents' pods: what takes half of them has not begun on a node."""
TOGETHER_S: Final = 300.0
"""Within so long the node controller flags the pods of nodes whose kubelets fell
silent at once: it does so at a limited rate, and a rollout replaces pods one by one.
"""


def silent_together(agents: Iterable[AgentPod]) -> str:
    """Return a message if many agents became not Ready at about the same time; else ""."""
    pods = list(agents)
    silent = sorted(pod.ready_changed_at for pod in pods if not pod.ready)
    # Agents that were silent before do not count.
    together = max(
        (bisect_right(silent, at + TOGETHER_S) - i for i, at in enumerate(silent)), default=0
    )
    if together < max(FEWEST, LEAST_SHARE * len(pods)):
        return ""
    return (
        f"{together} of {len(pods)} agents' pods stopped being Ready at about the same time: "
        "the cause is the API server, the network or a rollout, not the GPUs; the health of a "
        "node is known again once its agent is Ready, usually within minutes (kubectl get nodes)"
    )


CLOCKS_AGREE_S: Final = 120.0
"""Synchronized clocks differ by far less, and a report arrives sooner."""
_KUBELET: Final = "kubelet"
"""The kubelet's manager name in `managedFields`. In k3s it shares a name with controllers, so that
time may be theirs."""


def apart_s(node: NodeView | None, health: HealthView | None, now: float) -> float:
    """Return by how many seconds the node's clock is ahead of the API server's (negative: behind).

    0.0 if they agree, or if it is unknown.
    """
    by_report = _by_report(node)
    if by_report is not None:
        return by_report if abs(by_report) > CLOCKS_AGREE_S else 0.0
    ahead_s = _latest(health) - now
    return ahead_s if ahead_s > CLOCKS_AGREE_S else 0.0


def _by_report(node: NodeView | None) -> float | None:
    """Return the difference by the kubelet's last report; None without one."""
    ready = node.condition("Ready") if isinstance(node, TimedNode) else None
    if not isinstance(node, TimedNode) or ready is None:
        return None
    reports = (
        timestamps.parse_time(entry.time)
        for entry in node.metadata.managed_fields
        if entry.manager == _KUBELET and entry.subresource == "status"
    )
    noted = max((at for at in reports if at is not None), default=None)
    dated = timestamps.parse_time(ready.last_heartbeat_time or "")
    return None if noted is None or dated is None else dated - noted


def _latest(health: HealthView | None) -> float:
    """Return the latest time in the health status; 0.0 without any."""
    if health is None:
        return 0.0
    status = health.status
    found = (
        status.observed_at,
        status.publisher.heartbeat,
        *(incident.last_seen for incident in status.incidents),
    )
    return max(
        (at for one in found if (at := timestamps.parse_time(one or "")) is not None), default=0.0
    )
