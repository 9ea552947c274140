"""Snapshot of the fleet, and the observation of one node that a decision uses.

The remediator calls `observe` before every `rules.session.decide.decide` and adds what only it
knows (a drain plan, the last pass). This module also decides whether a health
status is fresh, and how old a view may be for disruption. No I/O, no clock.
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

if TYPE_CHECKING:  # imports for annotations only, so that commands start faster
    from rules.api.evidence import EvidenceView
    from rules.api.gpu_record import RecordView
    from rules.api.nodes import LeaseView
    from rules.api.refusal import NodeWrite
    from rules.api.repair_writes import ObjectAddress
    from rules.api.resource_slices import NodeTaints
    from rules.drain.drain_plan import DrainPlan
    from rules.drain.gangs import Gang
    from rules.policy.policy import Policy
    from rules.repair.objects import ObjectSeen
    from rules.session.validation.jobs import JobSeen

HEARTBEAT_FRESH_S: Final = 720.0
"""An agent without a pod sends a heartbeat every 300 s: two missed ones and some slack."""
AGENT_GONE_S: Final = 300.0
"""How long an agent's pod may be unready before GPUHealthy becomes Unknown."""
_GPU_SOURCES: Final = ("nvml", "dcgm")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """All input of the decision rules at one moment.

    `now` is wall time corrected to the API server's clock. `observing_since` is when the caches of
    this process were last complete after a start or an outage: silence before it proves nothing.
    `reserved` has nodes with a quarantine that was sent and has not been observed by watch.
    """

    now: float
    policy: Policy
    """That of the fleet; decisions about one node use `policy_of`."""
    nodes: Mapping[str, NodeView]
    healths: Mapping[str, HealthView] = field(default_factory=dict)
    quarantines: Mapping[str, QuarantineView] = field(default_factory=dict)
    """By object name."""
    records: Mapping[str, RecordView] = field(default_factory=dict)
    """Records of GPUs and nodes, by object name; never a cause by themselves."""
    counting: Mapping[str, QuarantineView] | None = None
    """The `quarantines` that the fleet rules may still count: open ones, and ended ones within
    their windows (`rules.session.history.counts_until`); None if not computed.
    """
    pauses: Mapping[str, PauseView] = field(default_factory=dict)
    agents: Mapping[str, AgentPod] = field(default_factory=dict)
    """By pod UID."""
    maintenance_leases: Mapping[str, LeaseView] = field(default_factory=dict)
    """Leases of other operators on nodes (medik8s), by node name."""
    external_seen: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Since when this process has observed external findings, by node name and finding id
    (`rules.session.external.first_seen`)."""
    device_taints: Mapping[str, Mapping[str, NodeTaints]] = field(default_factory=dict)
    """Taints of devices for triggers of the policy, by node name and driver."""
    observing_since: float = 0.0
    acting_since: float = 0.0
    """When this process became leader: its initial waits count from here."""
    doubt: str = ""
    """Why the snapshot is not good enough for disruption, as a clause: an outdated view
    (`too_old`) or an unknown time; "" if it is."""
    own_node: str = ""
    """The node this process runs on; "" outside the cluster."""
    own_namespace: str = "gpuward"
    """Where the remediator's Deployment lives: fleet findings become Events there."""
    no_other_replica: bool = False
    """Leadership was released for the own node and came back: there is no other replica."""
    reserved: Set[str] = frozenset()
    taint_refused: frozenset[str] = frozenset()
    """Nodes with a quarantine that the API server has just refused: they get no turn for now."""
    gangs: Mapping[str, tuple[Gang, ...]] = field(default_factory=dict)
    """Gangs with GPU pods on a node (`rules.drain.gangs.gangs_of`), by node name: needed for nodes
    with a session that has not begun to drain. Empty means none; a missing node was not read
    recently."""
    not_kept: Set[str] = frozenset()
    """Fields of a session's status that the API server dropped recently, such as `status.repair`
    (`rules.session.status.entries_lost`)."""
    kueue_unhealthy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node names in `status.unhealthyNodes` of a gang's Kueue Workload, by gang key."""
    memo: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Cache of results computed from this snapshot (`rules.session.causes`)."""

    @property
    def counted(self) -> Mapping[str, QuarantineView]:
        """The sessions that the fleet rules count."""
        return self.quarantines if self.counting is None else self.counting

    def policy_of(self, node: NodeView | None) -> Policy:
        """Return the policy of the node; that of the fleet if there is none."""
        return self.policy if node is None else self.policy.of(node.labels)

    def mode_of(self, session: QuarantineView) -> str:
        """Return the mode of the session; before its first status that of its node's policy."""
        name = session.spec.node_name
        return session.status.mode or self.policy_of(self.nodes.get(name)).mode


class Unjudged(StrEnum):
    """What a pending permit waits for; the session reports nothing meanwhile."""

    FLEET = "the fleet was not assessed yet"
    GANGS = "the gangs on the node are being read"
    GANGS_OF_OTHERS = "the gangs of the waiting nodes are being read"
    HALT_OVER = "the end of the halt was not assessed yet"
    """So that the end of a pause starts no more drains than the limit allows."""
    TAINT_REFUSED = "its taint and cordon was refused a moment ago"
    """The session reports by whom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What the fleet rules allow for one node: to be quarantined, drained or repaired."""

    start: bool = False
    drain: bool = False
    unjudged: Unjudged | None = Unjudged.FLEET
    refusal: Refusal | None = None
    """Why not; None if allowed or pending."""
    storm: bool = False
    """The circuit breaker is open."""
    repair: bool = False
    """Whether it may be repaired."""
    hand_over: bool = False
    """It is the turn of the leader's own node: another replica takes the lead first."""

    @property
    def why(self) -> str:
        """Why there is no permit, as a clause; "" if there is one."""
        return self.refusal.why if self.refusal is not None else self.unjudged or ""

    @classmethod
    def refused(cls, refusal: Refusal, *, start: bool = False, storm: bool = False) -> Permit:
        """Return a refusal; `start`: the node may be quarantined and only the drain waits."""
        return cls(start=start, unjudged=None, refusal=refusal, storm=storm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """How sessions of a node disappeared."""

    lost: str = ""
    """Why it was no operator's request, as a clause; "" for a deletion."""
    settled_at: float = 0.0
    """Until then more sessions may disappear with them."""
    ended: tuple[QuarantineView, ...] = ()
    """Sessions that had ended before they were deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """The input of a decision about one node. `node` None means that it was certainly deleted."""

    name: str
    node: NodeView | None
    recent: bool = False
    """The node was read for this decision, or its watch is recent."""
    health: HealthView | None = None
    selected: bool = True
    """Whether the policy's `nodeSelector` selects it."""
    stale: str = ""
    """Why the health status is stale; "" if it is fresh."""
    evidence: EvidenceView | None = None
    """The GPUEvidence of this session until it is recorded."""
    external: External = field(default_factory=External)
    """External findings on the node."""
    device_taints: Mapping[str, NodeTaints] = field(default_factory=dict)
    """Taints of devices of the node, by driver."""
    observing_since: float = 0.0
    """`FleetSnapshot.observing_since`."""
    pauses: tuple[PauseView, ...] = ()
    """Pauses that cover the node now."""
    doubt: str = ""
    """Why the data is not good enough for disruption (`FleetSnapshot.doubt`)."""
    owner: str = ""
    """The other controller that works on the node (`rules.session.exclusions`)."""
    permit: Permit = Permit()
    siblings: tuple[QuarantineView, ...] = ()
    """Other sessions on this node, open and ended."""
    deleted: tuple[QuarantineView, ...] = ()
    """Sessions of this node that disappeared while they were open."""
    vanished: Vanished = Vanished()
    """How they disappeared."""
    untolerating: tuple[str, ...] = ()
    """DaemonSets that select the node and do not tolerate the taint (`namespace/name`)."""
    gangs: tuple[Gang, ...] = ()
    """The gangs with GPU pods on the node."""
    plan: DrainPlan | None = None
    """The last plan of the drain; None before the first."""
    last_active_at: float | None = None
    """When any replica last decided this session with every write accepted."""
    job: JobSeen | None = None
    """The Job of the test under load, as read for this decision; None before it was read."""
    refused: Mapping[NodeWrite, Refusal] = field(default_factory=dict)
    """Recent refusals by the API server of writes on the node."""
    objects: Mapping[ObjectAddress, ObjectSeen] = field(default_factory=dict)
    """Objects of repair providers, as last read for decisions about the node."""
    not_kept: Set[str] = frozenset()
    """`FleetSnapshot.not_kept`."""
    own_namespace: str = ""
    """Where the remediator's Deployment lives."""

    @property
    def uid(self) -> str:
        """The UID of the Node; "" if it does not exist."""
        return self.node.uid if self.node is not None else ""


class Staleness(StrEnum):
    """Why a health status is stale."""

    NO_HEALTH_STATUS = "the node has no health status"
    OTHER_NODE = "the health status belongs to an earlier node of that name"
    OTHER_BOOT = "the health status is from another boot"
    NO_PUBLISHER = "the health status names no publisher"
    POD_GONE = "the agent's pod is gone"
    POD_NOT_READY = "the agent's pod is not Ready"
    NO_HEARTBEAT = "the agent's heartbeat stopped"
    SILENT = "gpuward-remediator reports the agent as silent"
    """For clients that may not read pods."""
    NO_DATA = "the agent has no GPU data"


AGENT_PROBLEMS: Final = frozenset(
    {
        *(Staleness.POD_GONE, Staleness.POD_NOT_READY, Staleness.NO_HEARTBEAT, Staleness.SILENT),
        Staleness.NO_DATA,
    }
)
"""Reasons for which the agent of the node has to be checked."""


def publisher_silence(
    health: HealthView, agents: Mapping[str, AgentPod] | None, now: float
) -> tuple[str, float]:
    """Return why the publisher counts as silent and since when; ("", 0.0) while it is alive.

    `agents` None: the client may not read pods and uses the remediator's report.
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
    """Return why the health status is stale; "" if it is fresh.

    Fresh: of this node and boot, with a live publisher and GPU data. The boot is not compared if
    the kubelet reported none.
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
    """Return whether the agent has GPU data: from NVML, else from dcgm-exporter, else from the
    kernel log.
    """
    for view in _GPU_SOURCES:
        states = {s.state for s in status.sources if s.name.lower().startswith(view)}
        if states - {"Absent"}:
            return "Up" in states
    return True


def selects_node(policy: Policy, node: NodeView) -> bool:
    """Return whether the policy's `nodeSelector` selects the node."""
    return selectors.parse_selector(policy.node_selector)(node.labels)


def sessions_by_node(
    quarantines: Mapping[str, QuarantineView],
) -> dict[str, list[QuarantineView]]:
    """Return the sessions by node name, oldest first; computed once per cycle."""
    found: defaultdict[str, list[QuarantineView]] = defaultdict(list)
    for session in quarantines.values():
        found[session.spec.node_name].append(session)
    for sessions in found.values():
        sessions.sort(key=lambda session: (session.metadata.created_at, session.name))
    return dict(found)


def is_open(session: QuarantineView) -> bool:
    """Return whether the session has not ended."""
    return session.status.phase not in {"Released", "Cancelled", "NodeGone"}


def observe(
    snapshot: FleetSnapshot,
    name: str,
    *,
    sessions: Mapping[str, list[QuarantineView]],
    session: QuarantineView | None = None,
    node: NodeView | None = None,
) -> NodeObservation:
    """Return the observation of one node; `node` if it was read, or if its watch is recent. The
    caller adds what only it knows: a permit, a drain plan, objects that it read.
    """
    seen = node or snapshot.nodes.get(name)
    health = snapshot.healths.get(name)
    siblings = tuple(
        other
        for other in sessions.get(name, ())
        if session is None or other.metadata.uid != session.metadata.uid
    )
    external, policy = External(), snapshot.policy_of(seen)
    if seen is not None and policy.external:
        first_seen = snapshot.external_seen.get(name, {})
        taints = snapshot.device_taints.get(name, {})
        external = external_of(seen, policy, snapshot.now, first_seen, taints)
    return NodeObservation(
        name=name,
        node=seen,
        recent=node is not None,
        health=health,
        selected=seen is not None and selects_node(snapshot.policy, seen),
        stale=staleness(health, seen, snapshot.agents, snapshot.now) if seen else "no node",
        external=external,
        device_taints=snapshot.device_taints.get(name, {}),
        observing_since=snapshot.observing_since,
        pauses=exclusions.pauses_on(seen, snapshot) if seen else (),
        doubt=snapshot.doubt,
        owner=exclusions.owner_on(seen, snapshot) if seen else "",
        siblings=siblings,
        gangs=snapshot.gangs.get(name, ()),
        not_kept=snapshot.not_kept,
        own_namespace=snapshot.own_namespace,
    )


QUIET_S: Final = 100.0
"""kube-apiserver sends each watch a bookmark about once a minute (`bookmarkFrequency` is 60 s), so
a watch without any event for this long does not work."""
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
    """Return why the view called `name` is too old for disruption, as a clause; "" if it is not.

    `quiet_s` is the time since its last event, `unfollowed_s` since its watch ended (0 while it
    runs), `problem` is the known cause of that. `longest_quiet_s` is shorter for a view that is
    listed more often.
    """
    if quiet_s <= longest_quiet_s and unfollowed_s <= UNFOLLOWED_S:
        return ""
    why = f" ({problem})" if problem else ""
    return f"the view of {name} is too old to act on{why}"[:300]
