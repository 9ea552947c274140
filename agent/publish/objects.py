"""The few fields of API objects that the agent reads; all else in an answer is skipped.

Decoded by `agent.publish.client`; used by publishing and by the node watch.
"""

from __future__ import annotations

import msgspec

from rules.api.health import HealthStatus


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
