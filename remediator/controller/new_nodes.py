"""Jobs that test new nodes: the leader reads what became of them, and makes those that are due.

`rules.fleet.new_nodes` decides. Where the policy asks for none, nothing is read.
"""

from __future__ import annotations

from remediator.world import Edge, EdgePart
from rules.api.nodes import NodeView
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
