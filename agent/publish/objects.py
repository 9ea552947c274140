"""The few fields of API objects that the agent reads, and the bodies that it writes of its own.

Decoded by `agent.publish.client`; used by publishing and by the node watch. All else in an answer
is skipped.
"""

from typing import Any, Final

import msgspec

from rules.api import names, timestamps
from rules.api.health import HealthStatus
from rules.judge.health_object import Publication, PublishedCondition
from rules.judge.messages import NodeEvent

EVENT_NAMESPACE: Final = "default"
"""Where Kubernetes keeps Events about objects without a namespace."""
MAX_MESSAGE_CHARS: Final = 1024


class Loose(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of decoded answers: unknown fields are ignored."""


class Owner(Loose, frozen=True, omit_defaults=True):
    """One ownerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class Metadata(Loose, frozen=True):
    """Who and which version."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()


class NodeConditionSeen(Loose, frozen=True, omit_defaults=True):
    """One node condition as the server has it."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None


class NodeInfoSeen(Loose, frozen=True):
    """What the kubelet says about the machine."""

    boot_id: str = msgspec.field(name="bootID", default="")


class NodeStatusSeen(Loose, frozen=True):
    """The parts of the status that concern us."""

    conditions: tuple[NodeConditionSeen, ...] | None = ()
    node_info: NodeInfoSeen = NodeInfoSeen()


class NodeObject(Loose, frozen=True):
    """A Node."""

    metadata: Metadata = Metadata()
    status: NodeStatusSeen = NodeStatusSeen()


class HealthObject(Loose, frozen=True):
    """A GPUNodeHealth."""

    metadata: Metadata = Metadata()
    status: HealthStatus = HealthStatus()


class WatchEvent(Loose, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and what it concerns."""

    type: str
    object: msgspec.Raw


class StatusAnswer(Loose, frozen=True):
    """A refusal in the API server's own words; also any object whose content does not matter."""

    code: int = 500
    reason: str = ""
    message: str = ""


def node_differs(wanted: Publication, node: NodeObject) -> bool:
    """Whether the node has other conditions or labels than it should."""
    there = {condition.type: condition for condition in node.status.conditions or ()}
    for condition in wanted.conditions:
        found = there.get(condition.type)
        if found is None or _words(found) != _words(condition):
            return True
    labels = node.metadata.labels
    return any(labels.get(name) != value for name, value in wanted.labels.items())


def _words(condition: NodeConditionSeen | PublishedCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def node_patch(wanted: Publication, node: NodeObject, wall: float) -> dict[str, Any]:
    """Conditions and labels in one patch; identical as long as the words are.

    Times are carried over from the node: the transition's while the status is the same, the
    heartbeat's while nothing is different. A heartbeat of its own would be a stored write each.
    """
    there = {condition.type: condition for condition in node.status.conditions or ()}
    now = timestamps.format_time(wall)
    conditions = []
    for condition in wanted.conditions:
        found = there.get(condition.type)
        same_status = found is not None and found.status == condition.status
        same_words = found is not None and _words(found) == _words(condition)
        conditions.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": (found.last_transition_time if found and same_status else "")
                or now,
                "lastHeartbeatTime": (found.last_heartbeat_time if found and same_words else "")
                or now,
            }
        )
    return {"metadata": {"labels": dict(wanted.labels)}, "status": {"conditions": conditions}}


def event_body(node: NodeObject, event: NodeEvent, at: float) -> dict[str, Any]:
    """The Event as the API server takes it, about the node's real UID."""
    name = node.metadata.name
    when = timestamps.format_time(at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:220]}.{int(at * 1e9):x}", "namespace": EVENT_NAMESPACE},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name,
            "uid": node.metadata.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:MAX_MESSAGE_CHARS],
        "source": {"component": names.COMPONENT_AGENT, "host": name},
        "reportingComponent": names.COMPONENT_AGENT,
        "reportingInstance": name,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
