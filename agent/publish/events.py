"""Tells people beside the Node what happened, as Kubernetes Events: best effort, never in the way.

Used by the publishing thread. An Event that cannot be created is tried a few times and dropped:
the verdict itself stands in the node's conditions and its GPUNodeHealth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from agent.kube.client import Kube, KubeError
from agent.kube.objects import NodeObject
from agent.publish.plan import PublishLane
from rules.api.names import COMPONENT_AGENT
from rules.api.timestamps import format_time
from rules.publish.sentences import NodeEvent

NAMESPACE: Final = "default"
"""Where Kubernetes keeps Events about objects without a namespace."""
MAX_WAITING: Final = 64
MAX_ATTEMPTS: Final = 5
MAX_MESSAGE_CHARS: Final = 1024


class _Waiting(msgspec.Struct, frozen=True):
    """An Event and when it happened (wall)."""

    event: NodeEvent
    at: float


class EventLane:
    """The Events that wait to be created; `add` may be called from another thread."""

    def __init__(self, api: Kube, *, luck: Callable[[], float]) -> None:
        self._api = api
        self._luck = luck
        self._lane = PublishLane()
        self._waiting: deque[_Waiting] = deque(maxlen=MAX_WAITING)

    def add(self, event: NodeEvent, at: float) -> None:
        """Queue an Event of wall time `at`; of too many the oldest goes."""
        self._waiting.append(_Waiting(event, at))

    def turn(self, node: NodeObject, now: float) -> float:
        """Create the next Event if one is due; when to call again (monotonic seconds)."""
        while self._waiting:
            if self._lane.not_before > now:
                return self._lane.not_before
            waiting = self._waiting[0]
            try:
                self._api.create_event(NAMESPACE, event_body(node, waiting.event, waiting.at))
            except KubeError as error:
                self._lane = self._lane.refused(now, self._luck(), at_least_s=error.retry_after_s)
                if self._lane.failures < MAX_ATTEMPTS:
                    return self._lane.not_before
            self._lane = PublishLane()
            self._waiting.popleft()
        return float("inf")


def event_body(node: NodeObject, event: NodeEvent, at: float) -> dict[str, Any]:
    """The Event as the API server takes it, about the node's real UID."""
    name = node.metadata.name
    when = format_time(at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:220]}.{int(at * 1e9):x}", "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name,
            "uid": node.metadata.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:MAX_MESSAGE_CHARS],
        "source": {"component": COMPONENT_AGENT, "host": name},
        "reportingComponent": COMPONENT_AGENT,
        "reportingInstance": name,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
