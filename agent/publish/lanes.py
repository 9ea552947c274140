"""The two writers behind publishing: one for the node's status, one for its GPUNodeHealth.

Used by the publishing thread alone, which calls `turn` again and again. A lane sends at most one
write per turn, remembers how that went, and turns every failure into a sentence and a wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from agent.publish.client import UNREACHABLE, Kube, KubeError
from agent.publish.objects import HealthObject, NodeObject
from agent.publish.plan import (
    EXISTS_EVERY_S,
    MISSING_RETRY_S,
    REASSERT_EVERY_S,
    REASSERT_JITTER,
    REPAIR_SPACING_S,
    AdoptHealth,
    CreateHealth,
    PublishLane,
    PutHealth,
    Wait,
    health_step,
    node_step,
)
from rules.api.health import HealthStatus
from rules.api.names import COMPONENT_AGENT
from rules.api.timestamps import format_time
from rules.judge.health_object import Publication
from rules.judge.messages import NodeEvent

FORBIDDEN_ATTEMPTS: Final = 6
"""Some 20 s: an installation may bring the rights a little later than the agent, and a past that
was not read would be written over."""

CONFLICTS_REPORTED_FROM: Final = 3
"""Two agents that meet at an update get one or two; who answers 409 each time is a webhook."""

REMEDY: Final = {
    UNREACHABLE: "the verdict is kept and sent when the API server answers",
    HTTPStatus.UNAUTHORIZED: "check the agent's token",
    HTTPStatus.FORBIDDEN: "check the agent's ClusterRole and binding",
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn went: call again at `until` (monotonic seconds) at the latest.

    `settled` says that the verdict given stands on the server, `yields` that a newer agent has the
    word and nothing is to be written, `node` is the node as the server answered a write.
    """

    until: float
    settled: bool = False
    yields: bool = False
    node: NodeObject | None = None


class NodeLane:
    """Conditions and labels of the node. `trouble` is a sentence while writing fails."""

    def __init__(self, api: Kube, name: str, *, luck: Callable[[], float]) -> None:
        self._api = api
        self._name = name
        self._luck = luck
        self._lane = PublishLane()
        self._uid = ""
        self._stood: Publication | None = None
        self._repair_from = 0.0
        self.writes = 0
        self.trouble = ""

    @property
    def failures(self) -> int:
        """Failed attempts since the last success."""
        return self._lane.failures

    def hurry(self) -> None:
        """The process is about to end: do not wait for the next attempt."""
        self._lane = replace(self._lane, not_before=0.0)

    def turn(self, wanted: Publication, node: NodeObject, now: float, wall: float) -> Turn:
        """Send what is due."""
        if node.metadata.uid != self._uid:
            self._uid, self._lane, self._stood = node.metadata.uid, PublishLane(), None
        step = node_step(wanted, node, self._lane, now, wall)
        if isinstance(step, Wait):
            if step.settled:
                self._stood = wanted
            return Turn(until=step.until, settled=step.settled)
        if self._stood is wanted and now < self._repair_from:
            return Turn(until=self._repair_from)
        try:
            answer = self._api.patch_node_status(self._name, step.patch)
        except KubeError as error:
            return self._failed(error, now)
        self.writes += 1
        self.trouble = ""
        if self._stood is wanted:
            self._repair_from = now + REPAIR_SPACING_S
        self._lane, self._stood = self._lane.accepted(now, self._luck()), wanted
        return Turn(until=now, node=answer)

    def _failed(self, error: KubeError, now: float) -> Turn:
        at_least_s = error.retry_after_s
        self.trouble = sentence(f"the status of node {self._name}", error)
        if error.status == HTTPStatus.NOT_FOUND:
            at_least_s = MISSING_RETRY_S
            self.trouble = (
                f"node {self._name} does not exist: name an existing node with --node-name"
            )
        self._lane = self._lane.refused(now, self._luck(), at_least_s=at_least_s)
        return Turn(until=self._lane.not_before)


class HealthLane:
    """The GPUNodeHealth of the node. `trouble` is a sentence while reading or writing fails."""

    def __init__(self, api: Kube, name: str, *, luck: Callable[[], float]) -> None:
        self._api = api
        self._name = name
        self._luck = luck
        self._lane = PublishLane()
        self._uid = ""
        self._health: HealthObject | None = None
        self._read = False
        self._accepted: Publication | None = None
        self._found: str | None = None
        self._yields_until = 0.0
        self._exists_at = 0.0
        """When the object is looked for again, in monotonic seconds."""
        self._refused = 0
        """Writes in a row that the server did not take; the reads between them succeed."""
        self.writes = 0
        self.trouble = ""

    @property
    def failures(self) -> int:
        """Failed attempts since the last success."""
        return self._lane.failures

    @property
    def known(self) -> bool:
        """Whether what was there before has been read (or can never be)."""
        return self._read

    @property
    def contested(self) -> bool:
        """Whether somebody else wrote since we did, and who it was is about to be read."""
        return self._accepted is not None and not self._read and self._lane.failures <= 1

    @property
    def status(self) -> HealthStatus | None:
        """The status on the server, as last read or written; None when there is none."""
        return None if self._health is None else self._health.status

    def hurry(self) -> None:
        """The process is about to end: do not wait for the next attempt."""
        self._lane = replace(self._lane, not_before=0.0)

    def read(self, now: float) -> Turn:
        """Read what is there; nothing is written before that."""
        if self._lane.not_before > now:
            return Turn(until=self._lane.not_before)
        try:
            self._read_again()
        except KubeError as error:
            return self._failed(error, now)
        self._lane = replace(self._lane, failures=self._refused)
        if not self._refused:
            self.trouble = ""
        return Turn(until=now)

    def turn(self, wanted: Publication, node: NodeObject, now: float) -> Turn:
        """Send what is due."""
        if node.metadata.uid != self._uid:
            # Another node under this name: its object may be gone or about to be collected.
            self._read = self._read and not self._uid
            self._uid, self._accepted = node.metadata.uid, None
        if not self._read:
            turn = self.read(now)
            if self.known and self._was_replaced(wanted):
                self._yields_until = now + REASSERT_EVERY_S
                return Turn(until=self._yields_until, yields=True)
            return turn
        if now < self._yields_until:
            return Turn(until=self._yields_until, yields=True)
        step = health_step(wanted, self._health, self._accepted, node, self._lane, now)
        if isinstance(step, Wait):
            if step.settled and self._exists_at <= now and not self._exists(now):
                return Turn(until=now)
            until = min(step.until, self._exists_at) if step.settled else step.until
            return Turn(until=until, settled=step.settled)
        try:
            self._write(step, wanted)
            self._look_later(now)
        except KubeError as error:
            turn = self._failed(error, now, creating=isinstance(step, CreateHealth))
            self._refused = self._lane.failures
            return turn
        self.writes += 1
        if isinstance(step, PutHealth):
            self.trouble, self._refused = "", 0
            self._lane = self._lane.accepted(now, self._luck())
        return Turn(until=now)

    def _look_later(self, now: float) -> None:
        spread = 1 + REASSERT_JITTER * (2 * self._luck() - 1)
        self._exists_at = now + EXISTS_EVERY_S * spread

    def _exists(self, now: float) -> bool:
        """False when the object is gone; True also where the server does not say so."""
        self._look_later(now)
        try:
            self._api.look_for_health(self._name)
        except KubeError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._health = self._accepted = None
                return False
        return True

    def _was_replaced(self, wanted: Publication) -> bool:
        """Whether an agent that started after us has written since we did.

        Two run for a moment when a pod takes long to end: the newer verdict stands, for as long
        as a living agent takes to say it again.
        """
        return self._accepted is not None and self._publisher() not in {
            "",
            self._found,
            wanted.status.publisher.pod_uid,
        }

    def _publisher(self) -> str:
        return "" if self._health is None else self._health.status.publisher.pod_uid

    def _read_again(self) -> None:
        try:
            self._health = self._api.health(self._name)
        except KubeError as error:
            forbidden = error.status == HTTPStatus.FORBIDDEN
            if forbidden and self._lane.failures < FORBIDDEN_ATTEMPTS:
                raise
            if not forbidden and error.status != HTTPStatus.NOT_FOUND:
                raise
            # Forbidden for good: the node's condition must not wait for it.
            self._health = None
        if self._found is None:
            self._found = self._publisher()
        self._read = True

    def _write(self, step: CreateHealth | AdoptHealth | PutHealth, wanted: Publication) -> None:
        if isinstance(step, CreateHealth):
            self._health = self._api.create_health(step.body)
        elif isinstance(step, AdoptHealth):
            self._health = self._api.patch_health(self._name, step.patch)
        else:
            self._health = self._api.put_health_status(self._name, step.body)
            self._accepted = wanted

    def _failed(self, error: KubeError, now: float, *, creating: bool = False) -> Turn:
        at_least_s = error.retry_after_s
        if error.status == HTTPStatus.CONFLICT:
            # Somebody else wrote: read, then write ours again. Once or twice that is no trouble.
            self._read = False
            if self._lane.failures >= CONFLICTS_REPORTED_FROM:
                self.trouble = sentence(f"GPUNodeHealth {self._name}", error)
        elif error.status != HTTPStatus.NOT_FOUND:
            self.trouble = sentence(f"GPUNodeHealth {self._name}", error)
        elif creating:
            at_least_s = MISSING_RETRY_S
            self.trouble = (
                "the cluster has no GPUNodeHealth: apply the CRDs of gpuward;"
                " until then only the node's conditions and labels are published"
            )
        else:
            # Deleted by somebody or collected with an old node: create it again.
            self._health = None
        self._lane = self._lane.refused(now, self._luck(), at_least_s=at_least_s)
        return Turn(until=self._lane.not_before)


def sentence(what: str, error: KubeError) -> str:
    """What failed, why, and what a person can do."""
    remedy = REMEDY.get(error.status, "it is tried again")
    return f"{what} could not be written ({error}): {remedy}"


NAMESPACE: Final = "default"
"""Where Kubernetes keeps Events about objects without a namespace."""
MAX_WAITING: Final = 64
MAX_ATTEMPTS: Final = 5
MAX_MESSAGE_CHARS: Final = 1024


class _WaitingEvent(msgspec.Struct, frozen=True):
    """An Event and when it happened (wall)."""

    event: NodeEvent
    at: float


class EventLane:
    """The Events that wait to be created; `add` may be called from another thread."""

    def __init__(self, api: Kube, *, luck: Callable[[], float]) -> None:
        self._api = api
        self._luck = luck
        self._lane = PublishLane()
        self._waiting: deque[_WaitingEvent] = deque(maxlen=MAX_WAITING)

    def add(self, event: NodeEvent, at: float) -> None:
        """Queue an Event of wall time `at`; of too many the oldest goes."""
        self._waiting.append(_WaitingEvent(event, at))

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
