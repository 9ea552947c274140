"""What the page shows: `FleetPage`, `NodePage` and `HistoryPage`, one value per page.

A module of this package fills each, a template renders it, and `/api/` answers with it as JSON.
Times are RFC 3339 as the objects spell them; durations are seconds. Health, causes, conditions and
drain are the types of the objects.
"""

import msgspec

from rules.api.health import GpuStatus, HealthStatus, IncidentStatus
from rules.api.quarantine import (
    Cause,
    Condition,
    DrainStatus,
    IsolatedDevice,
    Pods,
    RepairRequest,
    ValidationAttempt,
)
from rules.session.repair.ladder import LadderRung


class Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of every answer: camelCase keys, every field always present."""


class ProblemShown(Shown, frozen=True, kw_only=True):
    """Why there is no answer: one sentence with what to do."""

    error: str


class ReplicaShown(Shown, frozen=True, kw_only=True):
    """Who answers, and whether what it knows is complete and fresh."""

    identity: str
    leading: bool
    mode: str
    problem: str = ""
    """Why its view is incomplete or too old to act on, one sentence; empty when it is neither."""
    leader_problem: str = ""
    """Why the remediator that leads cannot act, as its Lease reports, one sentence; empty when it
    can, or `problem` has it.
    """
    policy_problem: str = ""
    """What is wrong with its policy file, and by what it goes on; empty when it is in force."""
    at: str
    grafana: str = ""
    """Address of the Grafana that has gpuward's dashboards; empty where none is configured."""


class GpuSquare(Shown, frozen=True, kw_only=True):
    """A GPU of a node that is not plainly healthy."""

    index: int
    health: str
    """`degraded`, `unhealthy` or `unknown`."""
    reason: str
    isolated: bool = False
    """A device taint keeps it from new pods, and the node stays in service."""


class NodeRow(Shown, frozen=True, kw_only=True):
    """One node as the fleet map shows it."""

    name: str
    pool: str
    rack: str
    health: str
    """`healthy`, `degraded`, `unhealthy` or `unknown`, as in the node's label."""
    gpus: int
    """Expected GPUs."""
    gpus_healthy: int
    unhealthy_gpus: tuple[GpuSquare, ...] = msgspec.field(name="marks")
    """Its GPUs that are not healthy, as far as its health status names them."""
    unschedulable: bool
    ready: str
    """The kubelet's condition: `True`, `False` or `Unknown`."""
    phase: str
    """Of the open session; empty where there is none."""
    mode: str


class SessionRow(Shown, frozen=True, kw_only=True):
    """One session as tables show it."""

    name: str
    node: str
    phase: str
    mode: str
    open: bool
    severity: str
    level: str
    reason: str
    """The most severe cause's reason; `Human` for an operator's request without one."""
    causes: int
    opened_at: str
    phase_since: str
    message: str
    conditions: tuple[str, ...]
    """Conditions that are true, for example `Blocked`, `NeedsHuman`, `Storm`; what halts a session
    by its reason: `Paused`, `OptOut`, `StandDown`."""
    until: str
    """When the blocker expires or the session continues by itself, at the latest; "" without a
    time limit."""
    evicted: int
    waits_for: str
    """What it waits for because of the fleet, the same for others; else ""."""
    needs: str
    """What an operator must do before it goes on: `must approve`, `must act`, or ""."""


class Blocker(Shown, frozen=True, kw_only=True):
    """One thing that a session waits for, and what ends the wait."""

    reason: str
    """A reason of `rules.catalog.why_not`, which names its runbook, or a condition's own."""
    what: str = ""
    """The PodDisruptionBudget or the pods; "" where it is the session as a unit."""
    why: str = ""
    """"" if the message of the session has it."""
    permanent: bool = False
    """Whether waiting cannot help, of a budget or pod."""
    owner: str = ""
    pods: Pods = Pods()
    remedy: str = ""
    command: str = ""


class Explanation(Shown, frozen=True, kw_only=True):
    """What a session waits for, and what comes next."""

    blockers: tuple[Blocker, ...]
    next: str
    """A clause; "" if the message of the session has it."""


class SessionDetail(Shown, frozen=True, kw_only=True):
    """All of one session; its steps are items of the node's timeline."""

    session: SessionRow
    explanation: Explanation
    hold: bool
    release_asked_by: str
    repair_asked: RepairRequest | None
    """The repair step that an operator approved last, who and why."""
    causes: tuple[Cause, ...]
    conditions: tuple[Condition, ...]
    gpus: tuple[GpuStatus, ...]
    """Those that it names: UUID, and index and serial number where they are known."""
    evidence: tuple[IncidentStatus, ...]
    """What a detector saw, kept from the moment the session opened."""
    drain: DrainStatus | None
    devices: tuple[IsolatedDevice, ...]
    """The devices that it isolates instead of the node."""
    ladder: tuple[LadderRung, ...]
    """The repair: what was tried, what is next, what comes after."""
    validation: tuple[ValidationAttempt, ...]
    """The tests under load before its release."""


class OperatorAction(Shown, frozen=True, kw_only=True):
    """What an operator can do now."""

    command: str
    does: str


class TimelineItem(Shown, frozen=True, kw_only=True):
    """One thing that happened to a node, at a time or for a while."""

    timeline: str = msgspec.field(name="lane")
    """`fault`, `session`, `repair`, `test`, `node` (boots, evidence) or an operator."""
    at: str
    until: str
    """As `at` for a moment; empty while it goes on."""
    what: str
    """A reason, a phase, a repair step, or what an operator did."""
    state: str = ""
    """Severity of a fault, the phase, what became of a step, the health status of a test."""
    text: str = msgspec.field(name="said", default="")
    by: str = ""
    """Who, of an operator's acts."""
    session: str = ""


class NodePage(Shown, frozen=True, kw_only=True):
    """`/nodes/NAME` and `/api/nodes/NAME`: all of one node, or the records of a deleted one."""

    replica: ReplicaShown
    name: str
    node: NodeRow | None
    """None: there is no such GPU node any more."""
    health_source: str = msgspec.field(name="verdict")
    """Where `health` is from: `live` from the watch of sick nodes, `read` a moment ago, `none`."""
    health: HealthStatus | None
    stale: str
    """Why it is not known whether `health` still holds; "" where it can be believed."""
    taints: tuple[str, ...] = msgspec.field(name="marks")
    """Taints and cordon with their owners."""
    notes: tuple[str, ...]
    """What people wrote on it (hold, opt-out, pauses that name it) and what else is unusual."""
    acts: tuple[OperatorAction, ...]
    """What an operator can do about it now."""
    sessions: tuple[SessionDetail, ...]
    """Newest first."""
    timeline: tuple[TimelineItem, ...]
    """Oldest first."""
    earlier: int
    """Older items of the timeline that are left out."""


class Counts(Shown, frozen=True, kw_only=True):
    """The fleet in numbers."""

    nodes: int
    healthy: int
    degraded: int
    unhealthy: int
    unknown: int
    unschedulable: int
    gpus: int
    gpus_seen: int
    """GPUs of nodes whose agent reports; of the others nothing is known."""
    gpus_healthy: int
    """Of those that are seen."""
    open_sessions: int
    need_human: int


class BudgetRow(Shown, frozen=True, kw_only=True):
    """One budget: the entire selection or one label value."""

    scope: str
    nodes: int
    unavailable: float
    limit: int
    room: int


class PauseRow(Shown, frozen=True, kw_only=True):
    """A pause that is in force."""

    name: str
    scope: str
    reason: str
    by: str
    until: str


class SessionGroup(Shown, frozen=True, kw_only=True):
    """Open sessions that differ only in their node and age."""

    session: SessionRow
    """The one that has been in its phase longest."""
    nodes: tuple[str, ...]
    newest_since: str
    """`phaseSince` of the latest."""
    racks: tuple[str, ...]
    """Racks of the nodes, sorted; a node that is gone has none."""


class FleetFilter(Shown, frozen=True, kw_only=True):
    """Which nodes and sessions are shown; an empty field restricts nothing."""

    q: str = ""
    """Part of the name of a node or session, or of the serial number or UUID of a GPU."""
    health: str = ""
    reason: str = ""
    rack: str = ""
    phase: str = ""
    out: str = ""
    """Not empty: only nodes that are cordoned."""
    sort: str = ""
    """Order of the open sessions: `node`, `rack`, `phase`, `reason` or `age`; else by urgency."""


class PolicyRow(Shown, frozen=True, kw_only=True):
    """A policy of a file with pools; two pools that overlap are a row with both names."""

    name: str
    mode: str
    nodes: int


class FleetPage(Shown, frozen=True, kw_only=True):
    """`/` and `/api/fleet`."""

    replica: ReplicaShown
    counts: Counts
    """Of the entire fleet, whatever the filter."""
    budgets: tuple[BudgetRow, ...]
    policies: tuple[PolicyRow, ...]
    """Empty if the file has one policy."""
    breaker: str
    """Why new quarantines are paused; "" while the circuit breaker is closed."""
    breaker_until: str
    """When the circuit breaker closes."""
    findings: tuple[str, ...]
    pauses: tuple[PauseRow, ...]
    filter: FleetFilter
    reasons: tuple[str, ...]
    """Values that the filter can take."""
    racks: tuple[str, ...]
    phases: tuple[str, ...]
    nodes: tuple[NodeRow, ...]
    """By pool, rack and name."""
    gone: tuple[str, ...]
    """Nodes that `filter.q` means and that are gone."""
    sessions: tuple[SessionGroup, ...]
    """Open sessions: those that need operator action first, then the most severe, then the oldest.
    """


class Bar(Shown, frozen=True, kw_only=True):
    """How many sessions opened in the week from `name` (a Monday), or for the reason `name`."""

    name: str
    sessions: int


class RepeatOffender(Shown, frozen=True, kw_only=True):
    """A GPU or node with repeated failures in its GPURecord."""

    name: str
    serial: str
    """"" of a node, and where it is not known."""
    node: str
    """Where it was seen last."""
    faults: str
    """How many in how long, one sentence."""


class HistoryPage(Shown, frozen=True, kw_only=True):
    """`/history` and `/api/history`: sessions of mode Enforce and Shadow alike, as long as the
    policy keeps them.
    """

    replica: ReplicaShown
    sessions: int
    ended: int
    weeks: tuple[Bar, ...]
    reasons: tuple[Bar, ...]
    offenders: tuple[RepeatOffender, ...]
    latest: tuple[SessionRow, ...]
    """Sessions that ended last, at most 100."""
