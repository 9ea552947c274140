"""The entire fleet at one moment, and what one decision about one node may look at of it.

`observe` is called by the edge before every `rules.session.decide.decide`; the edge adds what only
it knows (a drain plan from uncached lists, the last pass). Also the one place that says whether an
agent's health status is fresh, and how old a view of the fleet may be before disruption rests on
it. No I/O, no clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rules.api import selectors, timestamps
from rules.api.health import HealthStatus
from rules.api.nodes import AgentPod, HealthView, NodeView, PauseView, QuarantineView
from rules.catalog.why_not import Refusal
from rules.session import exclusions
from rules.session.external import External, external_of

if TYPE_CHECKING:  # what stands in annotations alone, no command has to wait for
    from rules.api.evidence import EvidenceView
    from rules.api.gpu_record import RecordView
    from rules.api.nodes import LeaseView
    from rules.api.refusal import NodeWrite
    from rules.api.repair_writes import ObjectAddress
    from rules.drain.drain_plan import DrainPlan
    from rules.drain.gangs import Gang
    from rules.policy.policy import Policy
    from rules.repair.objects import ObjectSeen
    from rules.session.validation.jobs import JobSeen

HEARTBEAT_FRESH_S: Final = 720.0
"""An agent without a pod beats every 300 s: two missed beats and some slack."""
AGENT_GONE_S: Final = 300.0
"""How long an agent's pod may be unready before GPUHealthy becomes Unknown."""
_GPU_SOURCES: Final = ("nvml", "dcgm")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """Everything the deciding rules may look at, at one moment.

    `now` is wall time corrected to the API server's clock. `observing_since` is when this
    process's caches were last complete after a start or an outage: silence before it proves
    nothing. `reserved` names nodes whose quarantine was sent but has not come back by watch.
    """

    now: float
    policy: Policy
    nodes: Mapping[str, NodeView]
    healths: Mapping[str, HealthView] = field(default_factory=dict)
    quarantines: Mapping[str, QuarantineView] = field(default_factory=dict)
    """By object name."""
    records: Mapping[str, RecordView] = field(default_factory=dict)
    """What is known of GPUs and nodes from before, by object name; never a cause by itself."""
    counting: Mapping[str, QuarantineView] | None = None
    """Those of `quarantines` that the fleet rules may still count: open ones, and ended ones
    within their windows (`rules.session.history.counts_until`); None where nobody picked them out.
    """
    pauses: Mapping[str, PauseView] = field(default_factory=dict)
    agents: Mapping[str, AgentPod] = field(default_factory=dict)
    """By pod UID."""
    maintenance_leases: Mapping[str, LeaseView] = field(default_factory=dict)
    """Leases of other operators on nodes (medik8s), by node name."""
    external_seen: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Since when this process has seen what others say on a node, by node name and finding
    (`rules.session.external.first_seen`)."""
    observing_since: float = 0.0
    acting_since: float = 0.0
    """When this process took over: waits for what a leader has to find out count from here."""
    doubt: str = ""
    """Why no disruption may rest on this snapshot, a clause: a view that is too old (`too_old`), a
    time that is not known; "" when it may."""
    own_node: str = ""
    """The node this process runs on; "" outside the cluster."""
    own_namespace: str = "gpuward"
    """Where the remediator's Deployment lives: fleet findings become Events there."""
    no_other_replica: bool = False
    """Leadership was handed over for the own node and came back: there is no other replica."""
    reserved: Set[str] = frozenset()
    taint_refused: frozenset[str] = frozenset()
    """Nodes that the API server let nobody quarantine a moment ago: they get no turn meanwhile."""
    gangs: Mapping[str, tuple[Gang, ...]] = field(default_factory=dict)
    """Gangs with GPU pods on a node (`rules.drain.gangs.gangs_of`), by node name: needed for nodes
    whose session has not begun to drain. Empty says none; a missing node was not read lately."""
    not_kept: Set[str] = frozenset()
    """Fields of a session's status that the API server was lately seen to drop, as `status.repair`
    (`rules.session.status.entries_lost`)."""
    kueue_unhealthy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node names in `status.unhealthyNodes` of a gang's Kueue Workload, by gang key."""
    memo: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """What was worked out from this snapshot (`rules.session.causes`): one moment has one answer.
    """

    @property
    def counted(self) -> Mapping[str, QuarantineView]:
        """The sessions that the fleet rules look at."""
        return self.quarantines if self.counting is None else self.counting


class Unjudged(StrEnum):
    """What a permit is without while it is neither a yes nor a no; a session says nothing then."""

    FLEET = "the fleet was not judged yet"
    GANGS = "the gangs on the node are being read"
    GANGS_OF_OTHERS = "the gangs of the waiting nodes are being read"
    HALT_OVER = "the end of what held it up was not judged yet"
    """So that an end of a pause starts no more drains than there are places."""
    TAINT_REFUSED = "its taint and cordon was refused a moment ago"
    """The session says by whom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What the fleet rules allow one node: its turn to be quarantined, its turn to drain."""

    start: bool = False
    drain: bool = False
    unjudged: Unjudged | None = Unjudged.FLEET
    refusal: Refusal | None = None
    """Why not; None for a yes, and while it is not judged."""
    storm: bool = False
    """The breaker is open."""
    repair: bool = False
    """Its turn to be repaired."""
    hand_over: bool = False
    """Our own node's turn: leadership goes to another replica first."""

    @property
    def why(self) -> str:
        """A clause that says why there is no permit; "" where there is one."""
        return self.refusal.why if self.refusal is not None else self.unjudged or ""

    @classmethod
    def refused(cls, refusal: Refusal, *, start: bool = False, storm: bool = False) -> Permit:
        """A no; `start`: its taint and cordon may go on, and only the drain waits."""
        return cls(start=start, unjudged=None, refusal=refusal, storm=storm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """How the sessions of a node that are gone went."""

    lost: str = ""
    """Why no operator asked for it, a clause; "" for a deletion."""
    settled_at: float = 0.0
    """Until then it is not known whether other sessions go with them."""
    ended: tuple[QuarantineView, ...] = ()
    """Those that had ended before they were deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """One node as a decision sees it. `node` None means: deleted, certainly."""

    name: str
    node: NodeView | None
    health: HealthView | None = None
    selected: bool = True
    """Whether the policy's `nodeSelector` selects it."""
    stale: str = ""
    """Why the health status cannot be believed now; "" when it is fresh."""
    evidence: EvidenceView | None = None
    """The GPUEvidence of this session, while that is not on its record."""
    external: External = field(default_factory=External)
    """What others say on the node, by the policy."""
    observing_since: float = 0.0
    """As `FleetSnapshot` has it."""
    pauses: tuple[PauseView, ...] = ()
    """Pauses that cover the node now."""
    doubt: str = ""
    """Why no disruption may rest on what was seen (`FleetSnapshot.doubt`)."""
    owner: str = ""
    """Who else works on the node (`rules.session.exclusions`)."""
    permit: Permit = Permit()
    siblings: tuple[QuarantineView, ...] = ()
    """Other sessions on this node, open and ended."""
    deleted: tuple[QuarantineView, ...] = ()
    """Sessions of this node that vanished while they were open."""
    vanished: Vanished = Vanished()
    """How they went."""
    untolerating: tuple[str, ...] = ()
    """DaemonSets that select the node and do not tolerate our taint (`namespace/name`)."""
    gangs: tuple[str, ...] = ()
    """Keys of the gangs with GPU pods on the node."""
    plan: DrainPlan | None = None
    """The drain as of the last uncached lists; None before the first."""
    last_active_at: float | None = None
    """When this session was last decided with every write accepted, by any replica."""
    job: JobSeen | None = None
    """The Job of the test under load, as read for this decision; None before it was read."""
    refused: Mapping[NodeWrite, Refusal] = field(default_factory=dict)
    """The API server's answer to writes on the node sent a moment ago, where it was no."""
    objects: Mapping[ObjectAddress, ObjectSeen] = field(default_factory=dict)
    """What decisions about the node had read of repair providers' objects, as last read."""
    not_kept: Set[str] = frozenset()
    """`FleetSnapshot.not_kept`."""
    own_namespace: str = ""
    """Where the remediator's Deployment lives."""

    @property
    def uid(self) -> str:
        """The Node's; "" where there is none."""
        return self.node.uid if self.node is not None else ""


class Staleness(StrEnum):
    """Why a health status is not fresh, where that takes no more words."""

    NO_HEALTH_STATUS = "there is no health status for the node"
    OTHER_NODE = "the health status is about an earlier node of that name"
    OTHER_BOOT = "the health status is from another boot"
    NO_PUBLISHER = "the health status names no publisher"
    POD_GONE = "the agent's pod is gone"
    POD_NOT_READY = "the agent's pod is not Ready"
    NO_HEARTBEAT = "the agent's heartbeat stopped"
    SILENT = "the remediator calls its agent silent"
    """Of one whose pod may not be read."""
    NO_DATA = "the agent cannot see the GPUs"


AGENT_PROBLEMS: Final = frozenset(
    {
        *(Staleness.POD_GONE, Staleness.POD_NOT_READY, Staleness.NO_HEARTBEAT, Staleness.SILENT),
        Staleness.NO_DATA,
    }
)
"""Of these the agent of the node can be asked."""


def publisher_silence(
    health: HealthView, agents: Mapping[str, AgentPod] | None, now: float
) -> tuple[str, float]:
    """Why the publisher counts as silent and since when; ("", 0.0) while it is alive.

    `agents` None: whoever asks may read no pods, and has the remediator's word alone.
    """
    publisher = health.status.publisher
    if publisher.pod_uid and agents is None:
        since = health.status.silent_since
        return (Staleness.SILENT, timestamps.parse_time(since) or 0.0) if since else ("", 0.0)
    if publisher.pod_uid and agents is not None:
        pod = agents.get(publisher.pod_uid)
        if pod is None:
            return Staleness.POD_GONE, timestamps.parse_time(health.status.observed_at) or 0.0
        if not pod.ready:
            return Staleness.POD_NOT_READY, pod.ready_changed_at
        return "", 0.0
    heard_at = health.heard_at if publisher.heartbeat else None
    if heard_at is None:
        return Staleness.NO_PUBLISHER, 0.0
    if now - heard_at > HEARTBEAT_FRESH_S:
        return Staleness.NO_HEARTBEAT, heard_at
    return "", 0.0


def staleness(
    health: HealthView | None, node: NodeView, agents: Mapping[str, AgentPod] | None, now: float
) -> str:
    """Why the health status is not fresh; "" when it may be acted on.

    Fresh: of this node and boot, its publisher alive, and the GPUs can be seen. A node whose
    kubelet reported no boot gives nothing to compare with.
    """
    if health is None:
        return Staleness.NO_HEALTH_STATUS
    status = health.status
    if health.doubt:
        return f"the health status cannot be read in full ({health.doubt})"
    if status.node_uid and status.node_uid != node.uid:
        return Staleness.OTHER_NODE
    if node.boot_id and status.boot_id != node.boot_id:
        return Staleness.OTHER_BOOT
    silence, _ = publisher_silence(health, agents, now)
    if silence:
        return silence
    return "" if _sees_gpus(status) else Staleness.NO_DATA


def _sees_gpus(status: HealthStatus) -> bool:
    """NVML decides; dcgm-exporter where NVML is off; with neither the kernel log is all there
    is.
    """
    for view in _GPU_SOURCES:
        states = {s.state for s in status.sources if s.name.lower().startswith(view)}
        if states - {"Absent"}:
            return "Up" in states
    return True


def selects_node(policy: Policy, node: NodeView) -> bool:
    """Whether the policy's `nodeSelector` selects the node, as its labels are now."""
    return selectors.parse_selector(policy.node_selector)(node.labels)


def sessions_by_node(
    quarantines: Mapping[str, QuarantineView],
) -> dict[str, list[QuarantineView]]:
    """Every session under its node's name, oldest first; the edge computes it once a cycle."""
    found: defaultdict[str, list[QuarantineView]] = defaultdict(list)
    for session in quarantines.values():
        found[session.spec.node_name].append(session)
    for sessions in found.values():
        sessions.sort(key=lambda session: (session.metadata.created_at, session.name))
    return dict(found)


def is_open(session: QuarantineView) -> bool:
    """Whether the session has not ended yet (one without status has not begun)."""
    return session.status.phase not in {"Released", "Cancelled", "NodeGone"}


def observe(
    snapshot: FleetSnapshot,
    name: str,
    *,
    sessions: Mapping[str, list[QuarantineView]],
    session: QuarantineView | None = None,
    node: NodeView | None = None,
) -> NodeObservation:
    """What the snapshot shows of one node. `node` overrides the cache with a fresh read. What the
    edge alone knows (a permit, a drain plan, objects that it read), it puts in itself.
    """
    seen = node or snapshot.nodes.get(name)
    health = snapshot.healths.get(name)
    siblings = tuple(
        other
        for other in sessions.get(name, ())
        if session is None or other.metadata.uid != session.metadata.uid
    )
    external = External()
    if seen is not None and snapshot.policy.external:
        first_seen = snapshot.external_seen.get(name, {})
        external = external_of(seen, snapshot.policy, snapshot.now, first_seen)
    return NodeObservation(
        name=name,
        node=seen,
        health=health,
        selected=seen is not None and selects_node(snapshot.policy, seen),
        stale=staleness(health, seen, snapshot.agents, snapshot.now) if seen else "no node",
        external=external,
        observing_since=snapshot.observing_since,
        pauses=exclusions.pauses_on(seen, snapshot) if seen else (),
        doubt=snapshot.doubt,
        owner=exclusions.owner_on(seen, snapshot) if seen else "",
        siblings=siblings,
        gangs=tuple(gang.key for gang in snapshot.gangs.get(name, ())),
        not_kept=snapshot.not_kept,
        own_namespace=snapshot.own_namespace,
    )


QUIET_S: Final = 100.0
"""An API server sends each watch a bookmark about once a minute (kube-apiserver's
`bookmarkFrequency` is 60 s), so a view that heard nothing for this long is not merely quiet."""
UNFOLLOWED_S: Final = 20.0
"""A watch that ends is resumed within milliseconds, after some failures within seconds."""


def too_old(
    name: str,
    *,
    quiet_s: float,
    unfollowed_s: float,
    problem: str,
    longest_quiet_s: float = QUIET_S,
) -> str:
    """Why no disruption may rest on the view called `name`, a clause; "" when it may.

    `quiet_s` is since anything of it was heard, `unfollowed_s` since nobody follows it (0 while
    somebody does); `problem` is what keeps that from working, where it is known.
    `longest_quiet_s` is shorter for a view that is listed again more often.
    """
    if quiet_s <= longest_quiet_s and unfollowed_s <= UNFOLLOWED_S:
        return ""
    why = f" ({problem})" if problem else ""
    return f"what is known of {name} is too old to act on{why}"[:300]
