"""What the API server refuses: writes on nodes, and Events.

The node cycle notes every answer to a write here and hands what is kept to the next decision,
which says it and leaves the write out. Back-off is per node and kind of write. In memory only: a
new process tries once and learns it again. Events are sent in the background, so that nothing
waits for one and none fails over it: nodes of which nobody is reported are quarantined, drained
and released as ever.
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
    NodeWrite,
    Told,
    refusal_of,
    repeated,
    told,
)
from rules.api.writes import EmitEvent, Write
from rules.catalog.why_not import Refusal, WhyNot
from rules.session import status

_LOG = structlog.get_logger()
# What an operator repairs takes minutes, and then must not take many more.
_REPAIRED_S = (10.0, 120.0)
_BUSY_S = (2.0, 30.0)
# Attempts further apart than the longest wait are not in a row.
_IN_A_ROW_S = 120.0
# The first 429 in a row is answered by trying again at once: saying it would be one more write.
_BUSY_SAID_FROM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    refusal: Refusal | None
    until: float
    times: int
    since: float


class Refusals:
    """What one process remembers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, dict[NodeWrite, _Kept]] = {}

    def note(self, write: Write, answer: Answer) -> Refusal | None:
        """Take the answer to a write; what is to be said of it, None while nothing is."""
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
        code, said = answer.code, answer.sentence()
        refusal = refusal_of(kind, code, said)
        repaired = refusal is not None and refusal.reason is not WhyNot.API_BUSY
        if refusal is None or (not repaired and times < _BUSY_SAID_FROM):
            lasted_s = self._clock.now() - since
            refusal = repeated(kind, code, said, times=times, lasted_s=lasted_s)
        wait_s = timestamps.backoff_s(times, *(_REPAIRED_S if repaired else _BUSY_S))
        if refusal is not None:
            refusal = replace(refusal, until=self._clock.now() + wait_s, since=since)
        kept[kind] = _Kept(refusal=refusal, until=now + wait_s, times=times, since=since)
        return refusal

    def of(self, node: str) -> dict[NodeWrite, Refusal]:
        """What is not to be sent to this node yet, and what is said of it."""
        return {
            kind: kept.refusal
            for kind, kept in self._kept.get(node, {}).items()
            if kept.refusal is not None and self._clock.elapsed() < kept.until
        }

    def nodes(self, kind: NodeWrite) -> frozenset[str]:
        """The nodes to which this kind of write is not to be sent yet."""
        now = self._clock.elapsed()
        return frozenset(
            node
            for node, kept in self._kept.items()
            if (one := kept.get(kind)) is not None and one.refusal is not None and now < one.until
        )

    def unsaid(self) -> Refusal | None:
        """The oldest lack of a right to write sessions, which no session can tell of; not of what
        has not been tried again for long.
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
        """Nothing is wanted of the node any more; what still waits for its turn stays."""
        if not self.of(node):
            self._kept.pop(node, None)


# Beyond this many Events that wait to be sent, new ones are dropped; the sessions tell all.
_WAITING = 5_000
# As many go out at once as their queue has connections: the others hear of a refusal in time.
_AT_ONCE = 16
# What an operator repairs takes minutes.
_REFUSED_S = 600.0
# More namespaces than this with rights of their own are not distinguished.
_NAMESPACES = 1_000
_FORBIDDEN = 403


class Telling:
    """Sends Events for one process."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._waiting: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._refused: dict[str, float] = {}
        """Until when (CLOCK_BOOTTIME) nothing is reported in a namespace that refuses Events."""

    def tell(self, event: EmitEvent) -> None:
        """Send it when its turn comes; it may be dropped, and it may fail."""
        if len(self._waiting) < _WAITING and not self._is_refused(event.namespace):
            task = asyncio.create_task(self._send(event))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _send(self, event: EmitEvent) -> None:
        async with self._turn:
            if not self._is_refused(event.namespace):
                self._heard(event.namespace, await self._gateway.send(event))

    def _is_refused(self, namespace: str) -> bool:
        return self._clock.elapsed() < self._refused.get(namespace, float("-inf"))

    def _heard(self, namespace: str, sent: Sent) -> None:
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
    said = answer.sentence()
    remedy = (
        "ask who runs the quota, admission policy or webhook"
        if Told.BY_ADMISSION in told(said)
        else "grant it create on events"
    )
    return (
        f"The remediator may not write Events in namespace {namespace} ({said}), so nobody is "
        f"told there what it does; everything else goes on, {remedy}."
    )
