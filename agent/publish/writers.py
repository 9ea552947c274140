"""The writers of the node's status, its GPUNodeHealth and Events.

The publishing thread calls `turn` repeatedly. Each writer fails and retries independently. A turn
sends at most one write, always of the newest health status. A failure becomes a log message and a
wait. Times are monotonic seconds, except `wall`.
"""

from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from agent.publish import client, objects
from agent.publish.client import Kube, KubeError
from agent.publish.objects import HealthObject, NodeObject, Owner
from rules.api import health, names, timestamps
from rules.api.health import HealthStatus
from rules.judge import health_object
from rules.judge.health_object import Difference, Publication
from rules.judge.messages import NodeEvent

URGENT_SPACING_S: Final = 0.2
"""The least time between writes, so that a flapping collector cannot flood the API server."""
REPAIR_SPACING_S: Final = 10.0
"""The least time between corrections of another client's edits, so that two writers never race."""
REASSERT_EVERY_S: Final = 300.0
"""Everything is written again this often; the server does not store unchanged objects. New
readings of GPUs with an active incident are stored with it."""
REASSERT_JITTER: Final = 0.2
FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 30.0
MISSING_RETRY_S: Final = 40.0
"""Retry interval for a missing CRD or node, which an installation step creates."""
EXISTS_EVERY_S: Final = 40.0
"""How often the server's cache is checked for the published GPUNodeHealth: replacing the CRD
deletes all of them, and a node without one has no data."""
_WITHIN_S: Final = {
    Difference.SOON: health_object.NOTED_S,
    Difference.RIDES_ALONG: health_object.RIDE_ALONG_S,
}

FORBIDDEN_ATTEMPTS: Final = 6
"""About 20 s: an installation may create the RBAC rules after the agent, and a published status
that was not read would be overwritten."""

CONFLICTS_REPORTED_FROM: Final = 3
"""Two agents during an update cause one or two conflicts; more are caused by a webhook."""

REMEDY: Final = {
    client.UNREACHABLE: "Retrying until the API server responds.",
    HTTPStatus.UNAUTHORIZED: "Check the agent's token.",
    HTTPStatus.FORBIDDEN: "Check the agent's ClusterRole and ClusterRoleBinding.",
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn: call again at `until` at the latest.

    `settled`: the server has the given health status. `yields`: a newer agent publishes, so
    nothing is written. `node` is the server's response to a write.
    """

    until: float
    settled: bool = False
    yields: bool = False
    node: NodeObject | None = None


class _Writer:
    """The timing of one object's writes. `trouble` is a sentence while reading or writing fails;
    `uniform` returns random numbers from 0 to 1.
    """

    def __init__(self, api: Kube, name: str, *, uniform: Callable[[], float]) -> None:
        self._api = api
        self._name = name
        self._uniform = uniform
        self._uid = ""
        self.writes = 0
        self.trouble = ""
        self._reset()

    def _reset(self) -> None:
        self._not_before = self._wrote_at = self._reassert_at = 0.0
        self.failures = 0
        """Failed attempts since the last success."""

    def retry_now(self) -> None:
        """Allow the next attempt at once, because the process is about to end."""
        self._not_before = 0.0

    def _jittered(self, seconds: float) -> float:
        return seconds * (1 + REASSERT_JITTER * (2 * self._uniform() - 1))

    def _accepted_at(self, now: float) -> None:
        self._not_before, self._wrote_at = now + URGENT_SPACING_S, now
        self._reassert_at = now + self._jittered(REASSERT_EVERY_S)
        self.failures, self.trouble = 0, ""

    def _refused_at(self, now: float, at_least_s: float) -> Turn:
        """Schedule the next attempt with exponential back-off, at least `at_least_s`."""
        self.failures += 1
        backoff = timestamps.backoff_s(self.failures, FIRST_RETRY_S, LONGEST_RETRY_S)
        self._not_before = now + max(at_least_s, backoff) * (0.5 + self._uniform() / 2)
        return Turn(until=self._not_before)


class NodeWriter(_Writer):
    """Writes the node's conditions and labels."""

    _on_server: Publication | None = None
    _repair_from = 0.0

    def turn(self, wanted: Publication, node: NodeObject, now: float, wall: float) -> Turn:
        """Write what is due."""
        if node.metadata.uid != self._uid:
            self._uid, self._on_server = node.metadata.uid, None
            self._reset()
        different = objects.node_differs(wanted, node)
        due = max(self._not_before, now if different else self._reassert_at)
        if due > now:
            if not different:
                self._on_server = wanted
            return Turn(until=due, settled=not different)
        if self._on_server is wanted and now < self._repair_from:
            return Turn(until=self._repair_from)
        try:
            answer = self._api.patch_node_status(
                self._name, objects.node_patch(wanted, node, wall)
            )
        except KubeError as error:
            return self._failed(error, now)
        self.writes += 1
        if self._on_server is wanted:
            self._repair_from = now + REPAIR_SPACING_S
        self._accepted_at(now)
        self._on_server = wanted
        return Turn(until=now, node=answer)

    def _failed(self, error: KubeError, now: float) -> Turn:
        at_least_s = error.retry_after_s
        self.trouble = sentence(f"the status of node {self._name}", error)
        if error.status == HTTPStatus.NOT_FOUND:
            at_least_s = MISSING_RETRY_S
            self.trouble = (
                f"Node {self._name} does not exist. Set --node-name to an existing node."
            )
        return self._refused_at(now, at_least_s)


class HealthWriter(_Writer):
    """Writes the GPUNodeHealth of the node."""

    known = False
    """Whether the published object has been read (or cannot be read)."""
    _health: HealthObject | None = None
    _accepted: Publication | None = None
    """What this process wrote last. The server's copy may lack fields that an old CRD drops."""
    _found: str | None = None
    _yields_until = 0.0
    _exists_at = 0.0
    """When to check next whether the object exists."""
    _refused = 0
    """Consecutive writes that failed, although reads succeed."""

    @property
    def contested(self) -> bool:
        """Whether another client wrote since our last write, and the object must be read again."""
        return self._accepted is not None and not self.known and self.failures <= 1

    @property
    def status(self) -> HealthStatus | None:
        """The last status that was read or written; None if there is none."""
        return None if self._health is None else self._health.status

    def read(self, now: float) -> Turn:
        """Read the published object; nothing is written before that."""
        if self._not_before > now:
            return Turn(until=self._not_before)
        try:
            self._read_again()
        except KubeError as error:
            return self._failed(error, now)
        self.failures = self._refused
        if not self._refused:
            self.trouble = ""
        return Turn(until=now)

    def turn(self, wanted: Publication, node: NodeObject, now: float) -> Turn:
        """Write what is due."""
        if node.metadata.uid != self._uid:
            # Another node of this name: the object may be deleted by garbage collection.
            self.known = self.known and not self._uid
            self._uid, self._accepted = node.metadata.uid, None
        if not self.known:
            turn = self.read(now)
            if self._was_replaced(wanted):
                self._yields_until = now + REASSERT_EVERY_S
                return Turn(until=self._yields_until, yields=True)
            return turn
        if now < self._yields_until:
            return Turn(until=self._yields_until, yields=True)
        difference = health_object.differs(self._accepted, wanted)
        settled = self._health is not None and difference is not Difference.NOW
        due = self._reassert_at if settled else now
        if settled and difference in _WITHIN_S:
            due = min(due, self._wrote_at + _WITHIN_S[difference])
        due = max(due, self._not_before)
        if due > now:
            if settled and self._exists_at <= now and not self._exists(now):
                return Turn(until=now)
            return Turn(until=min(due, self._exists_at) if settled else due, settled=settled)
        return self._write(wanted, node, now)

    def _write(self, wanted: Publication, node: NodeObject, now: float) -> Turn:
        """Create the object, make this node its owner, or replace the status."""
        name, before = self._name, self._health
        owner = Owner(
            api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid
        )
        metadata: dict[str, Any] = {"name": node.metadata.name, "ownerReferences": [owner]}
        body = {"apiVersion": names.API_VERSION, "kind": "GPUNodeHealth", "metadata": metadata}
        try:
            if before is None:
                self._health = self._api.create_health(body)
            else:
                metadata["resourceVersion"] = before.metadata.resource_version
                if before.metadata.owner_references != (owner,):
                    # The owner is a node that no longer exists.
                    del metadata["name"]
                    self._health = self._api.patch_health(name, {"metadata": metadata})
                else:
                    body["status"] = health.plain(wanted.status)
                    self._health = self._api.put_health_status(name, body)
                    self._accepted, self._refused = wanted, 0
                    self._accepted_at(now)
        except KubeError as error:
            turn = self._failed(error, now, creating=before is None)
            self._refused = self.failures
            return turn
        self._exists_at = now + self._jittered(EXISTS_EVERY_S)
        self.writes += 1
        return Turn(until=now)

    def _exists(self, now: float) -> bool:
        """Whether the object exists; True if the server does not answer."""
        self._exists_at = now + self._jittered(EXISTS_EVERY_S)
        try:
            there = self._api.has_health(self._name)
        except KubeError:
            return True
        if not there:
            self._health = self._accepted = None
        return there

    def _was_replaced(self, wanted: Publication) -> bool:
        """Whether a newer agent has written since our last write.

        Two agents run for a moment if a pod ends slowly. The newer agent's status is kept for one
        reassert interval.
        """
        ours = {"", self._found, wanted.status.publisher.pod_uid}
        return self.known and self._accepted is not None and self._publisher() not in ours

    def _publisher(self) -> str:
        return "" if self._health is None else self._health.status.publisher.pod_uid

    def _read_again(self) -> None:
        try:
            self._health = self._api.health(self._name)
        except KubeError as error:
            forbidden = error.status == HTTPStatus.FORBIDDEN
            if forbidden and self.failures < FORBIDDEN_ATTEMPTS:
                raise
            if not forbidden and error.status != HTTPStatus.NOT_FOUND:
                raise
            # Still forbidden: the node's conditions are published without it.
            self._health = None
        if self._found is None:
            self._found = self._publisher()
        self.known = True

    def _failed(self, error: KubeError, now: float, *, creating: bool = False) -> Turn:
        at_least_s = error.retry_after_s
        if error.status == HTTPStatus.CONFLICT:
            # Another client wrote: read, then write again. One or two conflicts are normal.
            self.known = False
            if self.failures >= CONFLICTS_REPORTED_FROM:
                self.trouble = sentence(f"GPUNodeHealth {self._name}", error)
        elif error.status != HTTPStatus.NOT_FOUND:
            self.trouble = sentence(f"GPUNodeHealth {self._name}", error)
        elif creating:
            at_least_s = MISSING_RETRY_S
            self.trouble = (
                "The cluster has no GPUNodeHealth CRD. Apply the CRDs of gpuward."
                " Until then only the node's conditions and labels are published."
            )
        else:
            # Deleted, or garbage collected with an old node: create it again.
            self._health = None
        return self._refused_at(now, at_least_s)


def sentence(what: str, error: KubeError) -> str:
    """Return what failed, why, and what an operator can do."""
    return f"Cannot write {what} ({error}). {REMEDY.get(error.status, 'Retrying.')}"


MAX_WAITING: Final = 64
MAX_ATTEMPTS: Final = 5


class _WaitingEvent(msgspec.Struct, frozen=True):
    """An Event and its wall time."""

    event: NodeEvent
    at: float


class EventWriter(_Writer):
    """Creates Events from a queue; `add` may be called from another thread."""

    def __init__(self, api: Kube, name: str, *, uniform: Callable[[], float]) -> None:
        super().__init__(api, name, uniform=uniform)
        self._waiting: deque[_WaitingEvent] = deque(maxlen=MAX_WAITING)

    def add(self, event: NodeEvent, at: float) -> None:
        """Queue an Event of wall time `at`; a full queue drops the oldest."""
        self._waiting.append(_WaitingEvent(event, at))

    def turn(self, node: NodeObject, now: float) -> float:
        """Create the next Event if one is due; return when to call again."""
        while self._waiting:
            if self._not_before > now:
                return self._not_before
            waiting = self._waiting[0]
            try:
                self._api.create_event(
                    objects.EVENT_NAMESPACE, objects.event_body(node, waiting.event, waiting.at)
                )
            except KubeError as error:
                turn = self._refused_at(now, error.retry_after_s)
                if self.failures < MAX_ATTEMPTS:
                    return turn.until
            self._reset()
            self._waiting.popleft()
        return float("inf")
