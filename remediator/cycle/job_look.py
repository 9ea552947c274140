"""What has become of the Job that tests a node, read while a session waits for it.

`cycle.node_cycle` calls `look` before it decides; at rest nothing is read. There is no watch: a
test is under way on a few nodes at a time, for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from rules.api.nodes import QuarantineView
from rules.api.object_name import api_path
from rules.api.pods import PodView
from rules.session.validation.verdicts import under_way
from rules.validate.jobs import LABEL_JOB, JobSeen, JobView, PodTemplateView

T = TypeVar("T")

# Of a Job that is there, news come at the pace of its pod; what we wrote ourselves is read at
# once.
_FRESH_S = 2.0
_NO_RIGHT = 403


class JobLook:
    """Reads what `rules.validate.outcome` judges, by node."""

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
