"""Send all writes to the cluster: check leadership, mode and freshness, then send, count and log.

Nothing else in the remediator changes the cluster; the writes are those of `rules.api.writes`.

- Only the leader writes.
- In mode Shadow nothing is written to nodes or pods, except to remove a taint and cordon or a
  notice of an earlier Enforce. A DeviceTaintRule has no effect then.
- A disruptive write is sent only within 10 s after a lease renewal, and after the rules have
  checked the node again. The node is read for it, at most 1 s before and in at most 5 s.
- Two disruptive writes need no read: an eviction if the watch of nodes had an event within 5 s,
  and a taint and cordon for the version that the watch shows, because the API server refuses any
  other version.

Answers of the API server are returned as `Sent` and never raised.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from remediator.kube.answer import ApiError, HeldError, Result, Sent, classify
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, Clock
from remediator.kube.elector import Elector
from remediator.metrics import Metrics
from rules.api import object_name, requests
from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.quarantine import Mode
from rules.api.repair_writes import (
    CreateTestJob,
    SetRepairCondition,
    SetValidated,
    WriteRepairObject,
)
from rules.session import observation

_LOG = structlog.get_logger()

# A disruptive write needs a read of the node that was answered at most this long ago,
FRESH_NODE_S = 1.0
# and that took at most this long, because later changes may be missing in it. One second would
# stop all quarantines and evictions while the API server is slow.
LONGEST_READ_S = 5.0

_QUEUES: dict[type, CallQueue] = {
    **dict.fromkeys(
        (
            d.TaintAndCordon,
            d.RemoveTaint,
            TaintDevice,
            UntaintDevice,
            SetRepairCondition,
            WriteRepairObject,
            CreateTestJob,
            SetValidated,
        ),
        CallQueue.TAINT,
    ),
    **dict.fromkeys(
        (d.EvictPod, d.SetDisruptionTarget, d.NotifyPod, d.DeletePod), CallQueue.EVICT
    ),
    **dict.fromkeys((d.CreateSession, d.PatchSessionSpec, d.SetNodeUnknown), CallQueue.OPEN),
    d.WriteSessionStatus: CallQueue.STATUS,
}
"""Every other write is a record."""
# Without RemoveTaint and NotifyPod: in Shadow, taint, cordon and notices of an earlier Enforce are
# still removed.
_ON_NODES_OR_PODS = (
    d.TaintAndCordon,
    d.RelabelNode,
    d.SetNodeUnknown,
    d.SetDisruptionTarget,
    d.DeletePod,
    CreateTestJob,
    SetValidated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A node as read, with times in seconds of CLOCK_BOOTTIME."""

    node: FreshNode
    asked_at: float
    answered_at: float

    def too_old(self, now: float) -> str:
        """Why the read is too old or took too long for a disruption; "" if it is fresh."""
        took_s, age_s = self.answered_at - self.asked_at, now - self.answered_at
        if took_s > LONGEST_READ_S:
            return f"reading the node took {took_s:.1f} s"
        return f"the node was read {age_s:.1f} s ago" if age_s > FRESH_NODE_S else ""


class AboutWrite(Protocol):
    """The object of a write, which is checked again just before the write is sent."""

    async def check(self, *, again: bool = False) -> str:
        """Read it if it is not fresh, or always with `again`; return why the write must not be
        sent, "" if it may.
        """
        ...

    def too_old(self) -> str:
        """Why the last read is too old for the write; "" if it is fresh."""
        ...

    def why_not(self) -> str:
        """Why the write must not be sent, from the last read; awaits nothing."""
        ...


Recheck = Callable[[d.Write, NodeView], str]
"""Returns why a disruptive write must not be sent, "" if it may."""


class Gateway:
    """Sends the writes of one process."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        elector: Elector,
        metrics: Metrics,
        *,
        mode: Callable[[str], Mode],
        recheck: Recheck,
        watched: Callable[[str], NodeView | None] = lambda _: None,
        watched_now: Callable[[str], NodeView | None] = lambda _: None,
    ) -> None:
        """`mode` returns the mode for a node. `watched` returns a node from its watch; None if no
        watch shows it. `watched_now` does so only while the watch is recent.
        """
        self._api = api
        self._clock = clock
        self._elector = elector
        self._metrics = metrics
        self._mode = mode
        self._recheck = recheck
        self._watched = watched
        self._watched_now = watched_now
        self._reads: dict[str, _Read] = {}
        self._reading: dict[str, asyncio.Task[FreshNode]] = {}

    async def fresh_node(self, name: str, max_age_s: float = 0.0) -> FreshNode:
        """The node, read from the API server at most that long ago; ApiError."""
        asked_at = self._clock.elapsed()
        known = self._reads.get(name)
        if (
            known is not None
            and asked_at - known.answered_at < max_age_s
            and not known.too_old(asked_at)
        ):
            return known.node
        if max_age_s > 0:
            return await self._shared_read(name)
        return await self._read(name)

    async def _shared_read(self, name: str) -> FreshNode:
        """Read the node once for all callers that wait at the same time."""
        task = self._reading.get(name)
        if task is None:
            task = self._reading[name] = asyncio.create_task(self._read(name))
            task.add_done_callback(lambda done: self._was_read(name, done))
        # A cancelled caller must not cancel the read of the others.
        return await asyncio.shield(task)

    def _was_read(self, name: str, done: asyncio.Task[FreshNode]) -> None:
        self._reading.pop(name, None)
        if not done.cancelled():
            # Flag the exception as retrieved, in case all callers were cancelled.
            done.exception()

    async def _read(self, name: str) -> FreshNode:
        asked_at = self._clock.elapsed()
        try:
            node = await self._api.get(object_name.api_path("/api/v1/nodes", name), FreshNode)
        except ApiError:
            self._reads.pop(name, None)
            raise
        known = self._reads.get(name)
        if known is not None and known.asked_at > asked_at:
            # A newer read was answered first.
            return known.node
        # The age counts from the answer. Otherwise a slow API server would block every quarantine
        # and eviction.
        self._reads[name] = _Read(node=node, asked_at=asked_at, answered_at=self._clock.elapsed())
        return node

    def forget(self, name: str) -> None:
        """Drop the last read of the node."""
        self._reads.pop(name, None)

    async def send(self, write: d.Write, about: AboutWrite | None = None) -> Sent:
        """Send one write if it is allowed; `about` is the object of a disruptive write."""
        sent = await self._checked(write, about)
        kind = d.kind_of(write)
        self._metrics.writes.labels(kind, sent.result.value).inc()
        _log(write, kind, sent)
        return sent

    async def _checked(self, write: d.Write, about: AboutWrite | None) -> Sent:
        held = self._forbidden(write)
        if held:
            return Sent(result=Result.HELD, why=held)
        asked_at: float | None = None
        if isinstance(write, d.RemoveTaint) and write.orphan:
            asked_at = self._clock.elapsed()
            kept = await self._still_owned(write)
            if kept is not None:
                return kept
        if not write.disruptive:
            return await self._post(write, self._leader_check(write, asked_at), in_turn=False)
        async with self._api.turn(_call_queue(write)):
            for again in (False, True):
                try:
                    node, why = await self._read_both(write, about, again=again)
                except ApiError as error:
                    why = f"its object was not read before the write: {error}"
                    return Sent(result=classify(error.answer), why=why)
                why = why or self._recheck(write, node)
                if why:
                    return Sent(result=Result.HELD, why=why)
                if about is None or not (about.too_old() or self._node_too_old(write)):
                    break
            return await self._post(write, self._last_check(write, about), in_turn=True)

    async def _read_both(
        self, write: d.Write, about: AboutWrite | None, *, again: bool
    ) -> tuple[NodeView | FreshNode, str]:
        """Return the node, and why the object of the write forbids it. Both are read at the same
        time, because each read ages while the other one is awaited. With `again` both are read
        even if they are fresh.
        """
        if about is None:
            return self._exactly_seen(write) or await self.fresh_node(write.node, FRESH_NODE_S), ""
        node = write.node
        if not again and (seen := self._seen_now(write)) is not None:
            return seen, await about.check()
        read = self._shared_read(node) if again else self.fresh_node(node, FRESH_NODE_S)
        return await asyncio.gather(read, about.check(again=again))

    def _node_too_old(self, write: d.Write) -> bool:
        """Whether the watch or the last read of the node is no longer fresh."""
        if self._seen_now(write) is not None:
            return False
        known = self._reads.get(write.node)
        return known is None or self._clock.elapsed() - known.answered_at > FRESH_NODE_S

    def _exactly_seen(self, write: d.Write) -> NodeView | None:
        """The watched node, if the taint and cordon is for exactly that version; else None."""
        if not isinstance(write, d.TaintAndCordon):
            return None
        node, metadata = self._watched(write.node), write.patch.get("metadata", {})
        version = metadata.get("resourceVersion", "")
        seen = node is not None and version and node.metadata.resource_version == version
        return node if seen else None

    def _seen_now(self, write: d.Write) -> NodeView | None:
        """The node of an eviction, if its watch is recent; else None."""
        return self._watched_now(write.node) if isinstance(write, d.EvictPod) else None

    async def _still_owned(self, write: d.RemoveTaint) -> Sent | None:
        """None if an uncached read shows that the session of the taint and cordon is gone or has
        ended; else why they stay.
        """
        path = object_name.api_path(requests.QUARANTINES, write.session)
        answer = await self._api.call(CallQueue.READ, "GET", path)
        if answer.is_not_found(write.session):
            return None
        if answer.ok:
            found = answer.decode(QuarantineView)
            if found.spec.node_name != write.node or not observation.is_open(found):
                return None
            return Sent(result=Result.HELD, why=f"session {write.session} exists")
        result = Result.HELD if answer.code == 404 else classify(answer)
        # Without `answer`: it is about the session, not about writes on the node.
        return Sent(result=result, why=f"session not read: {answer.sentence()}")

    def _forbidden(self, write: d.Write) -> str:
        if self._mode(write.node) is Mode.SHADOW and (
            isinstance(write, _ON_NODES_OR_PODS) or _disruptions(write)
        ):
            return "mode is Shadow"
        if not self._elector.may_write():
            return "another replica leads"
        return ""

    def _leader_check(self, write: d.Write, asked_at: float | None) -> Callable[[], None]:
        """The last check of a write that is not disruptive: this replica must still lead.
        `asked_at` is when the data of the write was requested.
        """

        def check() -> None:
            why = self._forbidden(write)
            if asked_at is not None and self._clock.elapsed() - asked_at > LONGEST_READ_S:
                why = why or "its session was read too long ago"
            if why:
                raise HeldError(why)

        return check

    def _last_check(self, write: d.Write, about: AboutWrite | None) -> Callable[[], None]:
        """The last check of a disruptive write, on the open connection: leadership, freshness and
        rules.
        """

        def check() -> None:
            why = self._forbidden(write)
            if not why and not self._elector.may_disrupt():
                why = "the lease was not renewed within 10 s"
            why = why or self._changed(write)
            if not why and about is not None:
                why = about.why_not() or about.too_old()
            if why:
                raise HeldError(why)

        return check

    def _changed(self, write: d.Write) -> str:
        """Why the known state of the node forbids the write; "" if it allows it."""
        if (seen := self._exactly_seen(write) or self._seen_now(write)) is not None:
            return self._recheck(write, seen)
        known = self._reads.get(write.node)
        if known is None:
            return "the node was not read"
        # The read may have become old while connecting.
        return self._recheck(write, known.node) or known.too_old(self._clock.elapsed())

    async def _post(
        self, write: d.Write, last_check: Callable[[], None], *, in_turn: bool
    ) -> Sent:
        wire = requests.request(write)
        try:
            answer = await self._api.call(
                _call_queue(write),
                wire.method,
                wire.path,
                body=wire.body,
                content_type=wire.content_type,
                before_send=last_check,
                in_turn=in_turn,
            )
        except HeldError as held:
            return Sent(result=Result.HELD, why=str(held))
        result = classify(answer)
        return Sent(result=result, answer=answer, why="" if answer.ok else answer.sentence())


def _call_queue(write: d.Write) -> CallQueue:
    return _QUEUES.get(type(write), CallQueue.RECORD)


def _disruptions(write: d.Write) -> bool:
    """Whether this eviction, notice, repair request or device taint is disruptive; other kinds are
    False.
    """
    if isinstance(write, d.SetDrainConditions):
        return write.reports
    kinds = d.EvictPod | d.NotifyPod | SetRepairCondition | WriteRepairObject | TaintDevice
    return isinstance(write, kinds) and write.disruptive


def _log(write: d.Write, kind: str, sent: Sent) -> None:
    say = _LOG.info if sent.result in {Result.DONE, Result.CONFLICT, Result.HELD} else _LOG.warning
    say(
        "write",
        kind=kind,
        result=sent.result.value,
        **d.named(write),
        **({"why": sent.why} if sent.why else {}),
    )
