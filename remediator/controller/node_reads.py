"""Jobs that test nodes: read while a session waits for one, and made for new nodes.

There is no watch: a test is under way on a few nodes at a time, for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.world import Edge, EdgePart
from rules.api.nodes import NodeView, QuarantineView
from rules.api.object_name import api_path
from rules.api.pods import PodView
from rules.api.repair_writes import SetValidated
from rules.fleet.new_nodes import asks_for_pods, due, follow, making
from rules.session.validation.jobs import (
    LABEL_JOB,
    LABEL_NEW_NODE,
    JobSeen,
    JobView,
    PodTemplateView,
)
from rules.session.validation.verdicts import under_way

T = TypeVar("T")

# Of a Job that is there, news come at the pace of its pod; what we wrote ourselves is read at
# once.
_FRESH_S = 2.0
_NO_RIGHT = 403


class JobLook:
    """Reads what `rules.session.validation.result` judges, by node."""

    def __init__(self, api: Api, clock: Clock, *, namespace: Callable[[], str]) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._seen: dict[str, tuple[float, JobSeen]] = {}

    def seen(self, node: str) -> JobSeen | None:
        """What was read last; None where nothing is to be read."""
        known = self._seen.get(node)
        return known[1] if known is not None else None

    def forget(self, node: str) -> None:
        """Read again, or never again."""
        self._seen.pop(node, None)

    async def look(self, node: str, sessions: Iterable[QuarantineView]) -> None:
        """Read the Job of the test that is under way; ApiError where the API server is away."""
        test = next((t for s in sessions if (t := under_way(s.status)) is not None), None)
        if test is None:
            self.forget(node)
            return
        known = self._seen.get(node)
        fresh = known is not None and self._clock.elapsed() - known[0] < _FRESH_S
        if known is not None and fresh and known[1].name == test.object:
            return
        try:
            seen = await self._read(test.object, test.template)
        except ApiError as error:
            if error.answer.code != _NO_RIGHT:
                raise
            why = f"the remediator may not read it ({error.answer.sentence()[:200]})"
            seen = JobSeen(name=test.object, unread=why)
        self._seen[node] = self._clock.elapsed(), seen

    async def _read(self, name: str, template: str) -> JobSeen:
        namespace = self._namespace()
        jobs = api_path("/apis/batch/v1/namespaces", namespace, "jobs")
        job = await self._found(api_path(jobs, name), name, JobView)
        if job is None:
            if not template:
                # An older definition of GPUQuarantine did not keep it.
                return JobSeen(name=name)
            templates = api_path("/api/v1/namespaces", namespace, "podtemplates")
            found = await self._found(api_path(templates, template), template, PodTemplateView)
            return JobSeen(name=name, template=found)
        pods = await self._api.items(
            api_path("/api/v1/namespaces", namespace, "pods"),
            PodView,
            query={"labelSelector": f"{LABEL_JOB}={name}"},
        )
        return JobSeen(name=name, job=job, pods=pods.found)

    async def _found(self, path: str, name: str, kind: type[T]) -> T | None:
        try:
            return await self._api.get(path, kind)
        except ApiError as error:
            if not error.answer.says_gone(name):
                raise
            return None


# A pod that does not start soon found its node busy, so a sweep must not be much rarer.
_SWEEP_S = 30.0

# Up to 63 characters each: 100 of them are a URL that every proxy takes.
_NAMES_PER_LIST = 100


class NewNodeTests(EdgePart):
    """Tests new nodes where the policy asks for it (`rules.fleet.new_nodes` decides); only the
    leader's sweeps do anything.
    """

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge)
        self._tried: dict[str, float] = {}
        """When a node was tried in vain; a new process tries once more."""

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            if not self._may_act() or not self._policy().validate.tests_new_nodes:
                continue
            with self._isolation.guard("new_nodes", "the tests of new nodes"):
                await self._sweep()

    async def _sweep(self) -> None:
        jobs = await self._jobs()
        step = follow(self._world.snapshot(), jobs)
        failed: set[str] = set()
        for write in step.writes:
            # In order: what is said of a test comes after what follows from it.
            if write.node in failed:
                continue
            sent = await self._gateway.send(write)
            if not sent.done:
                failed.add(write.node)
            elif isinstance(write, SetValidated) and sent.answer is not None:
                # Its result is known at once: else it would be due again in this very sweep.
                self._world.learn_node(sent.answer.decode(NodeView))
        for name in step.in_vain:
            self._tried[name] = self._clock.now()
        tests = self._policy().validate
        names = due(self._world.snapshot(), jobs, self._tried)
        if not names:
            return
        namespace = self._world.snapshot().own_namespace
        path = api_path("/api/v1/namespaces", namespace, "podtemplates", tests.template)
        template = await self._api.get(path, PodTemplateView)
        for name in names:
            made = making(name, tests, template.template, self._world.snapshot())
            if made is not None and not (await self._gateway.send(made)).done:
                self._tried[name] = self._clock.now()

    async def _jobs(self) -> tuple[JobSeen, ...]:
        namespace = self._world.snapshot().own_namespace
        query = {"labelSelector": f"{LABEL_NEW_NODE}=true"}
        path = api_path("/apis/batch/v1/namespaces", namespace, "jobs")
        jobs = (await self._api.items(path, JobView, query=query)).found
        snapshot = self._world.snapshot()
        asking = [job.metadata.name for job in jobs if asks_for_pods(job, snapshot)]
        pods: dict[str, list[PodView]] = {}
        for start in range(0, len(asking), _NAMES_PER_LIST):
            names = asking[start : start + _NAMES_PER_LIST]
            found = await self._api.items(
                api_path("/api/v1/namespaces", namespace, "pods"),
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
