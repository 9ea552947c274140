"""Decisions of the rules, and the writes that they contain.

`decide` returns a `Decision`. The remediator sends its writes in order, stops at a failure,
stores the returned objects and decides again. Each write is idempotent and has its precondition.
`disruptive` writes remove capacity or end pods. They are sent only by a current leader, for a node
that was read within the last second, after `rules.session.recheck`. `rules.api.requests` has the
HTTP requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.quarantine import Cause, QuarantineSpec, QuarantineStatus
from rules.api.repair_writes import (
    CreateTestJob,
    DeleteTestJob,
    ObjectAddress,
    SetRepairCondition,
    SetValidated,
    WriteRepairObject,
)
from rules.catalog.why_not import WhyNot


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSession:
    """Open a GPUQuarantine. 409 AlreadyExists means another writer opened the same one."""

    disruptive: ClassVar[bool] = False
    name: str
    spec: QuarantineSpec

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.spec.node_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSessionSpec:
    """Complete the spec, append or drop causes; guarded by the version."""

    disruptive: ClassVar[bool] = False
    name: str
    node: str
    resource_version: str
    node_uid: str | None = None
    boot_id: str | None = None
    causes: tuple[Cause, ...] | None = None
    level: str | None = None

    def applied(self, spec: QuarantineSpec) -> QuarantineSpec:
        """Return the spec with these values."""
        names = ("node_uid", "boot_id", "causes", "level")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(spec, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSessionStatus:
    """Write the entire status; guarded by the version."""

    disruptive: ClassVar[bool] = False
    name: str
    node: str
    resource_version: str
    status: QuarantineStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteObject:
    """Delete an old object of gpuward; guarded by its UID.

    An ended session, a record without recent events, evidence of a deleted session.
    """

    disruptive: ClassVar[bool] = False
    plural: str
    """gpuquarantines, gpurecords or gpuevidences."""
    name: str
    uid: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRecord:
    """Create an empty GPURecord. 409 AlreadyExists means that another writer did."""

    disruptive: ClassVar[bool] = False
    name: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRecord:
    """Write the entire status of a GPURecord; guarded by the version."""

    disruptive: ClassVar[bool] = False
    name: str
    node: str
    resource_version: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintAndCordon:
    """Taint, cordon, label and annotation in one patch (`rules.api.quarantine_taint`)."""

    disruptive: ClassVar[bool] = True
    node: str
    node_uid: str
    session: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTaint:
    """Restore the recorded prior state of the node; carries the node's version.

    `orphan`: no open session of that name is known. It is sent only after an uncached GET confirms
    that, so that a stale cache never releases a node.
    """

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    session: str
    patch: Mapping[str, Any]
    orphan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelNode:
    """Set the quarantine label to the session's phase; carries the node's version."""

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    session: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeUnknown:
    """Set GPUHealthy=Unknown and the health label `unknown`: the agent is gone."""

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    resource_version: str
    at: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """Evict the pod by the Eviction API; its own grace period, UID precondition.

    `pdb` is the PDB (`namespace/name`) whose queue it waits in; "" for none.
    """

    node: str
    namespace: str
    name: str
    uid: str
    session: str = ""
    pdb: str = ""
    dry_run: bool = False

    @property
    def disruptive(self) -> bool:
        """Whether it ends the pod: a dry run does not."""
        return not self.dry_run


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDisruptionTarget:
    """Set the DisruptionTarget condition, so that controllers see a disruption, not a failure."""

    disruptive: ClassVar[bool] = True
    node: str
    namespace: str
    name: str
    uid: str
    at: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyPod:
    """Write on the pod when it will be evicted at the earliest, or withdraw that; UID
    precondition.
    """

    node: str
    namespace: str
    name: str
    uid: str
    at: float
    drain_at: float | None
    """None withdraws an earlier notice."""
    message: str

    @property
    def disruptive(self) -> bool:
        """Whether it announces an eviction."""
        return self.drain_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDrainConditions:
    """Set the Node lifecycle conditions of a drain, or withdraw them; UID precondition."""

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    session: str
    states: tuple[tuple[str, bool], ...]
    """Each type to set, and whether to True."""
    at: float
    message: str

    @property
    def reports(self) -> bool:
        """Whether it sets a condition to True."""
        return any(value for _, value in self.states)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Force-delete the pod by policy; UID precondition, a grace period of at least one second."""

    disruptive: ClassVar[bool] = True
    node: str
    namespace: str
    name: str
    uid: str
    session: str = ""
    grace_s: int
    by_policy: str
    """The policy setting that allows it."""

    def __post_init__(self) -> None:
        if self.grace_s < 1:
            raise ValueError("a forced deletion has a grace period of at least one second")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """One Event on the node (`node_uid` set), on a pod of that node (`pod` set), or on the
    remediator's Deployment.

    `namespace` is `default` for nodes, else that of the pod or Deployment, as the API server
    requires. `key` makes the name deterministic: a second write is 409 AlreadyExists.
    """

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    kind: str
    """`Normal` or `Warning`."""
    reason: str
    message: str
    at: float
    key: str
    namespace: str = "default"
    pod: str = ""
    pod_uid: str = ""


def node_event(
    node: str,
    node_uid: str,
    reason: str,
    message: str,
    at: float,
    key: str,
    kind: str = "Warning",
) -> EmitEvent:
    """Return one Event on a node."""
    return EmitEvent(
        node=node, node_uid=node_uid, kind=kind, reason=reason, message=message, at=at, key=key
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHealthSilent:
    """Set since when the agent of a health status is silent; "" clears it."""

    disruptive: ClassVar[bool] = False
    node: str
    resource_version: str
    since: str


Write = (
    CreateSession
    | PatchSessionSpec
    | WriteSessionStatus
    | DeleteObject
    | CreateRecord
    | WriteRecord
    | TaintAndCordon
    | RemoveTaint
    | RelabelNode
    | TaintDevice
    | UntaintDevice
    | SetNodeUnknown
    | SetHealthSilent
    | SetRepairCondition
    | WriteRepairObject
    | CreateTestJob
    | DeleteTestJob
    | SetValidated
    | EvictPod
    | SetDisruptionTarget
    | NotifyPod
    | SetDrainConditions
    | DeletePod
    | EmitEvent
)


class Evicting(StrEnum):
    """What the remediator may do with the node's pods now."""

    NO = "No"
    """Start nothing; requests in flight complete."""
    PROBE = "Probe"
    """Shadow: one dry-run eviction per pod."""
    GO = "Go"
    """List, plan (`rules.drain.plan`) and evict."""
    WATCH = "Watch"
    """Drained: list from time to time for new pods (`rules.drain.drain_plan`)."""
    CONFIRM_IDLE = "ConfirmIdle"
    """Drained, a repair step is due: list until two lists show that no pod uses a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision of one cycle for one node.

    `step` is a stable CamelCase name for metrics and logs, `because` the reason, `blocked_by` the
    blocker (None for none) and `message` the message for users. `wake_at` is when time alone may
    change the decision.
    """

    step: str
    because: str = ""
    blocked_by: WhyNot | None = None
    message: str = ""
    writes: tuple[Write, ...] = ()
    status: QuarantineStatus | None = None
    """The status of the session after this decision; None without a session."""
    needs_fresh_node: bool = False
    """Read the node (GET, decoded as `FreshNode`) and decide again."""
    needs_object: ObjectAddress | None = None
    """Read this object and decide again."""
    evicting: Evicting = Evicting.NO
    hand_over: bool = False
    """Release leadership first: this process runs on the node to drain."""
    unfinished: bool = False
    """For a node without a session: leftovers of a deleted session are not removed yet."""
    wake_at: float | None = None


DRY_RUN_EVICTION: Final = "DryRunEviction"
"""A dry-run eviction, which only asks the API server whether it is allowed."""
_NAMED_BY: Final = ("node", "session", "name", "namespace", "pdb")


def kind_of(write: Write) -> str:
    """Return the name of the write in logs and metrics; dry runs have their own."""
    if isinstance(write, EvictPod) and write.dry_run:
        return DRY_RUN_EVICTION
    return type(write).__name__


def named(write: Write) -> dict[str, str]:
    """Return the object of the write, for the log."""
    found = {name: value for name in _NAMED_BY if (value := getattr(write, name, ""))}
    if isinstance(write, WriteSessionStatus):
        # The mode is logged, too: in Shadow the node is not tainted in any phase.
        found |= {"phase": write.status.phase, "mode": write.status.mode}
    return found
