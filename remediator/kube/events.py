"""Events for people: sent in the background, so that nothing waits for one and none fails over it.

Every Event of the remediator goes through here. What waits is bounded, and where
Events are refused that is said once and tried again later: nodes of which nobody is told are
marked, drained and released as ever.
"""

from __future__ import annotations

import asyncio

import structlog

from remediator.kube.answer import Answer, Sent
from remediator.kube.clock import Clock
from remediator.kube.gateway import Gateway
from rules.api.refusal import NAMESPACE_ENDING, Told, told
from rules.api.writes import EmitEvent

_LOG = structlog.get_logger()

# Beyond this many Events that wait to be sent, new ones are dropped; the sessions tell all.
_WAITING = 5_000
# As many go out at once as their lane has connections: the others hear of a refusal in time.
_AT_ONCE = 16
# What a person repairs takes minutes.
_REFUSED_S = 600.0
# More namespaces than this with rights of their own are not told apart.
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
        """Until when (CLOCK_BOOTTIME) nothing is told in a namespace that refuses Events."""

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
