"""Back-off for writes on nodes that the API server refused, and background sending of Events.

The node cycle stores the answer to every write here. The next decision reports a refusal and
leaves the write out until its back-off ends. Back-off is per node and kind of write, in memory
only: a new process tries once. Events are sent in the background; a refused Event delays and fails
nothing.
"""

import asyncio
from dataclasses import dataclass, replace

import structlog

from remediator.kube.answer import Answer, Sent
from remediator.kube.clock import Clock
from remediator.kube.gateway import Gateway
from rules.api import timestamps
from rules.api.refusal import (
    NAMESPACE_ENDING,
    ON_SESSIONS,
    ErrorKind,
    NodeWrite,
    error_kinds,
    refusal_of,
    repeated,
)
from rules.api.writes import EmitEvent, Write
from rules.catalog.why_not import Refusal, WhyNot
from rules.session import status

_LOG = structlog.get_logger()
# For refusals that an operator fixes within minutes.
_REPAIRED_S = (10.0, 120.0)
_BUSY_S = (2.0, 30.0)
# Attempts further apart than the longest wait are not in a row.
_IN_A_ROW_S = 120.0
# A single 429 is not reported, because the report would be one more write.
_BUSY_REPORTED_FROM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    refusal: Refusal | None
    until: float
    times: int
    since: float


class Refusals:
    """The refused writes of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, dict[NodeWrite, _Kept]] = {}

    def note(self, write: Write, answer: Answer) -> Refusal | None:
        """Store the answer to a write; return the refusal to report, or None."""
        kind = status.kind_of(write)
        if kind is None:
            return None
        if answer.ok or (answer.code == 404 and kind is NodeWrite.UNREPAIR):
            self._kept.get(write.node, {}).pop(kind, None)
            return None
        now, kept = self._clock.elapsed(), self._kept.setdefault(write.node, {})
        known = kept.get(kind)
        if known is not None and now > known.until + _IN_A_ROW_S:
            known = None
        times = known.times + 1 if known is not None else 1
        since = known.since if known is not None else self._clock.now()
        code, text = answer.code, answer.sentence()
        refusal = refusal_of(kind, code, text)
        repaired = refusal is not None and refusal.reason is not WhyNot.API_BUSY
        if refusal is None or (not repaired and times < _BUSY_REPORTED_FROM):
            lasted_s = self._clock.now() - since
            refusal = repeated(kind, code, text, times=times, lasted_s=lasted_s)
        wait_s = timestamps.backoff_s(times, *(_REPAIRED_S if repaired else _BUSY_S))
        if refusal is not None:
            refusal = replace(refusal, until=self._clock.now() + wait_s, since=since)
        kept[kind] = _Kept(refusal=refusal, until=now + wait_s, times=times, since=since)
        return refusal

    def of(self, node: str) -> dict[NodeWrite, Refusal]:
        """Writes on this node that must not be sent yet, each with its refusal."""
        return {
            kind: kept.refusal
            for kind, kept in self._kept.get(node, {}).items()
            if kept.refusal is not None and self._clock.elapsed() < kept.until
        }

    def nodes(self, kind: NodeWrite) -> frozenset[str]:
        """Nodes on which this kind of write must not be sent yet."""
        now = self._clock.elapsed()
        return frozenset(
            node
            for node, kept in self._kept.items()
            if (one := kept.get(kind)) is not None and one.refusal is not None and now < one.until
        )

    def missing_session_right(self) -> Refusal | None:
        """The oldest missing right to write sessions, which no session status can report. Old
        refusals that were not tried again are left out.
        """
        now = self._clock.elapsed()
        found = [
            one.refusal
            for kept in self._kept.values()
            for kind, one in kept.items()
            if kind in ON_SESSIONS
            and one.refusal is not None
            and one.refusal.reason is WhyNot.MISSING_PERMISSION
            and now < one.until + _REPAIRED_S[1]
        ]
        return min(found, key=lambda refusal: refusal.since or 0.0, default=None)

    def forget(self, node: str) -> None:
        """Drop the refusals of a node, unless one is still in its back-off."""
        if not self.of(node):
            self._kept.pop(node, None)


# New Events are dropped while this many wait; the sessions have the same information.
_WAITING = 5_000
# As many as their queue has connections, so that a refusal stops the others in time.
_AT_ONCE = 16
# For a refusal that an operator fixes within minutes.
_REFUSED_S = 600.0
# At most this many refusing namespaces are tracked.
_NAMESPACES = 1_000
_FORBIDDEN = 403


class EventSender:
    """Sends the Events of one process in the background."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._waiting: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._refused: dict[str, float] = {}
        """End of the back-off (CLOCK_BOOTTIME) of namespaces that refuse Events."""

    def send(self, event: EmitEvent) -> None:
        """Queue the Event; it may be dropped, and it may fail."""
        if len(self._waiting) < _WAITING and not self._is_refused(event.namespace):
            task = asyncio.create_task(self._send(event))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _send(self, event: EmitEvent) -> None:
        async with self._turn:
            if not self._is_refused(event.namespace):
                self._note(event.namespace, await self._gateway.send(event))

    def _is_refused(self, namespace: str) -> bool:
        return self._clock.elapsed() < self._refused.get(namespace, float("-inf"))

    def _note(self, namespace: str, sent: Sent) -> None:
        answer = sent.answer
        if (
            answer is None
            or answer.code != _FORBIDDEN
            or NAMESPACE_ENDING in answer.status().causes
        ):
            self._refused.pop(namespace, None)
            return
        first = namespace not in self._refused
        if first and len(self._refused) >= _NAMESPACES:
            return
        self._refused[namespace] = self._clock.elapsed() + _REFUSED_S
        if first:
            _LOG.warning("events", namespace=namespace, problem=_problem(namespace, answer))


def _problem(namespace: str, answer: Answer) -> str:
    text = answer.sentence()
    remedy = (
        "ask who runs the quota, admission policy or webhook"
        if ErrorKind.BY_ADMISSION in error_kinds(text)
        else "grant it create on events"
    )
    return (
        f"The remediator may not write Events in namespace {namespace} ({text}). Evictions go "
        f"on without Events there. To get them, {remedy}."
    )
