"""Views of Nodes, sessions and Leases with only the fields that the rules read.

Each view decodes the API server's JSON (`rules.text.tolerant.understand`) and skips other fields,
so that 5,000 nodes need little memory. `doubt` lists the parts of an object that could not be
read; the rules then decide more carefully. Views are never written back: `rules.api.writes` builds
the writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api import names, timestamps
from rules.api.health import HealthStatus
from rules.api.metadata import DOUBT_FIELD, ManagedMeta, ObjectMeta, TimedMeta, View, bounded_id
from rules.api.quarantine import PauseSpec, QuarantineSpec, QuarantineStatus
from rules.text.printable import printable


class Taint(View, frozen=True, kw_only=True, omit_defaults=True):
    """One taint; encoded back unchanged when gpuward rewrites the list of taints."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(View, frozen=True, kw_only=True):
    """Cordon and taints of a Node."""

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

    @property
    def is_drain_report(self) -> bool:
        """Whether gpuward set it for a drain (`rules.session.lifecycle`)."""
        ours = {names.REASON_QUARANTINE, names.REASON_WITHDRAWN}
        return self.type in names.DRAIN_CONDITIONS and self.reason in ours


class NodeInfo(View, frozen=True, kw_only=True):
    """The machine's boot, as the kubelet reports it."""

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
        """The node object's UID; a new node of the same name has another one."""
        return self.metadata.uid

    @property
    def boot_id(self) -> str:
        """The ID of the running boot; "" before the first kubelet report.

        gpuward's objects have room for 64 characters, so a longer ID is replaced by its hash.
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
        """The Ready condition: `True`, `False` or `Unknown`; "" without one."""
        condition = self.condition("Ready")
        return condition.status if condition else ""


class TimedNode(NodeView, frozen=True, kw_only=True):
    """A Node with its writers and their times, to check the node's clock."""

    metadata: TimedMeta


class ManagedNode(TimedNode, frozen=True, kw_only=True):
    """A Node with its managers: read, or quarantined and watched."""

    metadata: ManagedMeta


class FreshNode(ManagedNode, frozen=True, kw_only=True):
    """A Node from an uncached GET."""


class HealthView(View, frozen=True, kw_only=True):
    """A GPUNodeHealth with its writers and their times."""

    metadata: TimedMeta
    status: HealthStatus = HealthStatus()
    doubt: str = DOUBT_FIELD

    @property
    def heard_at(self) -> float | None:
        """When the agent last wrote, in seconds since the epoch, by the API server's clock.

        Without managed fields it is the heartbeat, by the node's clock. None without either. The
        remediator's own writes to the status (`silentSince`) do not count.
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
        """The session's name, which the node's session annotation has, too."""
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
    """A Lease: gpuward's for leadership, or of a tool that maintains a node."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """The readiness of one agent pod."""

    uid: str
    node: str
    ready: bool
    ready_changed_at: float
    """Transition time of the pod's Ready condition, or the pod's creation."""


MAX_CLAUSE: Final = 400
"""The most characters of one reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderStatus:
    """The leader's own problems; empty without problems, and for older releases."""

    unable: str = ""
    """Why it cannot act on any node, a clause."""
    unable_since: float | None = None
    """Seconds since the epoch; None if unknown."""
    unread: str = ""
    """Why it could not read a policy and runs in Shadow, a clause."""
    last_good: str = ""
    """Why it uses the last valid policy, a clause."""

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the Lease."""
        since = timestamps.format_time(self.unable_since or 0.0)
        found = {
            names.ANNOTATION_UNABLE: f"{since} {_leader_clause(self.unable)}"
            if self.unable
            else "",
            names.ANNOTATION_POLICY_UNREAD: _leader_clause(self.unread),
            names.ANNOTATION_POLICY_LAST_GOOD: _leader_clause(self.last_good),
        }
        return {key: text for key, text in found.items() if text}


WELL: Final = LeaderStatus()


def leader_status(annotations: Mapping[str, str]) -> LeaderStatus:
    """Read the annotations of a Lease."""
    text = annotations.get(names.ANNOTATION_UNABLE, "")
    at, _, why = text.partition(" ")
    since = timestamps.parse_time(at)
    return LeaderStatus(
        unable=_leader_clause(text if since is None else why),
        unable_since=since,
        unread=_leader_clause(annotations.get(names.ANNOTATION_POLICY_UNREAD, "")),
        last_good=_leader_clause(annotations.get(names.ANNOTATION_POLICY_LAST_GOOD, "")),
    )


def _leader_clause(text: str) -> str:
    return printable(text[:MAX_CLAUSE]).strip().removesuffix(".")
