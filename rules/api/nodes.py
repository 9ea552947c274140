"""What the deciding rules see of the cluster: few-field views of Nodes, sessions and Leases.

Every view decodes straight from the API server's JSON (`rules.text.tolerant.understand`); fields
that no rule reads are skipped, so 5,000 nodes stay small. What was not understood of an object is
in its `doubt`, and whoever decides by the object then does less. Views are never written back:
writes are built in `rules.api.writes`. Nothing in here does I/O or reads a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api import names, timestamps
from rules.api.health import HealthStatus
from rules.api.metadata import (
    DOUBT_FIELD,
    FreshMeta,
    ObjectMeta,
    TimedMeta,
    View,
    bounded_id,
)
from rules.api.quarantine import PauseSpec, QuarantineSpec, QuarantineStatus
from rules.text.printable import printable


class Taint(View, frozen=True, kw_only=True, omit_defaults=True):
    """One taint; encoded back unchanged when our taint and cordon rewrites the list."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(View, frozen=True, kw_only=True):
    """The part of a Node's spec that scheduling and our taint and cordon use."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(View, frozen=True, kw_only=True):
    """One condition of a Node."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeInfo(View, frozen=True, kw_only=True):
    """What the kubelet says about the machine's boot."""

    boot_id: str = msgspec.field(name="bootID", default="")


class NodeStatus(View, frozen=True, kw_only=True):
    """Conditions, boot and capacity as the kubelet reports them."""

    conditions: tuple[NodeCondition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)


class NodeView(View, frozen=True, kw_only=True):
    """A Node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    doubt: str = DOUBT_FIELD

    @property
    def name(self) -> str:
        """The node's name."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """The node object's UID: a namesake has another one."""
        return self.metadata.uid

    @property
    def boot_id(self) -> str:
        """The running boot's id, "" before the first kubelet report.

        We write it where 64 characters fit: a longer one is known by its hash.
        """
        return bounded_id(self.status.node_info.boot_id)

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return self.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        """The node's annotations."""
        return self.metadata.annotations

    def condition(self, kind: str) -> NodeCondition | None:
        """The condition of that type, if the node has one."""
        return next((c for c in self.status.conditions if c.type == kind), None)

    @property
    def ready(self) -> str:
        """`True`, `False` or `Unknown`; "" where nobody has said anything yet."""
        condition = self.condition("Ready")
        return condition.status if condition else ""


class TimedNode(NodeView, frozen=True, kw_only=True):
    """A Node with who wrote to it when: what says whether its clock is right."""

    metadata: TimedMeta


class FreshNode(TimedNode, frozen=True, kw_only=True):
    """A Node from an uncached GET, with its managers: what quarantine and unmark are decided
    on.
    """

    metadata: FreshMeta


class HealthView(View, frozen=True, kw_only=True):
    """A GPUNodeHealth, with who wrote to it when."""

    metadata: TimedMeta
    status: HealthStatus = HealthStatus()
    doubt: str = DOUBT_FIELD

    @property
    def heard_at(self) -> float | None:
        """When the agent wrote last, in seconds since the epoch: by the API server's clock where
        that is noted, else by the clock of the node, as the heartbeat says. None without either.

        The remediator writes to the status, too (`silentSince`).
        """
        noted = [
            at
            for writer in self.metadata.managed_fields
            if writer.subresource == "status" and writer.manager != names.COMPONENT_REMEDIATOR
            if (at := timestamps.parse_time(writer.time)) is not None
        ]
        return max(noted) if noted else timestamps.parse_time(self.status.publisher.heartbeat)


class QuarantineView(View, frozen=True, kw_only=True):
    """A GPUQuarantine: one session."""

    metadata: ObjectMeta
    spec: QuarantineSpec
    status: QuarantineStatus = QuarantineStatus()
    doubt: str = DOUBT_FIELD

    @property
    def name(self) -> str:
        """The session's name, which is also its id on the node's quarantine."""
        return self.metadata.name


class PauseView(View, frozen=True, kw_only=True):
    """A GPUWardPause."""

    metadata: ObjectMeta
    spec: PauseSpec = PauseSpec()
    doubt: str = DOUBT_FIELD


class LeaseSpec(View, frozen=True, kw_only=True, omit_defaults=True):
    """Holder and clocks of a coordination.k8s.io Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseView(View, frozen=True, kw_only=True):
    """A Lease: ours for leadership, or a maintenance owner's on a node."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """The readiness of one agent pod, as a watch or a list showed it."""

    uid: str
    node: str
    ready: bool
    ready_changed_at: float
    """Transition time of the pod's Ready condition, or the pod's creation."""


MAX_WORDS: Final = 400
"""Characters of one reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderStatus:
    """Empty where all is well, and of a release that says nothing."""

    unable: str = ""
    """Why it does nothing to any node, a clause."""
    unable_since: float | None = None
    """In seconds of the epoch; None where that is not said."""
    unread: str = ""
    """Why it is in Shadow, which nobody chose: what is wrong with its policy, a clause."""
    last_good: str = ""
    """What is wrong with its policy, so that it goes on by the last good one, a clause."""

    def annotations(self) -> dict[str, str]:
        """As it stands on the Lease."""
        since = timestamps.format_time(self.unable_since or 0.0)
        said = {
            names.ANNOTATION_UNABLE: f"{since} {_leader_clause(self.unable)}"
            if self.unable
            else "",
            names.ANNOTATION_POLICY_UNREAD: _leader_clause(self.unread),
            names.ANNOTATION_POLICY_LAST_GOOD: _leader_clause(self.last_good),
        }
        return {key: words for key, words in said.items() if words}


WELL: Final = LeaderStatus()


def leader_status(annotations: Mapping[str, str]) -> LeaderStatus:
    """What stands on a Lease."""
    said = annotations.get(names.ANNOTATION_UNABLE, "")
    at, _, why = said.partition(" ")
    since = timestamps.parse_time(at)
    return LeaderStatus(
        unable=_leader_clause(said if since is None else why),
        unable_since=since,
        unread=_leader_clause(annotations.get(names.ANNOTATION_POLICY_UNREAD, "")),
        last_good=_leader_clause(annotations.get(names.ANNOTATION_POLICY_LAST_GOOD, "")),
    )


def _leader_clause(words: str) -> str:
    return printable(words[:MAX_WORDS]).strip().removesuffix(".")
