"""Read everything that `why` shows about one node from the API server.

What the operator may not read is listed as unknown.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from remediator.kubectl import in_force, tainted_devices
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.in_force import Leadership
from remediator.view import operators
from rules.api import compute_domains as dra
from rules.api import gpu_record, names, quarantine
from rules.api.compute_domains import ComputeDomain
from rules.api.gpu_record import RecordStatus, RecordView
from rules.api.health import IncidentStatus
from rules.api.nodes import AgentPod, FreshNode, HealthView, NodeView, PauseView, QuarantineView
from rules.api.quarantine import Mode
from rules.api.resource_slices import NodeTaints
from rules.api.timestamps import TimeFormat
from rules.fleet.node_health import HealthNow, health_now
from rules.policy.policy import Policy, ShadowTexts, shadow_of
from rules.session import exclusions, external, observation
from rules.session.causes import CauseContext, actionable
from rules.session.history import Opening, opening
from rules.session.observation import NodeObservation, Staleness

T = TypeVar("T")
_MOST_GPUS = 16
GPU_LABELS: Final[Mapping[str, str]] = {
    "nvidia.com/gpu.present": "true",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
    "feature.node.kubernetes.io/pci-0300_10de.present": "true",
    "nvidia.com/gpu.deploy.driver": "",
    "cloud.google.com/gke-accelerator": "",
    "kubernetes.azure.com/accelerator": "nvidia",
    "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    "accelerator": "nvidia",
}
"""Labels of a node with NVIDIA GPUs and their values, "" for any: those of the agent's DaemonSet.
A node whose GPUs are given out by DRA alone has no GPU resource, and has one of these."""

UNKNOWN_JOBS: Final = "ComputeDomains (list computedomains): which jobs use the NVLink domain"
_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/mig-")
"""Prefixes of the resources of full, shared and renamed GPUs, and of MIG devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    """One node as one operator may see it, at one moment."""

    name: str
    now: float
    node: FreshNode | None
    """None: it is gone, or may not be read by this operator (`node_hidden`)."""
    node_hidden: bool = False
    health: HealthView | None = None
    sessions: tuple[QuarantineView, ...] = ()
    """Oldest first."""
    repeat_offenders: tuple[RecordStatus, ...] = ()
    """What failed here again and again: its GPUs, the node itself."""
    pauses: tuple[PauseView, ...] = ()
    """Those that cover it now."""
    agents: tuple[AgentPod, ...] | None = None
    """The agent's pods on the node; None where the operator may not list pods."""
    policy: Policy | None = None
    leader: Leadership = in_force.UNKNOWN
    """Whether a remediator is leader, and its status."""
    device_taints: Mapping[str, NodeTaints] = field(default_factory=dict)
    """Taints of devices that triggers of the policy match, by driver."""
    compute_domains: tuple[ComputeDomain, ...] = ()
    """The ComputeDomains whose jobs use the node's NVLink domain."""
    unknown: tuple[str, ...] = ()
    """What could not be read, and the right to ask for."""
    absolute: bool = False
    """Whether `times` are absolute."""

    @property
    def times(self) -> TimeFormat:
        """The format of the times in the answer."""
        return TimeFormat(self.now, absolute=self.absolute)

    @property
    def session(self) -> QuarantineView | None:
        """The session that has not ended, if there is one."""
        return open_session(self.sessions)

    @property
    def shadow(self) -> bool:
        """Whether nothing is touched: by the open session's mode, else by the policy's."""
        mode = self.session.status.mode if self.session is not None else ""
        return (mode or (self.policy.mode if self.policy is not None else "")) == Mode.SHADOW

    @property
    def policy_is_shadow(self) -> bool:
        """Whether no more is done to any node, whatever a session began."""
        return self.policy is not None and self.policy.mode == Mode.SHADOW

    @property
    def shadow_texts(self) -> ShadowTexts | None:
        """Why that is so, and what ends it; None where it is not, or nobody may know."""
        return shadow_of(self.policy)

    @property
    def people(self) -> tuple[str, ...]:
        """What people decided about the node (held, paused, opted out), what waits for them."""
        believed = self.health if not self.stale else None
        return operators.part_of_people(self.node, self.session, self.pauses, self.now, believed)

    @property
    def external(self) -> tuple[IncidentStatus, ...]:
        """What others say on the node, by the policy, where that has a time of its own."""
        if self.node is None or self.policy is None:
            return ()
        taints = self.device_taints
        return external.external_of(self.node, self.policy, self.now, {}, taints).incidents

    @property
    def sight(self) -> CauseContext:
        """The facts that decide which causes of a session are open."""
        return CauseContext(
            node=self.node,
            health=self.health,
            stale=self.stale,
            policy=self.policy or Policy(),
            now=self.now,
            device_taints=self.device_taints,
        )

    def observed(self, node: FreshNode, policy: Policy) -> NodeObservation:
        """Return the node without an open session as the rules observe it, without maintenance
        Leases, which operators may not read.
        """
        return NodeObservation(
            name=self.name,
            node=node,
            health=self.health,
            selected=observation.selects_node(policy, node),
            stale=self.stale if self.health is not None else Staleness.NO_HEALTH_STATUS,
            external=external.external_of(node, policy, self.now, {}, self.device_taints),
            device_taints=self.device_taints,
            pauses=self.pauses,
            owner=exclusions.working_owner(node, None, self.now),
            siblings=self.sessions,
        )

    @property
    def opening(self) -> Opening | None:
        """Whether a session opens for the node, or why not; None where no fault asks for one."""
        policy = self.policy or Policy()
        if self.node is None or not actionable(self.health, self.external, policy):
            return None
        return opening(self.observed(self.node, policy), self.now, policy)

    @property
    def stale(self) -> str:
        """Why the health status cannot be acted on; "" when it can, and where there is none."""
        return self.health_now.why if self.health is not None else ""

    @property
    def health_now(self) -> HealthNow:
        """How its GPUs are, by the one rule."""
        agents = None if self.agents is None else {agent.uid: agent for agent in self.agents}
        return health_now(self.node, self.health, agents, self.now)


def open_session(sessions: Sequence[QuarantineView]) -> QuarantineView | None:
    """The session that has not ended; the oldest where one is still to join another."""
    return next((session for session in sessions if observation.is_open(session)), None)


async def look_at(cluster: Cluster, name: str, *, namespace: str) -> NodeLook:
    """Read it all; CommandError only where nothing at all can be read."""
    unknown: list[str] = []

    async def allowed(call: Awaitable[T], what: str) -> T | None:
        try:
            return await call
        except CommandError as error:
            if not error.forbidden:
                raise
            unknown.append(what)
            return None

    sessions = await cluster.sessions(name)
    node = await allowed(
        cluster.node(name), "the node (get nodes): its taints and cordons and labels"
    )
    hidden = bool(unknown)
    health = await cluster.health(name)
    agents = await allowed(cluster.agents(name), "pods (list pods): whether its agent runs")
    policy = await in_force.policy_in_force(cluster, namespace)
    unknown += [policy.doubt] if policy.doubt else []
    leader = await in_force.leadership(cluster, namespace)
    now = cluster.now()
    pauses = [
        pause
        for pause in await cluster.once("pauses", cluster.pauses)
        if not exclusions.pause_over(pause, now)
        and (node is None or exclusions.pause_means(pause, node))
    ]
    records = "records (get gpurecords): what failed again and again"
    kept = await allowed(_records(cluster, name, health), records) or ()
    domains: Sequence[ComputeDomain] | None = ()
    if node is not None and names.LABEL_NVLINK_DOMAIN in node.labels:
        domains = await allowed(compute_domains(cluster, {name: node.labels}), UNKNOWN_JOBS)
    taints: Mapping[str, Mapping[str, NodeTaints]] = {}
    if policy.policy is not None and node is not None:
        taints = await tainted_devices.by_node(cluster, policy.policy.of(node.labels), name)
    return NodeLook(
        name=name,
        now=now,
        node=node,
        node_hidden=hidden,
        health=health,
        sessions=tuple(sessions),
        repeat_offenders=tuple(
            o.status for o in kept if gpu_record.is_repeat_offender(o.status, now)
        ),
        pauses=tuple(sorted(pauses, key=lambda pause: pause.metadata.name)),
        agents=None if agents is None else tuple(agents),
        policy=policy.policy.of(node.labels) if policy.policy and node else policy.policy,
        leader=leader,
        device_taints=taints.get(name, {}),
        compute_domains=tuple(domains or ()),
        unknown=tuple(dict.fromkeys(unknown)),
    )


async def compute_domains(
    cluster: Cluster, labels: Mapping[str, Mapping[str, str]]
) -> tuple[ComputeDomain, ...]:
    """Return the ComputeDomains of NVIDIA's DRA driver with one of these nodes; none where the API
    is not served. `labels` are those of each node.
    """
    try:
        found = await cluster.everything(dra.PATH, {})
    except CommandError as error:
        if error.forbidden:
            raise
        return ()
    return dra.used_on(found, labels)


async def _records(
    cluster: Cluster, name: str, health: HealthView | None
) -> tuple[RecordView, ...]:
    """The records of the node and its GPUs; CommandError where this operator may not read them.
    What else is wrong with them, such as a release that knew none, keeps no answer back.
    """
    uuids = [gpu.uuid for gpu in health.status.gpus[:_MOST_GPUS]] if health is not None else []
    try:
        found = [await cluster.record(record) for record in gpu_record.record_names(name, uuids)]
    except CommandError as error:
        if error.forbidden:
            raise
        return ()
    return tuple(one for one in found if one is not None)


async def existing_node(cluster: Cluster, name: str) -> FreshNode:
    """The node, or CommandError that reports it."""
    node = await cluster.node(name)
    if node is not None:
        return node
    if past := await cluster.sessions(name):
        # Another node of a like name is not what was meant: this one has been here.
        known = f"its last session is {phase_text(past[-1])}"
        raise CommandError(f"node {name} no longer exists, {known}: kubectl gpuward why {name}")
    raise CommandError(f"node {name} not found{await nearest(cluster, name)}")


async def nearest(cluster: Cluster, name: str) -> str:
    """`; did you mean NAME?` of nodes that begin so or are spelled alike, or where to look."""
    import difflib

    try:
        # Nothing in Kubernetes is distinguished by capitals alone.
        known = {node.name.lower(): node.name for node in await cluster.nodes()}
    except CommandError:
        known = {}
    begun = name.lower()
    longer = sorted(one for one in known if one.startswith(begun))
    near = longer or difflib.get_close_matches(begun, known, n=1, cutoff=0.75)
    return (
        f"; did you mean {known[near[0]]}?" if near else "; list the nodes with kubectl get nodes"
    )


def phase_text(session: QuarantineView) -> str:
    """The phase, and whether it is only a shadow."""
    phase = session.status.phase or "Pending"
    return f"{phase} (Shadow)" if session.status.mode == Mode.SHADOW else phase


def leading_reason(session: QuarantineView) -> str:
    """The most severe cause, and how many more there are: the first may be the least severe."""
    causes = session.spec.causes
    more = f" +{len(causes) - 1}" if len(causes) > 1 else ""
    return f"{quarantine.most_severe_reason(causes)}{more}"


def has_gpus(node: NodeView) -> bool:
    """Return whether a label or a resource shows that the node has NVIDIA GPUs. A resource with
    0 left counts: MIG leaves 0 full GPUs, and a failing device plugin leaves 0 of all.
    """
    labels = node.labels
    labelled = any(
        key in labels and value in {"", labels[key]} for key, value in GPU_LABELS.items()
    )
    return labelled or any(name.startswith(_RESOURCES) for name in node.status.allocatable)
