"""Everything `why` may say about one node, read from the API server on behalf of a person.

What the person's permissions do not show stays unknown and is named; the rest is still told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.leading import Unled, leaders_word_of, unled_since
from remediator.kubectl.ready.policy_said import policy_of, unread_said, unusable
from remediator.view.people import part_of_people
from rules.api.health import IncidentStatus
from rules.api.leaders_word import WELL, LeadersWord
from rules.api.mark import marked
from rules.api.nodes import AgentPod, FreshNode, HealthView, PauseView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.drain.daemon_sets import untolerating
from rules.fleet.health_now import HealthNow, health_now
from rules.ledger.places import Moved, came_from
from rules.ledger.record import RecordStatus, RecordView, gpu_record_name, record_names
from rules.ledger.verdict import is_repeat_offender
from rules.policy.policy import Policy
from rules.policy.shadow import ShadowWords, by_accident, shadow_of
from rules.session.causes import CauseSight
from rules.session.external import external_of
from rules.session.observation import (
    NodeObservation,
    Staleness,
    is_open,
    pause_means,
    pause_over,
    selects_node,
)
from rules.session.owners import working_owner

T = TypeVar("T")
_MOST_GPUS: Final = 16
RECORDS: Final = "records (get gpurecords): what failed again and again"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    """One node as one person may see it, at one moment."""

    name: str
    now: float
    node: FreshNode | None
    """None: it is gone, or may not be read by this person (`node_hidden`)."""
    node_hidden: bool = False
    health: HealthView | None = None
    sessions: tuple[QuarantineView, ...] = ()
    """Oldest first."""
    repeat_offenders: tuple[RecordStatus, ...] = ()
    """What failed here again and again: its GPUs, the node itself."""
    moved: tuple[Moved, ...] = ()
    """In which nodes GPUs of this one were before."""
    accused: tuple[RecordStatus, ...] = ()
    """The records of GPUs that an active incident names."""
    pauses: tuple[PauseView, ...] = ()
    """Those that cover it now."""
    pauses_over: tuple[PauseView, ...] = ()
    """Those that covered it, and are over."""
    """Those that cover the node now."""
    agents: tuple[AgentPod, ...] | None = None
    """The agent's pods on the node; None where the person may not list pods."""
    policy: Policy | None = None
    untolerating: tuple[str, ...] = ()
    """DaemonSets that could not come back on the marked node."""
    unled: Unled | None = None
    """Since when no remediator has led; None while one leads or nobody can tell."""
    word: LeadersWord = WELL
    """What the remediator that leads says of itself."""
    unseen: tuple[str, ...] = ()
    """What could not be read, and what to ask for."""

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
    def shadow_words(self) -> ShadowWords | None:
        """Why that is so, and what ends it; None where it is not, or nobody may know."""
        return shadow_of(self.policy)

    @property
    def ends_by_mode(self) -> str:
        """Why the open session ends by itself within seconds and takes with it what people add: it
        is one of another mode than the policy's (`rules.session.decide`); "" where it does not.
        """
        if self.session is None or self.policy is None:
            return ""
        mode, which = self.session.status.mode, f"session {self.session.name} of {self.name}"
        if mode == Mode.SHADOW and not self.policy_is_shadow:
            return f"{which} is one of Shadow and ends, since the policy enforces now"
        untouched = self.session.status.phase == Phase.PENDING
        untouched = untouched and not (self.node is not None and marked(self.node))
        decided = self.policy_is_shadow and not by_accident(self.policy)
        if mode == Mode.ENFORCE and decided and untouched:
            return f"{which} ends, since the policy is Shadow now"
        return ""

    @property
    def people(self) -> tuple[str, ...]:
        """What people decided about the node (held, paused, opted out), what waits for them."""
        believed = self.health if not self.stale else None
        return part_of_people(self.node, self.session, self.pauses, self.now, believed)

    @property
    def external(self) -> tuple[IncidentStatus, ...]:
        """What others say on the node, by the policy, where that has a time of its own."""
        if self.node is None or self.policy is None:
            return ()
        return external_of(self.node, self.policy, self.now, {}).incidents

    @property
    def sight(self) -> CauseSight:
        """What says which causes of a session hold; without a policy, the default one."""
        return CauseSight(
            node=self.node,
            health=self.health,
            stale=self.stale,
            policy=self.policy or Policy(),
            now=self.now,
        )

    def observed(
        self, node: FreshNode, policy: Policy, session: QuarantineView | None = None
    ) -> NodeObservation:
        """What the rules see of the node, and of its session; not what a maintenance Lease says,
        which people may not read.
        """
        return NodeObservation(
            name=self.name,
            node=node,
            health=self.health,
            selected=selects_node(policy, node),
            stale=self.stale if self.health is not None else Staleness.NO_VERDICT,
            external=external_of(node, policy, self.now, {}),
            pauses=self.pauses,
            owner=working_owner(node, None, self.now),
            siblings=tuple(one for one in self.sessions if one is not session),
        )

    @property
    def stale(self) -> str:
        """Why the verdict cannot be acted on; "" when it can, and where there is none."""
        return self.health_now.why if self.health is not None else ""

    @property
    def health_now(self) -> HealthNow:
        """How its GPUs are, by the one rule."""
        agents = None if self.agents is None else {agent.uid: agent for agent in self.agents}
        return health_now(self.node, self.health, agents, self.now)


def open_session(
    sessions: tuple[QuarantineView, ...] | list[QuarantineView],
) -> QuarantineView | None:
    """The session that has not ended; the oldest where one is still to join another."""
    return next((session for session in sessions if is_open(session)), None)


async def _of_node(
    cluster: Cluster, name: str, health: HealthView | None
) -> tuple[RecordView, ...]:
    """The records of the node and its GPUs."""
    uuids = [gpu.uuid for gpu in health.status.gpus[:_MOST_GPUS]] if health is not None else []
    return await readable_records(cluster, record_names(name, uuids))


async def readable_records(cluster: Cluster, names: Iterable[str]) -> tuple[RecordView, ...]:
    """Those of the records that there are; CommandError where this person may not read them.

    What else is wrong with them, such as a release that knew none, keeps no answer back.
    """
    try:
        found = [await cluster.record(name) for name in names]
    except CommandError as error:
        if error.forbidden:
            raise
        return ()
    return tuple(one for one in found if one is not None)


async def _accused(cluster: Cluster, health: HealthView | None) -> tuple[RecordStatus, ...]:
    """The records of GPUs that an active incident names and the verdict shows no more."""
    if health is None:
        return ()
    there = {gpu.uuid for gpu in health.status.gpus}
    named = {uuid for one in health.status.incidents if one.active for uuid in one.gpus}
    gone = sorted(named - there)[:_MOST_GPUS]
    found = await readable_records(cluster, map(gpu_record_name, gone))
    return tuple(one.status for one in found)


async def look_at(cluster: Cluster, name: str, *, namespace: str) -> NodeLook:
    """Read it all; CommandError only where nothing at all can be read."""
    unseen: list[str] = []

    async def allowed(call: Awaitable[T], what: str) -> T | None:
        try:
            return await call
        except CommandError as error:
            if not error.forbidden:
                raise
            unseen.append(what)
            return None

    sessions = await cluster.sessions(name)
    node = await allowed(cluster.node(name), "the node (get nodes): its marks and labels")
    hidden = bool(unseen)
    health = await cluster.health(name)
    agents = await allowed(cluster.agents(name), "pods (list pods): whether its agent runs")
    try:
        policy = await allowed(policy_of(cluster, namespace), "the policy (get configmaps)")
    except CommandError as error:
        # A policy that cannot be read is one more thing to know, not the end of the answer.
        policy = None
        said = await unusable(error, cluster, namespace) if error.unusable else ""
        unseen.append(said or f"the policy: {error}")
    word = await leaders_word_of(cluster, namespace)
    if unread := unread_said(word):
        unseen.append(unread)
    now = cluster.now()
    paused = await cluster.once("pauses", cluster.pauses)
    pauses = [p for p in paused if not pause_over(p, now)]
    over = [p for p in paused if p not in pauses]
    if node is not None:
        pauses = [p for p in pauses if pause_means(p, node)]
    over = [p for p in over if node is not None and pause_means(p, node)]
    lacking: tuple[str, ...] = ()
    if node is not None and marked(node):
        daemon_sets = await allowed(
            cluster.once("DaemonSets", cluster.daemon_sets),
            "DaemonSets (list): which could not come back",
        )
        lacking = untolerating(node, daemon_sets or ())
    kept = await allowed(_of_node(cluster, name, health), RECORDS) or ()
    accused = await allowed(_accused(cluster, health), RECORDS) or ()
    return NodeLook(
        name=name,
        now=now,
        node=node,
        node_hidden=hidden,
        health=health,
        sessions=tuple(sessions),
        repeat_offenders=tuple(o.status for o in kept if is_repeat_offender(o.status, now)),
        moved=came_from(name, health, kept),
        accused=accused,
        pauses=tuple(sorted(pauses, key=lambda pause: pause.metadata.name)),
        pauses_over=tuple(over),
        agents=None if agents is None else tuple(agents),
        policy=policy,
        untolerating=lacking,
        word=word,
        unled=await cluster.once("unled", lambda: unled_since(cluster, namespace)),
        unseen=tuple(dict.fromkeys(unseen)),
    )
