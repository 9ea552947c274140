"""What a deciding rule answers: one sentence and the writes that follow from it.

`decide` returns a `Decision`; the edge sends its writes in order, stops at the first that
fails, takes the returned objects into its view and decides again. Each write is idempotent,
carries its own precondition and says whether it does disruption (takes capacity or ends a pod): a
disruptive one is sent only by a fresh leader, on a node read at most a second old, after
`rules.session.recheck` agreed. How a write looks on the wire is `rules.api.requests`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

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
        """The node it is about."""
        return self.spec.node_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSessionSpec:
    """Fill in what an operator left out, append or drop causes; guarded by the version."""

    disruptive: ClassVar[bool] = False
    name: str
    node: str
    resource_version: str
    node_uid: str | None = None
    boot_id: str | None = None
    causes: tuple[Cause, ...] | None = None
    level: str | None = None

    def applied(self, spec: QuarantineSpec) -> QuarantineSpec:
        """The spec with what is given here."""
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
    """Remove an object of gpuward that is not kept any more; guarded by its UID.

    An ended session, a record whose last event is long past, evidence of a session that is gone.
    """

    disruptive: ClassVar[bool] = False
    plural: str
    """gpuquarantines, gpurecords or gpuevidences."""
    name: str
    uid: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRecord:
    """Open an empty GPURecord. 409 AlreadyExists: another writer did; its status is written
    then.
    """

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
    """The reverse patch to the recorded prior state; carries the node's version.

    `orphan`: no open session of that name was seen; the edge sends it only after an uncached GET
    of the session `session` says the same, so that a cache never releases a node alone.
    """

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    session: str
    patch: Mapping[str, Any]
    orphan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelNode:
    """Move the quarantine label to the session's phase; carries the node's version."""

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    session: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeUnknown:
    """GPUHealthy=Unknown and the health label `unknown`: the agent is gone."""

    disruptive: ClassVar[bool] = False
    node: str
    node_uid: str
    resource_version: str
    at: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """Ask the Eviction API to let the pod go; no grace override, UID precondition.

    `pdb` is the queue it belongs to (`namespace/name`), "" where no PDB has a say in it.
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
        """A dry run ends nothing."""
        return not self.dry_run


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDisruptionTarget:
    """Tell the pod's controllers that what follows is a disruption, not a failure."""

    disruptive: ClassVar[bool] = True
    node: str
    namespace: str
    name: str
    uid: str
    at: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Force, by policy: delete with UID precondition and a grace of at least one second."""

    disruptive: ClassVar[bool] = True
    node: str
    namespace: str
    name: str
    uid: str
    session: str = ""
    grace_s: int
    by_policy: str
    """Which policy line allows it, for the record."""

    def __post_init__(self) -> None:
        if self.grace_s < 1:
            raise ValueError("a forced deletion leaves at least one second of grace")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """One Event on the node (`node_uid` set), on a pod of that node (`pod` set), or on the
    remediator's Deployment.

    `namespace` is `default` for nodes and else that of the pod or Deployment, as the API server
    demands. `key` makes the name deterministic: sent twice, the second is 409 AlreadyExists.
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
    """One Event on a node."""
    return EmitEvent(
        node=node, node_uid=node_uid, kind=kind, reason=reason, message=message, at=at, key=key
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHealthSilent:
    """Since when the agent behind a health status is silent, on the health status itself; "" takes
    it back.
    """

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
    | SetNodeUnknown
    | SetHealthSilent
    | SetRepairCondition
    | WriteRepairObject
    | CreateTestJob
    | DeleteTestJob
    | SetValidated
    | EvictPod
    | SetDisruptionTarget
    | DeletePod
    | EmitEvent
)


class Evicting(StrEnum):
    """What the edge may do about the node's pods now."""

    NO = "No"
    """Start nothing; what is in flight ends by itself."""
    PROBE = "Probe"
    """Shadow: one dry-run eviction per pod."""
    GO = "Go"
    """List, plan (`rules.drain.plan`) and evict."""
    WATCH = "Watch"
    """Drained: list now and then who bypassed the scheduler (`rules.drain.drain_plan`)."""
    LOOK = "Look"
    """Drained and a repair step is due: list until two lists show that no pod uses a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One cycle's answer for one node.

    `step` is a stable CamelCase word for metrics and logs; `because` says why and
    `blocked_by` what keeps it from going on (None when nothing does); `message` is the one
    sentence for people. `wake_at` is the next moment when time alone may change the answer.
    """

    step: str
    because: str = ""
    blocked_by: WhyNot | None = None
    message: str = ""
    writes: tuple[Write, ...] = ()
    status: QuarantineStatus | None = None
    """The status the session has or gets with this decision; None without a session."""
    needs_fresh_node: bool = False
    """Read the node (GET, decoded as `FreshNode`) and decide again: a taint and cordon or unmark
    is due.
    """
    needs_object: ObjectAddress | None = None
    """Read this and decide again: the decision rests on it."""
    evicting: Evicting = Evicting.NO
    hand_over: bool = False
    """Give up leadership first: the node to drain is the one this process runs on."""
    unfinished: bool = False
    """Of a node without a session: what a deleted one left is not taken back yet, so it is kept in
    mind."""
    wake_at: float | None = None


DRY_RUN_EVICTION: Final = "DryRunEviction"
"""An eviction of which the API server is asked only whether it would allow it."""
_NAMED_BY: Final = ("node", "session", "name", "namespace", "pdb")


def kind_of(write: Write) -> str:
    """What log and metrics call it: what only asks must not read as what does."""
    if isinstance(write, EvictPod) and write.dry_run:
        return DRY_RUN_EVICTION
    return type(write).__name__


def named(write: Write) -> dict[str, str]:
    """Which object it is about, for a line of the log."""
    found = {name: value for name in _NAMED_BY if (value := getattr(write, name, ""))}
    if isinstance(write, WriteSessionStatus):
        # A phase is a word of the contract: Marked in Shadow means that nothing was quarantined.
        found |= {"phase": write.status.phase, "mode": write.status.mode}
    return found
