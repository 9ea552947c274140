"""What is reported about a node's GPUs while its agent is or is not heard.

A assessment is what was said once. While nobody can say it again (its agent is silent, the node
has booted since) the node is Unknown, whatever its assessment or its label still say: the
remediator changes those only after `rules.session.observation.AGENT_GONE_S`, and not while none
leads. Sensor loss is not GPU failure: nothing is opened, nothing is released.

The agent and the kubelet date what they say by the node's clock, the API server notes by its own
when the kubelet's report came: two readings of one moment show how far the clocks are apart.
Where that is not at hand (no right to read nodes, a kubelet of another name, the remediator's own
copy of the nodes, which is without their managers for their size) a time that is still to come
shows a clock that is ahead, and nothing shows one that is behind. Pure.
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
WORDS: Final = ("Healthy", "Degraded", "Unhealthy", UNKNOWN)
_ILL: Final = ("Degraded", "Unhealthy")
_CODES: Final = {
    Staleness.NO_HEALTH_STATUS: "NoVerdict",
    Staleness.OTHER_NODE: "OtherNode",
    Staleness.OTHER_BOOT: "OtherBoot",
    Staleness.NO_DATA: "AgentBlind",
}


@dataclass(frozen=True, slots=True)
class HealthNow:
    """One of `WORDS`; `why` the assessment is not to be acted on, a clause: of a node that is
    Unknown, and of one whose agent cannot see the GPUs that it calls ill; "" elsewhere.
    """

    word: str
    why: str = ""

    @property
    def code(self) -> str:
        """`why` as the CamelCase word of a table; "" without."""
        known = next((code for why, code in _CODES.items() if why == self.why), "")
        silent = "AgentSilent" if self.why in list(Staleness) else "VerdictUnreadable"
        return (known or silent) if self.why else ""


def health_now(
    node: NodeView | None,
    health: HealthView | None,
    agents: Mapping[str, AgentPod] | None,
    now: float,
) -> HealthNow:
    """By the node's assessment; `health` None says that there is none, `node` None that it may not
    be read, `agents` None that the agents' pods may not.
    """
    if health is None:
        return HealthNow(UNKNOWN, Staleness.NO_HEALTH_STATUS)
    if node is None:
        why, _ = observation.publisher_silence(health, agents, now)
    else:
        why = observation.staleness(health, node, agents, now)
    said = health.status.health
    word = said if said in WORDS else UNKNOWN
    if why == Staleness.NO_DATA and word in _ILL:
        # It lives, and what it cannot see any more it has seen go wrong.
        return HealthNow(word, why)
    return HealthNow(UNKNOWN, why) if why else HealthNow(word)


def health_unread(node: NodeView, agents: Iterable[AgentPod]) -> HealthNow:
    """Of a node whose assessment nobody has read: by its label, unless an agent's pod is on it and
    none of them (`agents`) is Ready.
    """
    pods = list(agents)
    if pods and not any(pod.ready for pod in pods):
        return HealthNow(UNKNOWN, Staleness.POD_NOT_READY)
    word = node.labels.get(names.LABEL_HEALTH, "").capitalize()
    return HealthNow(word if word in WORDS else UNKNOWN)


def word_of(node: NodeView) -> tuple[str, str]:
    """What the node says of its agent's assessment: whoever publishes, or gives up, changes it."""
    condition = node.condition(names.CONDITION_HEALTHY)
    return condition.status if condition else "", node.labels.get(names.LABEL_HEALTH, "")


def silent_since(
    health: HealthView, agents: Mapping[str, AgentPod], observing_since: float, now: float
) -> float | None:
    """Since when the node's agent has been silent, if for too long; what this process could not
    see does not count.
    """
    silence, since = observation.publisher_silence(health, agents, now)
    if not silence:
        return None
    counted_from = max(since, observing_since)
    return since if now - counted_from >= observation.AGENT_GONE_S else None


def say_silent(
    health: HealthView, agents: Mapping[str, AgentPod], observing_since: float, now: float
) -> SetHealthSilent | None:
    """What the assessment itself is to say of its agent's silence; None where it reports it
    already.
    """
    since = silent_since(health, agents, observing_since, now)
    said = health.status.silent_since
    if (since is None) == (not said):
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
    """The write that reports it on the node, unless it reports it already."""
    since = silent_since(health, agents, observing_since, now)
    if since is None or (health.status.node_uid and health.status.node_uid != node.uid):
        return None
    if word_of(node) == ("Unknown", "unknown"):
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
    """What to say of agents that stopped being Ready at about one time; "" where they did not."""
    pods = list(agents)
    silent = sorted(pod.ready_changed_at for pod in pods if not pod.ready)
    # An agent that was silent before is no sign against it.
    together = max(
        (bisect_right(silent, at + TOGETHER_S) - i for i, at in enumerate(silent)), default=0
    )
    if together < max(FEWEST, LEAST_SHARE * len(pods)):
        return ""
    return (
        f"{together} of {len(pods)} agents' pods stopped being Ready at about the same time: "
        "that is the API server, the network or a rollout, not the GPUs; each node is known again "
        "once its kubelet says that its agent is Ready, mostly within minutes (kubectl get nodes)"
    )


CLOCKS_AGREE_S: Final = 120.0
"""Clocks that are kept agree far better, and a report does not travel this long."""
_KUBELET: Final = "kubelet"
"""What the API server calls the kubelet in `managedFields`. One that shares its process with
controllers (k3s) writes under their name, and the time there may be theirs.
"""


def apart_s(node: NodeView | None, health: HealthView | None, now: float) -> float:
    """By how much the node's clock is ahead of the API server's, negative where it is behind; 0.0
    where they agree as far as anything says.
    """
    by_report = _by_report(node)
    if by_report is not None:
        return by_report if abs(by_report) > CLOCKS_AGREE_S else 0.0
    still_to_come = _latest(health) - now
    return still_to_come if still_to_come > CLOCKS_AGREE_S else 0.0


def _by_report(node: NodeView | None) -> float | None:
    """As the kubelet's last report says; None where none is at hand."""
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
    """The latest time in the assessment; 0.0 without any."""
    if health is None:
        return 0.0
    status = health.status
    told = (
        status.observed_at,
        status.publisher.heartbeat,
        *(incident.last_seen for incident in status.incidents),
    )
    return max(
        (at for one in told if (at := timestamps.parse_time(one or "")) is not None), default=0.0
    )
