"""Periodic sweeps of the leader: silent agents, deletion of old history, tests of new nodes.

The rules are `rules.fleet.node_health`, `rules.session.history` and `rules.fleet.new_nodes`.
`Housekeeping` reads few GPUNodeHealth objects: none of a node with a Ready agent pod, and that of
an agent with heartbeats when the next heartbeat is overdue. It rarely reads a node that has no
object or whose agent is known to be silent, because a change of the node or its agent pod triggers
a read (`check_soon`). `NewNodeTests` creates test Jobs and reads their results if the policy has
them.
"""

from http import HTTPStatus

from remediator.kube import resources
from remediator.kube.answer import ApiError, Result
from remediator.kube.caches import PublisherPods
from remediator.world import Edge, EdgePart
from rules.api import object_name
from rules.api.nodes import HealthView, NodeView
from rules.api.pods import PodView
from rules.api.repair_writes import SetValidated
from rules.fleet import new_nodes, node_health
from rules.session import history, observation
from rules.session.repair import evidence
from rules.session.validation.jobs import (
    LABEL_JOB,
    LABEL_NEW_NODE,
    JobSeen,
    JobView,
    PodTemplateView,
)

_SWEEP_S = 20.0
_CHECK_AGAIN_S = 60.0
# Nothing to read; a watch shows most changes, and this read finds the others.
_NOTHING_NEW_S = 600.0
# The others are read by the next sweep: at most 10 reads a second.
_READS_PER_SWEEP = 200
# The watches know both, so that it costs no call.
_HISTORY_S = 60.0
# The next sweep deletes the rest.
_DELETIONS_PER_SWEEP = 500
# A pod that does not start soon found its node busy, so a sweep must not be much rarer.
_NEW_NODES_S = 30.0
# Up to 63 characters each: 100 of them are a URL that every proxy takes.
_NAMES_PER_LIST = 100


class Housekeeping(EdgePart):
    """Sweeps of one process; they run on the leader only."""

    def __init__(
        self,
        edge: Edge,
        *,
        publishers: PublisherPods,
        deletions_per_sweep: int = _DELETIONS_PER_SWEEP,
    ) -> None:
        super().__init__(edge)
        self._publishers = publishers
        self._deletions_per_sweep = deletions_per_sweep
        self._check_at: dict[str, float] = {}
        self._silent: set[str] = set()
        self._reported_silent: set[str] = set()
        """Nodes with `silentSince` in their GPUNodeHealth."""
        self._remembered = False
        self._history_at = float("-inf")
        self._evidence: set[str] = set()
        """Names of the evidence in the last sweep that was not deleted since."""

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            if self._may_act():
                await self.sweep()

    def check_soon(self, node: str) -> None:
        """Check the node in the next sweep: its agent pod or its health label changed."""
        self._check_at.pop(node, None)

    async def sweep(self) -> None:
        """Check agents that may be silent and, at intervals, delete old history."""
        await self._agents()
        if self._clock.elapsed() - self._history_at >= _HISTORY_S:
            self._history_at = self._clock.elapsed()
            with self._isolation.guard("housekeeping", "the history"):
                await self._history()
            with self._isolation.guard("housekeeping", "evidence"):
                await self._evidence_history()

    async def _agents(self) -> None:
        ready = {
            agent.node
            for uid, agent in self._world.caches.agents.items()
            if agent.ready and self._publishers.watched(uid)
        }
        nodes = self._world.caches.nodes.items
        self._silent &= nodes.keys() - ready
        now = self._clock.now()
        if ready and not self._remembered:
            # Of nodes whose agent is not ready each health status is checked anyway.
            with self._isolation.guard("housekeeping", "silent health statuses"):
                await self._remember()
        quiet = {n for n in nodes if n not in ready}
        to_read = {n for n in quiet if self._check_at.get(n, 0.0) <= now}
        # Agents that are Ready again: clear `silentSince` if the agent has not done so.
        to_read |= self._reported_silent & nodes.keys() & ready
        for name in sorted(to_read)[:_READS_PER_SWEEP]:
            with self._isolation.guard("housekeeping", f"node {name}"):
                await self._asked(name)
        self._check_at = {n: at for n, at in self._check_at.items() if n in nodes}
        self._metrics.agents_silent.set(len(self._silent))

    async def _asked(self, name: str) -> None:
        """Read the GPUNodeHealth of one node and check it."""
        now = self._clock.now()
        self._check_at[name] = now + _CHECK_AGAIN_S
        try:
            health = await self._api.get(object_name.api_path(resources.HEALTHS, name), HealthView)
        except ApiError as error:
            if error.answer.code != 404:
                raise
            self._check_at[name] = now + _NOTHING_NEW_S
            return
        await self._agent(name, health)

    async def _agent(self, name: str, health: HealthView) -> None:
        now = self._clock.now()
        await self._publishers.read(health)
        heard_at = health.heard_at if health.status.publisher.heartbeat else None
        if heard_at is not None:
            # A heartbeat in the future must not delay the next check for ever.
            overdue_at = min(heard_at, now) + observation.HEARTBEAT_FRESH_S
            self._check_at[name] = max(now + _CHECK_AGAIN_S, overdue_at)
        agents, since = self._world.caches.agents, self._world.observing_since
        await self._say(name, health, now)
        node = self._world.caches.nodes.items.get(name)
        if node is None or node_health.silent_since(health, agents, since, now) is None:
            self._silent.discard(name)
            return
        self._silent.add(name)
        write = node_health.set_unknown(node, health, agents, since, now)
        if write is None:
            self._check_at[name] = now + _NOTHING_NEW_S
        else:
            await self._gateway.send(write)

    async def _say(self, name: str, health: HealthView, now: float) -> None:
        """Set or clear `silentSince`; a node that has it is checked again until it is cleared."""
        agents, since = self._world.caches.agents, self._world.observing_since
        write = node_health.set_silent(health, agents, since, now)
        silent = bool(health.status.silent_since)
        if write is not None and (await self._gateway.send(write)).result is Result.DONE:
            silent = bool(write.since)
        if silent:
            self._reported_silent.add(name)
        else:
            self._reported_silent.discard(name)

    async def _remember(self) -> None:
        """List once the few objects on which an earlier process left `silentSince`.

        From the API server's cache, because a server that reads etcd for it reads every object.
        """
        query = {"fieldSelector": "status.silentSince!=", "resourceVersion": "0"}
        try:
            found = await self._api.items(resources.HEALTHS, HealthView, query=query, limit=0)
        except ApiError as error:
            # The CRD of an older release does not have this selectable field.
            self._remembered = error.answer.code == HTTPStatus.BAD_REQUEST
            raise
        self._reported_silent |= {health.metadata.name for health in found.found}
        self._remembered = True

    async def _history(self) -> None:
        sessions = list(self._world.caches.quarantines.items.values())
        policy = self._policy()
        outlasted = history.expired_sessions(sessions, policy, self._clock.now())
        for deletion in outlasted[: self._deletions_per_sweep]:
            if self._policy() is not policy:
                # A new policy may keep these sessions.
                return
            sent = await self._gateway.send(deletion)
            if sent.result not in {Result.DONE, Result.GONE}:
                # The API server will refuse the next deletions, too.
                return
        if len(outlasted) > self._deletions_per_sweep:
            self._history_at = float("-inf")

    async def _evidence_history(self) -> None:
        """Delete evidence that is older than the history."""
        policy, kept = self._policy(), self._world.caches.evidences
        if not kept.synced:
            return
        there = set(kept.items)
        if len(lost := self._evidence - there) > 1:
            # A single one may have been deleted by an operator.
            self._metrics.objects_lost.labels("GPUEvidence").inc(len(lost))
        self._evidence = there
        sessions = self._world.caches.quarantines.items
        found = (each.metadata for each in kept.items.values())
        deletions = evidence.expired_evidence(found, sessions, self._clock.now())
        for deletion in deletions[: self._deletions_per_sweep]:
            if self._policy() is not policy:
                return
            await self._gateway.send(deletion)
            self._evidence.discard(deletion.name)


class NewNodeTests(EdgePart):
    """Tests new nodes if the policy asks for it (`rules.fleet.new_nodes`), on the leader only."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge)
        self._tried: dict[str, float] = {}
        """When the test of a node last failed to start; a new process tries once more."""

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(_NEW_NODES_S)
            policies = self._policy().policies
            if not self._may_act() or not any(p.validate.tests_new_nodes for p in policies):
                continue
            with self._isolation.guard("new_nodes", "the tests of new nodes"):
                await self._sweep()

    async def _sweep(self) -> None:
        jobs = await self._jobs()
        step = new_nodes.follow(self._world.snapshot(), jobs)
        failed: set[str] = set()
        for write in step.writes:
            # In order: the Event of a test comes after its result.
            if write.node in failed:
                continue
            sent = await self._gateway.send(write)
            if not sent.done:
                failed.add(write.node)
            elif isinstance(write, SetValidated) and sent.answer is not None:
                # Keep the result at once, or this sweep would test the node again.
                self._world.learn_node(sent.answer.decode(NodeView))
        for name in step.in_vain:
            self._tried[name] = self._clock.now()
        names = new_nodes.due(self._world.snapshot(), jobs, self._tried)
        namespace = self._world.snapshot().own_namespace
        templates: dict[str, PodTemplateView] = {}
        for name in names:
            tests = self._world.policy_of(name).validate
            if tests.template not in templates:
                path = object_name.api_path(
                    "/api/v1/namespaces", namespace, "podtemplates", tests.template
                )
                templates[tests.template] = await self._api.get(path, PodTemplateView)
            template = templates[tests.template]
            made = new_nodes.making(name, tests, template.template, self._world.snapshot())
            if made is None or not (await self._gateway.send(made)).done:
                self._tried[name] = self._clock.now()

    async def _jobs(self) -> tuple[JobSeen, ...]:
        namespace = self._world.snapshot().own_namespace
        query = {"labelSelector": f"{LABEL_NEW_NODE}=true"}
        path = object_name.api_path("/apis/batch/v1/namespaces", namespace, "jobs")
        jobs = (await self._api.items(path, JobView, query=query)).found
        snapshot = self._world.snapshot()
        asking = [job.metadata.name for job in jobs if new_nodes.asks_for_pods(job, snapshot)]
        pods: dict[str, list[PodView]] = {}
        for start in range(0, len(asking), _NAMES_PER_LIST):
            names = asking[start : start + _NAMES_PER_LIST]
            found = await self._api.items(
                object_name.api_path("/api/v1/namespaces", namespace, "pods"),
                PodView,
                query={"labelSelector": f"{LABEL_JOB} in ({','.join(names)})"},
            )
            for pod in found.found:
                pods.setdefault(pod.metadata.labels.get(LABEL_JOB, ""), []).append(pod)
        return tuple(
            JobSeen(name=name, job=job, pods=tuple(pods.get(name, ())))
            for job in jobs
            if (name := job.metadata.name)
        )
