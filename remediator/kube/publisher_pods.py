"""Agents' pods that the watch on our own namespace does not show.

A verdict names its publisher by namespace, name and UID. The manifests put agents beside the
remediator and label them; agents installed in any other way are found here by that name, so that
a living publisher is never called gone. `cycle.node_cycle` asks before it decides, `housekeeping`
before it calls an agent silent. Reads only, and only for verdicts whose pod nobody watches.
"""

from __future__ import annotations

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.caches import Caches
from remediator.kube.clock import Clock
from remediator.kube.resources import AgentPodObject
from rules.api.nodes import HealthView
from rules.api.object_name import api_path, is_object_name

_FRESH_S = 10.0


class PublisherPods:
    """Keeps `caches.agents` true for pods outside the watch."""

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._clock = clock
        self._caches = caches
        self._read_at: dict[str, float] = {}

    async def look(self, health: HealthView) -> None:
        """Read the verdict's pod where no watch shows it and the last read is old."""
        publisher = health.status.publisher
        uid = publisher.pod_uid
        namespace, _, name = publisher.pod.partition("/")
        if not uid or not name or self.watched(uid):
            return
        now = self._clock.elapsed()
        if now - self._read_at.get(uid, float("-inf")) < _FRESH_S:
            return
        if not is_object_name(namespace) or not is_object_name(name):
            return
        path = api_path("/api/v1/namespaces", namespace, "pods", name)
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
        """Whether the watch on our own namespace shows the pod."""
        return uid in self._caches.agents and uid not in self._read_at
