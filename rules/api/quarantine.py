"""GPUQuarantine (one session of one node, kept as history) and GPUWardPause.

The remediator writes `status`. Detectors (through the remediator) and operators write `spec`. All
state that a session needs after a restart is in this object or in the node's annotation.
"""

import enum
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from rules.api.health import Wire
from rules.catalog import xid
from rules.catalog.reason import severity_rank

MAX_TIMELINE = 100
MAX_NAMED = 20
MAX_NAME = 512
MAX_MESSAGE = 1024


class Phase(enum.StrEnum):
    """The phase of a session; the node label has it in lower case."""

    PENDING = "Pending"
    MARKED = "Marked"
    DRAINING = "Draining"
    QUARANTINED = "Quarantined"
    REPAIRING = "Repairing"
    VALIDATING = "Validating"
    RELEASED = "Released"
    CANCELLED = "Cancelled"
    NODE_GONE = "NodeGone"

    @property
    def ended(self) -> bool:
        """Whether the session has ended and its taint and cordon are removed."""
        return self in {Phase.RELEASED, Phase.CANCELLED, Phase.NODE_GONE}


NOT_TAINTED_YET: Final = frozenset({"", Phase.PENDING})
"""Phases of a session whose node is not tainted yet; "" before the first status."""


class Mode(enum.StrEnum):
    """Whether the remediator acts or only reports what it would do."""

    SHADOW = "Shadow"
    ENFORCE = "Enforce"


class Cause(Wire, frozen=True):
    """Why a node is in quarantine: one incident of a detector, or one request of an operator."""

    source: str = "Human"
    incident: str = ""
    reason: str = ""
    severity: str = "Degraded"
    message: str = ""
    by: str = ""
    at: str = ""
    """When an operator requested it, or when it joined an open session; "" for the first cause and
    in objects of older releases."""
    nvlink_domain: str = ""
    """The NVLink domain that an operator quarantines with all its nodes; "" for one node."""


def most_severe(causes: Iterable[Cause]) -> Cause | None:
    """Return the most severe cause, ranked as in the health status; the first of equal ones."""
    return max(
        causes,
        key=lambda cause: (severity_rank(cause.severity), xid.asks_for(cause.reason)),
        default=None,
    )


def most_severe_reason(causes: Iterable[Cause]) -> str:
    """Return the reason or source of the most severe cause; "" without a cause."""
    first = most_severe(causes)
    return first.reason or first.source if first is not None else ""


class ReleaseRequest(Wire, frozen=True):
    """A request of an operator to release the node now."""

    by: str = ""
    reason: str = ""
    at: str = ""
    """When it was requested; "" if unknown."""


class RepairRequest(Wire, frozen=True):
    """The approval of one repair step by an operator."""

    step: str = ""
    by: str = ""
    reason: str = ""
    """The operator's reason: bounded and escaped in output, never evaluated."""
    at: str = ""
    """When it was approved; it holds for the faults at that time. "" if unknown."""


class QuarantineSpec(Wire, frozen=True):
    """The requested quarantine. Operators need only `nodeName` and one Human cause."""

    node_name: str
    node_uid: str = msgspec.field(name="nodeUID", default="")
    boot_id: str = msgspec.field(name="bootID", default="")
    causes: tuple[Cause, ...] = ()
    level: str = "Drain"
    hold: bool = False
    release: ReleaseRequest | None = None
    repair: RepairRequest | None = None


class Condition(Wire, frozen=True):
    """A Kubernetes-style condition of the session."""

    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class PodNote(Wire, frozen=True):
    """One pod as `namespace/name`, or one volume, and why it is on the node."""

    name: str
    why: str = ""


class Pods(Wire, frozen=True):
    """At most `MAX_NAMED` pods by name, and how many more there are."""

    named: tuple[PodNote, ...] = ()
    more: int | None = None
    """None if all are named."""

    @property
    def total(self) -> int:
        """The number of pods."""
        return len(self.named) + (self.more or 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names alone."""
        return tuple(note.name for note in self.named)


def pods_of(notes: Iterable[PodNote], most: int = MAX_NAMED) -> Pods:
    """Return all of them counted and at most `most` of them named."""
    ordered = sorted(notes, key=lambda note: note.name)
    named = (PodNote(name=n.name[:MAX_NAME], why=n.why[:MAX_NAME]) for n in ordered[:most])
    return Pods(named=tuple(named), more=max(0, len(ordered) - most) or None)


class BlockedBy(Wire, frozen=True):
    """A blocker that keeps pods on the node, and its remedy."""

    pdb: str = ""
    pods: Pods = Pods()
    owner: str = ""
    why: str = ""
    permanent: bool = False
    remedy: str = ""


class DrainStatus(Wire, frozen=True):
    """Progress of the drain; every list is bounded, counts are exact."""

    evicted: int = 0
    recent: tuple[str, ...] = ()
    waiting: Pods = Pods()
    blocked: tuple[BlockedBy, ...] = ()
    left_by_policy: Pods = Pods()
    left_by_failure: Pods = Pods()
    force_refused: str = ""
    """The reason why the API server refused forced deletions after the drain timeout."""
    started_at: str = ""
    suspended_seconds: int = 0
    scope: str = ""
    """A `DrainScope`; "" in sessions of older releases, which emptied the node."""
    scope_reason: str = ""
    notice_seconds: int = 0
    """How long after `started_at` the first pod is evicted (`drain.notice`)."""


class TimelineEntry(Wire, frozen=True):
    """One step of the session."""

    at: str
    step: str
    subject: str = ""
    """The object of the step: the approved repair step, the deleted pod."""
    message: str = ""
    by: str = ""


class RepairGpu(Wire, frozen=True):
    """One GPU before a repair step; `accused` if a cause names it."""

    uuid: str
    serial: str = ""
    accused: bool = False


class RepairBefore(Wire, frozen=True):
    """The node before a repair step; the verification compares with it."""

    boot_id: str = msgspec.field(name="bootID", default="")
    node_uid: str = msgspec.field(name="nodeUID", default="")
    gpus: tuple[RepairGpu, ...] = ()
    reset_pending: bool = False


class RepairState(enum.StrEnum):
    """The state of one repair step."""

    PLANNED = "Planned"
    """Recorded; the request may or may not have been sent."""
    HELD = "Held"
    """Planned, but not allowed for now."""
    ASKED = "Asked"
    PROVEN = "Proven"
    FAILED = "Failed"
    WITHDRAWN = "Withdrawn"
    """Not needed any more, or an operator ended the session first."""

    @property
    def ended(self) -> bool:
        """Whether the step is finished."""
        return self in {RepairState.PROVEN, RepairState.FAILED, RepairState.WITHDRAWN}


class RepairTarget(Wire, frozen=True):
    """The object through which a repair step is requested, as read before the step."""

    api_version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    """Empty for an object that the step creates."""


class RepairAttempt(Wire, frozen=True):
    """One step of the repair ladder, recorded before it is requested."""

    step: str
    adapter: str = ""
    attempt: int = 1
    started_at: str = ""
    asked_at: str = ""
    """When the request was accepted or found; "" before that, and in objects of older releases."""
    ended_at: str = ""
    object: str = ""
    target: RepairTarget | None = None
    before: RepairBefore = RepairBefore()
    action: dict[str, Any] | None = None
    """The adapter's action for the step at the decision, as in the policy file. It is used to
    follow and withdraw the request, even if the policy changes. None in entries of older releases,
    which use the current policy.
    """
    cleared: tuple[str, ...] = ()
    """`label=value` of each Node label that was changed to free the GPUs, with the prior value."""
    state: str = ""
    proof: str = ""

    @property
    def counts(self) -> bool:
        """Whether the step counts as tried. A step that was withdrawn before its request does not,
        since the next step would be more disruptive.
        """
        return self.state != RepairState.WITHDRAWN or bool(self.asked_at)

    @property
    def in_vain(self) -> bool:
        """Whether the step was requested and failed."""
        return self.state == RepairState.FAILED and bool(self.asked_at)


class ValidationState(enum.StrEnum):
    """The state of one test under load."""

    PLANNED = "Planned"
    """Recorded; its Job may or may not exist."""
    ASKED = "Asked"
    """Its Job exists."""
    PASSED = "Passed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """It did not run or has no valid result. This is never a pass."""
    OUTDATED = "Outdated"
    """It passed, but a cause returned later."""
    WITHDRAWN = "Withdrawn"
    """Not needed any more, or an operator ended the session first."""
    SKIPPED = "Skipped"
    """Pods use the other GPUs of the node, and the test cannot run on single GPUs."""


class ValidationCheck(Wire, frozen=True):
    """One measurement of the test, as its Job reports it."""

    id: str
    gpu: str = ""
    result: str = msgspec.field(name="verdict", default="")
    value: float | None = None
    unit: str = ""
    floor: float | None = None
    note: str = ""


class ValidationAttempt(Wire, frozen=True):
    """One test under load before a release, recorded before its Job is created."""

    object: str
    """The name of its Job."""
    attempt: int = 1
    provider: str = ""
    template: str = ""
    started_at: str = ""
    ended_at: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")
    job_uid: str = msgspec.field(name="jobUID", default="")
    state: str = ""
    result: str = msgspec.field(name="verdict", default="")
    message: str = ""
    checks: tuple[ValidationCheck, ...] = ()
    """The most severe ones."""


class IsolatedDevice(Wire, frozen=True):
    """One device of a DRA driver that the session isolates. It is recorded before its rule."""

    uuid: str
    """The accused GPU: the device is this GPU or one of its MIG devices."""
    driver: str = ""
    pool: str = ""
    device: str = ""
    rule: str = ""
    """The name of its DeviceTaintRule; "" once the session removes it."""
    rule_uid: str = msgspec.field(name="ruleUID", default="")
    """Its UID; "" until it was created."""
    taints: tuple[str, ...] = ()
    """Taints that others set on the device, as `key=value:effect`."""


class QuarantineStatus(Wire, frozen=True):
    """The state of the session. `drain` is set from the first drain pass on."""

    mode: str = ""
    phase: str = ""
    phase_since: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")
    reason: str = ""
    """`most_severe_reason` of the causes, for printer columns; "" in objects of older releases."""
    message: str = ""
    until: str = ""
    """When the blocker expires or the session continues by itself, at the latest; "" without a
    time limit."""
    conditions: tuple[Condition, ...] = ()
    drain: DrainStatus | None = None
    devices: tuple[IsolatedDevice, ...] = ()
    """The devices that are isolated instead of the node; () if the node is."""
    repair: tuple[RepairAttempt, ...] = ()
    validation: tuple[ValidationAttempt, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)


class PauseScope(Wire, frozen=True):
    """Which nodes a pause covers: all, those of a selector, or those named."""

    all: bool = False
    node_selector: dict[str, Any] | None = None
    nodes: tuple[str, ...] = ()


class PauseEnded(Wire, frozen=True):
    """Who ended a pause early. Only a record: `until` ends a pause."""

    by: str = ""
    until: str = ""
    """The original end; "" for never."""


class PauseSpec(Wire, frozen=True):
    """A pause of new quarantines and evictions in this scope."""

    scope: PauseScope = PauseScope()
    reason: str = ""
    by: str = ""
    until: str = ""
    ended: PauseEnded | None = None
