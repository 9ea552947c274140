"""The fields of API objects that the agent reads, and the patches and Events that it writes.

Decoded by `agent.publish.client`; used by the publisher and the node watch. Other fields of a
response are ignored.
"""

from typing import Any, Final

import msgspec

from rules.api import names, timestamps
from rules.api.health import HealthStatus
from rules.judge.health_object import Publication, PublishedCondition
from rules.judge.messages import NodeEvent

EVENT_NAMESPACE: Final = "default"
"""The namespace for Events about cluster-scoped objects."""
MAX_MESSAGE_CHARS: Final = 1024


class Loose(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of decoded responses: unknown fields are ignored."""


class Owner(Loose, frozen=True, omit_defaults=True):
    """One ownerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class Metadata(Loose, frozen=True):
    """Object metadata."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()


class NodeConditionSeen(Loose, frozen=True, omit_defaults=True):
    """One node condition on the server."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None


class NodeInfoSeen(Loose, frozen=True):
    """The kubelet's information about the machine."""

    boot_id: str = msgspec.field(name="bootID", default="")


class NodeStatusSeen(Loose, frozen=True):
    """The fields of the status that the agent uses."""

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
    """A Status of the API server; also used for objects that are not needed."""

    code: int = 500
    reason: str = ""
    message: str = ""


def node_differs(wanted: Publication, node: NodeObject) -> bool:
    """Whether the node's conditions or labels differ from the wanted ones."""
    there = {condition.type: condition for condition in node.status.conditions or ()}
    for condition in wanted.conditions:
        found = there.get(condition.type)
        if found is None or _content(found) != _content(condition):
            return True
    labels = node.metadata.labels
    return any(labels.get(name) != value for name, value in wanted.labels.items())


def _content(condition: NodeConditionSeen | PublishedCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def node_patch(wanted: Publication, node: NodeObject, wall: float) -> dict[str, Any]:
    """Return one patch of conditions and labels, identical as long as their content is.

    The transition time is kept while the status is the same, the heartbeat time while nothing
    differs. A regular heartbeat would be a write each time.
    """
    there = {condition.type: condition for condition in node.status.conditions or ()}
    now = timestamps.format_time(wall)
    conditions = []
    for condition in wanted.conditions:
        found = there.get(condition.type)
        same_status = found is not None and found.status == condition.status
        same_content = found is not None and _content(found) == _content(condition)
        conditions.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": (found.last_transition_time if found and same_status else "")
                or now,
                "lastHeartbeatTime": (found.last_heartbeat_time if found and same_content else "")
                or now,
            }
        )
    return {"metadata": {"labels": dict(wanted.labels)}, "status": {"conditions": conditions}}


def event_body(node: NodeObject, event: NodeEvent, at: float) -> dict[str, Any]:
    """Return the body of an Event about the node."""
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
