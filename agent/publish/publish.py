"""Publish the newest health status to the API server, in one thread, until it is accepted.

The main loop calls `submit`, the node watch calls `node_seen` and `node_gone`. The writers in
`agent.publish.writers` decide what to send. The newest health status is kept until it is accepted
and is never followed by an older one. No failure ends the thread.
"""

import random
import threading
import time
from collections.abc import Callable

import msgspec

from agent.publish import writers
from agent.publish.client import Kube
from agent.publish.objects import NodeObject
from agent.publish.writers import EventWriter, HealthWriter, NodeWriter
from rules.api import timestamps
from rules.api.health import HealthStatus
from rules.judge.health_object import Publication
from rules.judge.messages import NodeEvent
from rules.text import printable

LONGEST_WAIT_S = 3600.0
THREAD_GRACE_S = 0.5


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A health status to publish; `serial` counts them."""

    serial: int
    publication: Publication


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the GPUNodeHealth before this process wrote to it; None if there was none."""

    status: HealthStatus | None


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The API server accepted a health status in both objects. `at` is wall time."""

    wanted: Wanted
    at: float


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the log when publishing fails in a new way; empty when it works again."""

    sentence: str


class PublishReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of publishing, for readiness and metrics. Times are wall time."""

    accepted_at: float | None
    failures: int
    writes: int


class Publisher:
    """The publishing thread of one node; the thread calls `notify` with its messages.

    It sends exactly one `Known`, before the first write. The main loop must not `submit` before
    that, because a health status without the published past would overwrite it.
    """

    def __init__(
        self,
        api: Kube,
        node_name: str,
        *,
        notify: Callable[[Known | Accepted | Trouble], None],
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._notify = notify
        self._node_writer = NodeWriter(api, node_name, uniform=uniform)
        self._health_writer = HealthWriter(api, node_name, uniform=uniform)
        self._event_writer = EventWriter(api, node_name, uniform=uniform)
        self._changed = threading.Condition()
        self._woken = False
        self._wanted: Wanted | None = None
        self._node: NodeObject | None = None
        self._settled: Wanted | None = None
        self._accepted_at: float | None = None
        self._reported_known = False
        self._trouble = ""
        self._closing = False
        self._gave_up = False
        self._yields = False
        self._stopping = False
        self._unexpected_errors = 0
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)

    def start(self) -> None:
        """Start the thread: read the published status, then publish what is submitted."""
        self._thread.start()

    def submit(self, wanted: Wanted) -> None:
        """Publish this health status instead of one that was not written yet."""
        with self._changed:
            self._wanted = wanted
            self._wake_up()

    def announce(self, event: NodeEvent) -> None:
        """Create this Event about the node after the health status has been written."""
        with self._changed:
            self._event_writer.add(event, time.time())
            self._wake_up()

    def node_seen(self, node: NodeObject) -> None:
        """Take a new version of the node; another client may have changed our fields."""
        with self._changed:
            if self._node is None or not _older(node, self._node):
                self._node = node
                self._wake_up()

    def node_gone(self) -> None:
        """Stop writing to the node, which was deleted, until it exists again."""
        with self._changed:
            self._node = None

    def report(self) -> PublishReport:
        """Return the state of publishing."""
        with self._changed:
            return PublishReport(
                accepted_at=self._accepted_at,
                failures=max(
                    self._node_writer.failures,
                    self._health_writer.failures,
                    self._unexpected_errors,
                ),
                writes=self._node_writer.writes + self._health_writer.writes,
            )

    def close(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for the newest health status to be accepted, then end the thread.

        Return whether it was accepted. The wait ends early if publishing was failing and one more
        attempt fails, or if a newer agent publishes.
        """
        with self._changed:
            self._closing = True
            self._wake_up()
            self._changed.wait_for(self._is_over, timeout_s)
            done = self._settled is self._wanted
            self._stopping = True
            self._wake_up()
        # A call that hangs ends with the process.
        self._thread.join(timeout_s if done else THREAD_GRACE_S)
        return done

    def _is_over(self) -> bool:
        return self._settled is self._wanted or self._gave_up or self._yields

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
                self._unexpected_errors = 0
            except Exception as error:  # noqa: BLE001 - without this thread nothing is published
                self._unexpected_errors += 1
                self._report_unexpected(error)

    def _report_unexpected(self, error: Exception) -> None:
        """Report an unexpected error once and wait before the next attempt."""
        place = printable.place_of(error)
        trouble = f"Publishing failed with an unexpected error ({place}). Retrying."
        if trouble != self._trouble:
            self._trouble = trouble
            self._notify(Trouble(sentence=trouble))
        wait_s = timestamps.backoff_s(
            self._unexpected_errors + 1, writers.FIRST_RETRY_S, writers.LONGEST_RETRY_S
        )
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, wait_s)

    def _turn(self) -> None:
        """Compare the wanted status with the server's and write at most once per writer."""
        if not self._health_writer.known and not self._reported_known:
            self._wait(self._first_read())
            return
        with self._changed:
            self._woken = False
            wanted, node = self._wanted, self._node
            last_try = self._closing and (bool(self._trouble) or node is None)
            if self._closing:
                self._closing = False
                self._node_writer.retry_now()
                self._health_writer.retry_now()
        if wanted is None or node is None:
            if last_try:
                self._give_up()
            self._wait(time.monotonic() + LONGEST_WAIT_S)
            return
        # The health object first: a restarted agent needs its state.
        health = self._health_writer.turn(wanted.publication, node, time.monotonic())
        self._set_yields(health.yields)
        if health.yields or self._health_writer.contested:
            self._report_trouble()
            self._wait(health.until)
            return
        patched = self._node_writer.turn(wanted.publication, node, time.monotonic(), time.time())
        self._report_trouble()
        if last_try and self._trouble:
            self._give_up()
        if patched.node is not None:
            self._answered(node, patched.node)
        announced = float("inf")
        if health.settled and patched.settled:
            self._settle(wanted)
            announced = self._event_writer.turn(node, time.monotonic())
        self._wait(min(health.until, patched.until, announced))

    def _first_read(self) -> float:
        turn = self._health_writer.read(time.monotonic())
        self._report_trouble()
        if self._health_writer.known:
            self._reported_known = True
            self._notify(Known(status=self._health_writer.status))
        return turn.until

    def _answered(self, before: NodeObject, answer: NodeObject) -> None:
        with self._changed:
            if self._node is before or (self._node and not _older(answer, self._node)):
                self._node = answer

    def _settle(self, wanted: Wanted) -> None:
        with self._changed:
            if self._settled is wanted:
                return
            self._settled, self._accepted_at = wanted, time.time()
            self._changed.notify_all()
        self._notify(Accepted(wanted=wanted, at=self._accepted_at))

    def _set_yields(self, yields: bool) -> None:
        with self._changed:
            self._yields = yields
            self._changed.notify_all()

    def _give_up(self) -> None:
        with self._changed:
            self._gave_up = True
            self._changed.notify_all()

    def _report_trouble(self) -> None:
        """Report new trouble, or its end, once."""
        sentences = filter(None, (self._health_writer.trouble, self._node_writer.trouble))
        trouble = " ".join(sentences)
        if trouble != self._trouble:
            self._trouble = trouble
            self._notify(Trouble(sentence=trouble))

    def _wake_up(self) -> None:
        """Wake the thread; called with the lock held."""
        self._woken = True
        self._changed.notify_all()

    def _wait(self, until: float) -> None:
        """Sleep until a time or until `_wake_up`."""
        with self._changed:
            wait_s = until - time.monotonic()
            if wait_s > 0 and not self._woken:
                self._changed.wait(min(wait_s, LONGEST_WAIT_S))


def _older(node: NodeObject, than: NodeObject) -> bool:
    """Whether a version of the same node is older than another."""
    if node.metadata.uid != than.metadata.uid:
        return False
    versions = (node.metadata.resource_version, than.metadata.resource_version)
    if not all(version.isdecimal() for version in versions):
        return False
    return int(versions[0]) < int(versions[1])
