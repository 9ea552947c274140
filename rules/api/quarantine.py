"""GPUQuarantine and GPUWardPause as they travel: one session on one node, kept as history.

The remediator writes `status`; detectors (through the remediator) and people write `spec`.
Everything a session needs after a restart is in here or on the node's own quarantine; nothing is
kept in memory only.
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
    """Where a session stands; the label on the node carries the lower-case spelling."""

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
        """True once the session is history and its taint and cordon is off."""
        return self in {Phase.RELEASED, Phase.CANCELLED, Phase.NODE_GONE}


NOT_TAINTED_YET: Final = frozenset({"", Phase.PENDING})
"""Phases of a session whose node carries no quarantine of it yet, also before anybody wrote
one.
"""


class Mode(enum.StrEnum):
    """Whether the remediator acts or only says what it would do."""

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
    """When an operator said it, or when it joined a session that was open; "" where it opened the
    session, and in what older releases or people by hand wrote."""


def most_severe(causes: Iterable[Cause]) -> Cause | None:
    """What to name where there is room for one cause: the most severe, as the health status
    chooses its own; of equals the first.
    """
    return max(
        causes,
        key=lambda cause: (severity_rank(cause.severity), xid.asks_for(cause.reason)),
        default=None,
    )


def most_severe_reason(causes: Iterable[Cause]) -> str:
    """Its reason, or who reports it where it has none; "" without a cause."""
    first = most_severe(causes)
    return first.reason or first.source if first is not None else ""


class ReleaseRequest(Wire, frozen=True):
    """An operator asks for release now."""

    by: str = ""
    reason: str = ""
    at: str = ""
    """When they said it; "" where nobody noted it."""


class RepairRequest(Wire, frozen=True):
    """An operator lets one repair step go."""

    step: str = ""
    by: str = ""
    reason: str = ""
    """Their own words, for the record: bounded and escaped where they are shown, never read."""
    at: str = ""
    """When they said it: a word holds for the faults that were there then. "" where nobody noted
    it."""


class QuarantineSpec(Wire, frozen=True):
    """What was asked for. People need only `nodeName` and one Human cause."""

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
    """None where all are named."""

    @property
    def total(self) -> int:
        """How many there are in all."""
        return len(self.named) + (self.more or 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names alone."""
        return tuple(note.name for note in self.named)


def pods_of(notes: Iterable[PodNote], most: int = MAX_NAMED) -> Pods:
    """All of them counted, at most `most` by name, each cut to what the definition allows."""
    ordered = sorted(notes, key=lambda note: note.name)
    named = (PodNote(name=n.name[:MAX_NAME], why=n.why[:MAX_NAME]) for n in ordered[:most])
    return Pods(named=tuple(named), more=max(0, len(ordered) - most) or None)


class BlockedBy(Wire, frozen=True):
    """One thing that keeps pods on the node, with what an operator can do about it."""

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
    """Why the API server refused to delete pods past the drain's time, as a reason."""
    started_at: str = ""
    suspended_seconds: int = 0


class TimelineEntry(Wire, frozen=True):
    """One step of the session, for people."""

    at: str
    step: str
    subject: str = ""
    """What it is about, where the step needs one: the repair step let go, the pod deleted."""
    message: str = ""
    by: str = ""


class RepairGpu(Wire, frozen=True):
    """One GPU as it was before a repair step; accused when a cause names it."""

    uuid: str
    serial: str = ""
    accused: bool = False


class RepairBefore(Wire, frozen=True):
    """The node as it was when a repair step was decided: its proof compares with this."""

    boot_id: str = msgspec.field(name="bootID", default="")
    node_uid: str = msgspec.field(name="nodeUID", default="")
    gpus: tuple[RepairGpu, ...] = ()
    reset_pending: bool = False


class RepairState(enum.StrEnum):
    """What became of one repair step."""

    PLANNED = "Planned"
    """On record; the call that asks for it may or may not have been sent."""
    HELD = "Held"
    """Planned, and something forbids it for now."""
    ASKED = "Asked"
    PROVEN = "Proven"
    FAILED = "Failed"
    WITHDRAWN = "Withdrawn"
    """Nobody wants it any more, or an operator ended the session first."""

    @property
    def ended(self) -> bool:
        """Whether nothing is expected of it any more."""
        return self in {RepairState.PROVEN, RepairState.FAILED, RepairState.WITHDRAWN}


class RepairTarget(Wire, frozen=True):
    """The object that a repair step is asked through, as it was found when the step was
    decided.
    """

    api_version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    """"" for one that the step itself creates."""


class RepairAttempt(Wire, frozen=True):
    """One step of the repair ladder, written before anybody is asked for it."""

    step: str
    adapter: str = ""
    attempt: int = 1
    started_at: str = ""
    asked_at: str = ""
    """When the call was accepted, or found standing; "" while nobody is known to have been asked,
    and in objects written before this was recorded."""
    ended_at: str = ""
    object: str = ""
    target: RepairTarget | None = None
    before: RepairBefore = RepairBefore()
    action: dict[str, Any] | None = None
    """What the adapter did for the step when it was decided, as in the policy file. The request is
    followed and taken back by it, whatever the policy says meanwhile. None in entries of older
    releases: the policy of now counts for those.
    """
    cleared: tuple[str, ...] = ()
    """`label=value` of each label of the Node by which others were moved off its GPUs, with its
    value of before, which comes back."""
    state: str = ""
    proof: str = ""

    @property
    def counts(self) -> bool:
        """Whether the step counts as tried: one that was withdrawn before anybody was asked is
        free to be taken again, for what would follow it loses more.
        """
        return self.state != RepairState.WITHDRAWN or bool(self.asked_at)

    @property
    def in_vain(self) -> bool:
        """Whether somebody was asked and the node did not come out of it."""
        return self.state == RepairState.FAILED and bool(self.asked_at)


class ValidationState(enum.StrEnum):
    """What became of one test under load."""

    PLANNED = "Planned"
    """On record; its Job may or may not have been made."""
    ASKED = "Asked"
    """Its Job is there."""
    PASSED = "Passed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """It could not be run, or said nothing that can be believed: never a pass."""
    OUTDATED = "Outdated"
    """It passed, and a cause came back after it."""
    WITHDRAWN = "Withdrawn"
    """It is not needed any more, or an operator ended the session first."""


class ValidationCheck(Wire, frozen=True):
    """One thing that the test measured, as its Job says."""

    id: str
    gpu: str = ""
    result: str = msgspec.field(name="verdict", default="")
    value: float | None = None
    unit: str = ""
    floor: float | None = None
    note: str = ""


class ValidationAttempt(Wire, frozen=True):
    """One test under load before a release, written before its Job is made."""

    object: str
    """What its Job is called."""
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


class QuarantineStatus(Wire, frozen=True):
    """Where the session stands. `drain` is present from the first drain pass on."""

    mode: str = ""
    phase: str = ""
    phase_since: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")
    reason: str = ""
    """`gravest_reason` of the causes, for whoever prints one path; "" in what an older release
    wrote."""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    drain: DrainStatus | None = None
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
    """Who ended a pause before its time. For the record alone: what ends a pause is `until`."""

    by: str = ""
    until: str = ""
    """When it would have ended by itself; "" for never."""


class PauseSpec(Wire, frozen=True):
    """An operator says: no new disruption in this scope, until then."""

    scope: PauseScope = PauseScope()
    reason: str = ""
    by: str = ""
    until: str = ""
    ended: PauseEnded | None = None
