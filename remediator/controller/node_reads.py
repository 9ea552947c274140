"""Read the objects of one node that no watch has, before a decision, and cache them.

These are the GPUNodeHealth of a node that is healthy, the agent's pod, the evidence of a session
and the Job that tests the node. Jobs are not watched, because few nodes are tested at a time.
"""

from typing import TypeVar

import structlog

from remediator.kube import resources
from remediator.kube.answer import ApiError
from remediator.kube.caches import PublisherPods
from remediator.world import Edge, EdgePart
from rules.api import object_name, quarantine_taint, requests
from rules.api.evidence import EvidenceView
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.pods import PodView
from rules.session.repair.evidence import next_check_s, wanted_of
from rules.session.validation import result
from rules.session.validation.jobs import LABEL_JOB, JobSeen, JobView, PodTemplateView

T = TypeVar("T")

_LOG = structlog.get_logger()

_FRESH_S = 2.0
_EVIDENCE_FRESH_S = 4.0
# A Job that exists changes as slowly as its pod; a Job just written is read at once.
_JOB_FRESH_S = 2.0
_NO_RIGHT = 403


class NodeReads(EdgePart):
    """Cached reads of one process."""

    def __init__(self, edge: Edge, publishers: PublisherPods) -> None:
        super().__init__(edge)
        self._publishers = publishers
        self._health_read: dict[str, float] = {}
        self._evidence: dict[str, EvidenceView] = {}
        """By session, from the read until its digest is on record."""
        self._evidence_read: dict[str, float] = {}
        self._jobs: dict[str, tuple[float, JobSeen]] = {}

    async def read(self, name: str) -> None:
        """Read what is due for the next decision about the node; ApiError without an answer."""
        await self.read_health(name, self._world.snapshot().nodes.get(name))
        await self._read_job(name)
        if (health := self._world.healths.get(name)) is not None:
            await self._publishers.read(health)
        await self._read_evidence(name)

    def job(self, node: str) -> JobSeen | None:
        """The node's test Job as last read; None if no test is running."""
        known = self._jobs.get(node)
        return known[1] if known is not None else None

    def evidence(self, session: QuarantineView | None) -> EvidenceView | None:
        """What the agent kept for the session, until its digest is on record."""
        return self._evidence.get(session.name) if session is not None else None

    def forget_job(self, node: str) -> None:
        """Drop the cached Job."""
        self._jobs.pop(node, None)

    def forget(self, node: str) -> None:
        """Drop everything cached for the node."""
        self._health_read.pop(node, None)
        self.forget_job(node)
        for session in self._world.sessions.get(node, ()):
            self._evidence.pop(session.name, None)
            self._evidence_read.pop(session.name, None)

    async def read_health(self, name: str, node: NodeView | None) -> None:
        """Read the GPUNodeHealth of a healthy node that has a session or a quarantine taint."""
        if name in self._world.caches.healths.items:
            return
        if not self._world.open_sessions(name) and (
            node is None or not quarantine_taint.quarantined(node)
        ):
            return
        if not object_name.is_object_name(name):
            return
        now = self._clock.elapsed()
        if now - self._health_read.get(name, float("-inf")) < _FRESH_S:
            return
        try:
            health = await self._api.get(object_name.api_path(resources.HEALTHS, name), HealthView)
        except ApiError as error:
            if error.answer.code != 404:
                raise
            self._world.health_changed(name, None)
        else:
            if name not in self._world.caches.healths.items:
                self._world.health_changed(name, health)
        self._health_read[name] = now

    async def _read_evidence(self, name: str) -> None:
        """Read the evidence of sessions that have no digest yet. Only repair steps need it, so an
        error does not fail the check.

        The watch has its names and versions; without a watch it is read at growing intervals.
        """
        now = self._clock.elapsed()
        for session in self._world.open_sessions(name):
            if not wanted_of(session, self._clock.now()) or not object_name.is_object_name(
                session.name
            ):
                self._evidence.pop(session.name, None)
                continue
            if self._evidence_watched and not self._evidence_changed(session.name):
                continue
            if now - self._evidence_read.get(session.name, float("-inf")) < _EVIDENCE_FRESH_S:
                continue
            self._evidence_read[session.name] = now
            try:
                path = object_name.api_path(requests.EVIDENCES, session.name)
                self._evidence[session.name] = await self._api.get(path, EvidenceView)
            except ApiError as error:
                if error.answer.code != 404:
                    _LOG.warning("evidence", node=name, session=session.name, why=str(error))

    @property
    def _evidence_watched(self) -> bool:
        cache = self._world.caches.evidences
        return cache.synced and not cache.too_old()

    def _evidence_changed(self, session: str) -> bool:
        """Whether the watch shows evidence of the session at a version that was not read."""
        shown, read = self._world.caches.evidences.items.get(session), self._evidence.get(session)
        if shown is None or read is None:
            return shown is not None
        return shown.metadata.resource_version != read.metadata.resource_version

    def evidence_due_s(self, name: str) -> float | None:
        """Seconds until the next read of evidence; None if none is due."""
        now = self._clock.now()
        if self._evidence_watched:
            unread = (
                wanted_of(one, now) and self._evidence_changed(one.name)
                for one in self._world.open_sessions(name)
            )
            return _EVIDENCE_FRESH_S if any(unread) else None
        due = (next_check_s(one, now) for one in self._world.open_sessions(name))
        soonest = min((s for s in due if s is not None), default=None)
        return None if soonest is None else max(soonest, _EVIDENCE_FRESH_S)

    async def _read_job(self, node: str) -> None:
        """Read the Job of the running test."""
        sessions = self._world.open_sessions(node)[:1]
        test = next((t for s in sessions if (t := result.under_way(s.status)) is not None), None)
        if test is None:
            self.forget_job(node)
            return
        known = self._jobs.get(node)
        fresh = known is not None and self._clock.elapsed() - known[0] < _JOB_FRESH_S
        if known is not None and fresh and known[1].name == test.object:
            return
        try:
            seen = await self._job(test.object, test.template)
        except ApiError as error:
            if error.answer.code != _NO_RIGHT:
                raise
            why = f"the remediator may not read it ({error.answer.sentence()[:200]})"
            seen = JobSeen(name=test.object, unread=why)
        self._jobs[node] = self._clock.elapsed(), seen

    async def _job(self, name: str, template: str) -> JobSeen:
        namespace = self._world.own_namespace
        jobs = object_name.api_path("/apis/batch/v1/namespaces", namespace, "jobs")
        job = await self._found(object_name.api_path(jobs, name), name, JobView)
        if job is None:
            if not template:
                # The CRD of an older release does not have this field.
                return JobSeen(name=name)
            templates = object_name.api_path("/api/v1/namespaces", namespace, "podtemplates")
            found = await self._found(
                object_name.api_path(templates, template), template, PodTemplateView
            )
            return JobSeen(name=name, template=found)
        pods = await self._api.items(
            object_name.api_path("/api/v1/namespaces", namespace, "pods"),
            PodView,
            query={"labelSelector": f"{LABEL_JOB}={name}"},
        )
        return JobSeen(name=name, job=job, pods=pods.found)

    async def _found(self, path: str, name: str, kind: type[T]) -> T | None:
        try:
            return await self._api.get(path, kind)
        except ApiError as error:
            if not error.answer.is_not_found(name):
                raise
            return None
