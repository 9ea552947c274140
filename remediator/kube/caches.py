"""All watches of the remediator, with a listener for each kind of change.

The loop reads these caches. There is no cache of pods: a drain watches the
pods of its node (`remediator.controller.pod_watch`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from remediator.kube import resources
from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.kube.isolation import Isolation
from remediator.kube.resources import AgentPodObject
from remediator.kube.watch import Reflector
from remediator.kube.watch_events import Resource
from rules.api import names, object_name
from rules.api.evidence import EvidenceMeta
from rules.api.gpu_record import RecordView
from rules.api.metadata import ObjectMeta
from rules.api.nodes import (
    AgentPod,
    HealthView,
    ManagedNode,
    NodeView,
    PauseView,
    QuarantineView,
)
from rules.api.pods import DaemonSetView
from rules.api.workloads import PdbView
from rules.text.tolerant import Sharing

# Pauses must be noticed: they are listed again after this long without a watch event.
PAUSES_LISTED_S = 20.0
_POD_FRESH_S = 10.0
# A watch of nodes replaces a read of the node if it had an event in this time: before an eviction
# (a read may take as long, `gateway.LONGEST_READ_S`), and before a release. It must have delivered
# own writes within `_OWED_S`.
_EVICTION_S, _RELEASE_S, _OWED_S = 5.0, 1.0, 1.0


def _nobody(*_: object) -> None:
    """The default listener: does nothing."""


@dataclass(slots=True, kw_only=True)
class Listeners:
    """Listeners by kind of change, set when the parts of the replica are created."""

    node: Callable[[str, NodeView | None, NodeView | None], None] = _nobody
    quarantined: Callable[[str, NodeView | None, NodeView | None], None] = _nobody
    health: Callable[[str, HealthView | None], None] = _nobody
    session: Callable[[QuarantineView | None, QuarantineView | None], None] = _nobody
    pause: Callable[[PauseView | None, PauseView | None], None] = _nobody
    pdb: Callable[[str], None] = _nobody
    agent: Callable[[str], None] = _nobody
    evidence: Callable[[str], None] = _nobody


class Caches:
    """The reflectors of all watched resources."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        *,
        node_selector: str,
        namespace: str,
        to: Listeners,
        isolation: Isolation | None = None,
    ) -> None:
        self.agents: dict[str, AgentPod] = {}
        """Agent pods by UID."""
        self._to = to
        reflector = partial(
            Reflector, api, clock, isolation=isolation or Isolation(clock), sharing=Sharing()
        )
        self.nodes: Reflector[NodeView] = reflector(
            nodes_selected(node_selector), NodeView, lambda *change: to.node(*change)
        )
        # Taint and cordon must be removed also from nodes that the policy no longer selects.
        # Quarantined nodes that it selects are watched twice, because no selector can exclude
        # them, and because only these are kept with their managers.
        self.quarantined: Reflector[ManagedNode] = reflector(
            Resource(
                name="quarantined nodes",
                path=resources.NODES,
                query={"labelSelector": names.LABEL_QUARANTINE},
            ),
            ManagedNode,
            lambda *change: to.quarantined(*change),
        )
        self.healths: Reflector[HealthView] = reflector(
            _custom("gpunodehealths", {"fieldSelector": "status.health!=Healthy"}),
            HealthView,
            lambda key, _, after: to.health(key, after),
        )
        self.quarantines: Reflector[QuarantineView] = reflector(
            _custom("gpuquarantines"),
            QuarantineView,
            lambda _, before, after: to.session(before, after),
        )
        self.pauses: Reflector[PauseView] = reflector(
            _custom("gpuwardpauses"),
            PauseView,
            lambda _, before, after: to.pause(before, after),
            silence_s=PAUSES_LISTED_S,
        )
        self.pdbs: Reflector[PdbView] = reflector(
            Resource(name="poddisruptionbudgets", path=resources.PDBS),
            PdbView,
            lambda key, *_: to.pdb(key),
        )
        # Not in `all`: gpuward works without records, and reads evidence that no watch shows.
        self.records: Reflector[RecordView] = reflector(_custom("gpurecords"), RecordView, _nobody)
        self.evidences: Reflector[EvidenceMeta] = reflector(
            replace(_custom("gpuevidences"), metadata_only=True),
            EvidenceMeta,
            lambda key, *_: to.evidence(key),
        )
        self.daemon_sets: Reflector[DaemonSetView] = reflector(
            Resource(name="daemonsets", path=resources.DAEMON_SETS), DaemonSetView, _nobody
        )
        agent_pods = Resource(
            name="agent pods",
            path=f"/api/v1/namespaces/{namespace}/pods",
            query={"labelSelector": resources.AGENT_SELECTOR},
        )
        self.agent_pods: Reflector[AgentPodObject] = reflector(
            agent_pods, AgentPodObject, self._agent_changed
        )

    @property
    def all(self) -> tuple[Reflector[Any], ...]:
        """Every reflector that must be complete before the replica acts."""
        return (
            self.nodes,
            self.quarantined,
            self.healths,
            self.quarantines,
            self.pauses,
            self.pdbs,
            self.daemon_sets,
            self.agent_pods,
        )

    @property
    def followed(self) -> tuple[Reflector[Any], ...]:
        """Every reflector: `all`, the records and the evidence."""
        return (*self.all, self.records, self.evidences)

    def node_now(self, name: str) -> NodeView | None:
        """The node of an eviction, if its watch is recent; else None."""
        return self.nodes.shown(name, heard_s=_EVICTION_S, owed_s=_OWED_S)

    def managed_now(self, name: str) -> ManagedNode | None:
        """The quarantined node with its managers, if both watches show the same version and the
        one of all nodes is recent enough for a release; else None.
        """
        node = self.nodes.shown(name, heard_s=_RELEASE_S, owed_s=_OWED_S)
        managed = self.quarantined.items.get(name)
        if node is None or managed is None:
            return None
        same = node.metadata.resource_version == managed.metadata.resource_version
        return managed if same else None

    def select(self, selector: str) -> None:
        """Change the label selector of the node watch."""
        if self.nodes.resource != (selected := nodes_selected(selector)):
            self.nodes.use(selected)

    @property
    def rewound_at(self) -> float:
        """CLOCK_BOOTTIME when a cache last saw the API server return to an older state."""
        return max(cache.rewound_at for cache in self.followed)

    def problem(self) -> str:
        """Why a cache is not complete, one sentence; "" if all are."""
        for cache in self.all:
            if not cache.synced:
                return cache.problem or f"The first list of {cache.resource.name} is under way."
        return ""

    def too_old(self) -> str:
        """Why a cache is too old to allow a disruption, a clause; "" if all are fresh."""
        for cache in self.all:
            if why := cache.too_old():
                return why
        return ""

    def _agent_changed(
        self, _: str, before: AgentPodObject | None, after: AgentPodObject | None
    ) -> None:
        if before is not None:
            self.agents.pop(before.metadata.uid, None)
        if after is not None:
            self.agents[after.metadata.uid] = after.as_agent()
        node = (after or before or _NO_POD).spec.node_name
        if node:
            self._to.agent(node)


_NO_POD = AgentPodObject(metadata=ObjectMeta())


def nodes_selected(selector: str) -> Resource:
    """The nodes that the policy selects."""
    return Resource(
        name="nodes", path=resources.NODES, query={"labelSelector": selector} if selector else {}
    )


def _custom(plural: str, query: dict[str, str] | None = None) -> Resource:
    return Resource(
        name=plural,
        path=f"{resources.CUSTOM}/{plural}",
        query=query or {},
        crd=f"{plural}.{names.GROUP}",
    )


class PublisherPods:
    """Reads agent pods that the watch of the own namespace does not show into `caches.agents`.

    A GPUNodeHealth names its publisher by namespace, name and UID. The manifests install agents in
    the namespace of the remediator. Agents installed elsewhere are read here by that name, so that
    a running publisher is never reported as gone.
    """

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._clock = clock
        self._caches = caches
        self._read_at: dict[str, float] = {}

    async def read(self, health: HealthView) -> None:
        """Read the publisher pod if no watch shows it and the last read is old."""
        publisher = health.status.publisher
        uid = publisher.pod_uid
        namespace, _, name = publisher.pod.partition("/")
        if not uid or not name or self.watched(uid):
            return
        now = self._clock.elapsed()
        if now - self._read_at.get(uid, float("-inf")) < _POD_FRESH_S:
            return
        if not object_name.is_object_name(namespace) or not object_name.is_object_name(name):
            return
        path = object_name.api_path("/api/v1/namespaces", namespace, "pods", name)
        try:
            pod = await self._api.get(path, AgentPodObject)
        except ApiError as error:
            if error.answer.code not in {403, 404}:
                raise
            pod = None
        self._read_at[uid] = now
        if pod is not None and pod.metadata.uid == uid:
            self._caches.agents[uid] = pod.as_agent()
        else:
            self._caches.agents.pop(uid, None)

    def watched(self, uid: str) -> bool:
        """Whether the watch of the own namespace shows the pod."""
        return uid in self._caches.agents and uid not in self._read_at
