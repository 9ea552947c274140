"""What everybody is told of a node's GPUs: `fleet`, `why` and the pages ask here.

A verdict is what was said once. While nobody can say it again (its agent is silent, the node has
booted since) the node is Unknown, whatever its verdict or its label still say: the remediator
changes those only after `rules.session.observation.AGENT_GONE_S`, and not while none leads. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rules.api.names import LABEL_HEALTH
from rules.api.nodes import AgentPod, HealthView, NodeView
from rules.session.observation import Staleness, publisher_silence, staleness

UNKNOWN: Final = "Unknown"
WORDS: Final = ("Healthy", "Degraded", "Unhealthy", UNKNOWN)
_ILL: Final = ("Degraded", "Unhealthy")
_CODES: Final = {
    Staleness.NO_VERDICT: "NoVerdict",
    Staleness.OTHER_NODE: "OtherNode",
    Staleness.OTHER_BOOT: "OtherBoot",
    Staleness.BLIND: "AgentBlind",
}


@dataclass(frozen=True, slots=True)
class HealthNow:
    """One of `WORDS`; `why` the verdict is not to be acted on, a clause: of a node that is
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
    """By the node's verdict; `health` None says that there is none, `node` None that it may not be
    read, `agents` None that the agents' pods may not.
    """
    if health is None:
        return HealthNow(UNKNOWN, Staleness.NO_VERDICT)
    if node is None:
        why, _ = publisher_silence(health, agents, now)
    else:
        why = staleness(health, node, agents, now)
    said = health.status.health
    word = said if said in WORDS else UNKNOWN
    if why == Staleness.BLIND and word in _ILL:
        # It lives, and what it cannot see any more it has seen go wrong.
        return HealthNow(word, why)
    return HealthNow(UNKNOWN, why) if why else HealthNow(word)


def health_unread(node: NodeView, agents: Iterable[AgentPod]) -> HealthNow:
    """Of a node whose verdict nobody has read: by its label, unless an agent's pod is on it and
    none of them (`agents`) is Ready.
    """
    pods = list(agents)
    if pods and not any(pod.ready for pod in pods):
        return HealthNow(UNKNOWN, Staleness.POD_NOT_READY)
    word = node.labels.get(LABEL_HEALTH, "").capitalize()
    return HealthNow(word if word in WORDS else UNKNOWN)
